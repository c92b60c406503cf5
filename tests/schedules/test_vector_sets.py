"""Kernels for vector sets that are not the widest of this machine: right where they can run, and with no others'
registers; compiled where they cannot."""

from __future__ import annotations

import dataclasses
import itertools
import re

import pytest

from dwconv.errors import InvalidConfig
from dwconv.kernels import build
from dwconv.kernels.cpu_build import assembly
from dwconv.kernels.load_cpu import addresses_ir, openmp_ir
from dwconv.problems.target import CpuTarget, ForcedVectorSet, cpu_target
from dwconv.problems.workload import LAYOUTS, PASSES, Layout, Pass, Workload
from dwconv.schedules.cpu.shared.limits import CACHE_LINE_BYTES, vector_registers
from dwconv.schedules.template import Candidate
from dwconv.system import cpu_facts
from tests.schedules.cpu_layers import assert_right, built, layer, lying, some_configs, template_of

OTHERS: dict[ForcedVectorSet, str] = {
    "avx512": r"v\d+\.4s",
    "avx2": r"%?zmm|%?[xy]mm(?:1[6-9]|2\d|3[01])\b|%k[0-7]\b",
    "neon": r"%?[xyz]mm|\bz\d+\.s",
}
"""Registers that no CPU has whose widest vectors are these."""
OWN: dict[ForcedVectorSet, str] = {
    "avx512": r"vfmadd\w+\s.*zmm",
    "avx2": r"vfmadd\w+\s.*ymm",
    "neon": r"fmla\s+v\d+\.4s",
}
"""Multiply-adds on whole registers."""


def here(vector_set: ForcedVectorSet) -> CpuTarget:
    """The target, where its kernels can run."""
    if not cpu_facts.cpu_facts().has(vector_set):
        pytest.skip(f"this CPU has no {vector_set}")
    return cpu_target(threads=2, vector_set=vector_set)


def elsewhere(vector_set: ForcedVectorSet) -> CpuTarget:
    """The target as a machine without these vectors sees it."""
    vector_bytes = {each.name: each.bytes for each in cpu_facts.VECTOR_SETS}[vector_set]
    return CpuTarget(
        device=f"{vector_set}-2t", threads=2, vector_bytes=vector_bytes, vector_set=vector_set, present=False
    )


def problem(pass_: Pass, layout: Layout) -> Workload:
    """Channels and columns that fill no whole vectors."""
    workload = layer(58, (9, 11), (3, 3), padding=((1, 1), (1, 1)), bias=pass_ != "dgrad")
    return lying(workload.for_pass(pass_), layout)


@pytest.mark.slow
@pytest.mark.usefixtures("through_python")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
def test_avx2_kernels_are_right_and_use_no_other_registers(pass_: Pass, layout: Layout) -> None:
    target, workload = here("avx2"), problem(pass_, layout)
    for config in some_configs(workload, 1, target=target):
        kernel = built(workload, config, target)
        assert_right(kernel, workload)
        code = assembly(kernel.artifact)
        assert re.search(OWN["avx2"], code) and not re.search(OTHERS["avx2"], code)


@pytest.mark.slow
@pytest.mark.parametrize("vector_set", ["avx512", "neon"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
def test_other_vector_sets_compile_whatever_cpu_is_here(
    pass_: Pass, layout: Layout, vector_set: ForcedVectorSet
) -> None:
    target, workload = elsewhere(vector_set), problem(pass_, layout)
    artifact = build(Candidate(workload, some_configs(workload, 0, target=target)[0]), target)
    if pass_ == "fprop":  # with what is added when a kernel is loaded, which is the same for all
        added = addresses_ir(artifact.arguments) + openmp_ir(most_threads=2)
        artifact = dataclasses.replace(artifact, source=artifact.source + added)
    code = assembly(artifact)
    assert re.search(OWN[vector_set], code) and not re.search(OTHERS[vector_set], code)
    assert pass_ != "fprop" or "GOMP_parallel" in code


@pytest.mark.parametrize(("vector_set", "registers"), [("avx512", 24), ("avx2", 12), ("neon", 24)])
def test_a_tile_sums_in_as_many_registers_as_there_are(vector_set: ForcedVectorSet, registers: int) -> None:
    """AVX2 has 16, the others 32."""
    workload, target = layer(256, (28, 28), (3, 3), padding=((1, 1), (1, 1))), elsewhere(vector_set)
    space = template_of(workload, target=target).space(workload, target)
    small = {"unroll": "taps", "tile_h": 1, "vectors_c": 1, "order": "wch"}
    for tile_w in (12, 14, 16):
        fields = {**space.default.to_dict(), **small, "tile_w": tile_w}
        if tile_w <= registers:
            assert space.check(fields).tile_w == tile_w
        else:
            with pytest.raises(InvalidConfig, match=f"more sums in a tile than {registers} registers"):
                space.check(fields)


@pytest.mark.parametrize("vector_set", ["avx512", "avx2", "neon"])
@pytest.mark.parametrize("pass_", PASSES)
def test_where_a_search_starts_the_registers_hold_what_a_tile_needs(pass_: Pass, vector_set: ForcedVectorSet) -> None:
    """A tile that does not fit is kept in memory, and multiply-adds wait for it."""
    target = elsewhere(vector_set)
    for size, kernel in itertools.product([(7, 7), (28, 28), (56, 56)], [3, 5, 7]):
        pad = kernel // 2
        workload = layer(256, size, (kernel, kernel), padding=((pad, pad), (pad, pad)), batch=8).for_pass(pass_)
        default = template_of(workload, target=target).space(workload, target).default
        if pass_ == "wgrad":
            needed = (default.group_kh * kernel + default.tile_w) * default.vectors_c
        else:
            sums = default.tile_w * default.vectors_c * (default.tile_h if default.unroll == "taps" else 1)
            weights = kernel * (kernel if default.unroll == "taps" else 1) * default.vectors_c
            needed = sums + (weights if default.vectors_c <= 2 else 0) + 1  # four vectors share cache lines instead
        assert needed <= vector_registers(target)


@pytest.mark.parametrize(
    ("pass_", "vector_set"), [*((pass_, "avx2") for pass_ in PASSES), ("fprop", "neon"), ("dgrad", "neon")]
)
def test_narrow_vectors_start_from_neighbours_of_a_cache_line(pass_: Pass, vector_set: ForcedVectorSet) -> None:
    workload = layer(256, (28, 28), (3, 3), padding=((1, 1), (1, 1)), batch=8).for_pass(pass_)
    target = elsewhere(vector_set)
    default = template_of(workload, target=target).space(workload, target).default
    assert default.vectors_c * target.vector_bytes >= CACHE_LINE_BYTES
