"""CUDA source and launches: run on the CPU exactly as listed, the numbers are right."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from tvm import s_tir, te, tirx

from dwconv.errors import BuildError, InvalidConfig
from dwconv.kernels import build
from dwconv.kernels.artifact import Argument, Extent, Scalar
from dwconv.kernels.cpu_build import describe
from dwconv.kernels.cuda_build import extent, lower
from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, template
from tests.schedules.cuda_layers import SM_90, assert_right_and_clean

PLAIN = Workload(pass_="fprop", batch=3, channels=5, input_size=(9, 11), kernel=(3, 3), padding=((1, 1), (1, 1)))

# (what differs from PLAIN, knobs that differ from the default)
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "stride 2": ({"stride": (2, 2), "input_size": (31, 70)}, {"vthread_w": 2, "threads_w": 9}),
    "stride 2, kernel 1": ({"stride": (2, 1), "kernel": (1, 1), "padding": ((1, 0), (2, 1)), "batch": 1}, {}),
    "stride 3 and 2, unused rows": (
        {"stride": (3, 2), "kernel": (2, 3), "input_size": (20, 33), "padding": ((0, 2), (3, 0))},
        {"tile_h": 1},
    ),
    "dilation 2, asymmetric": (
        {"dilation": (2, 3), "kernel": (4, 3), "padding": ((3, 1), (0, 4)), "input_size": (17, 23)},
        {"tile_h": 3},
    ),
    "multiplier 2": ({"multiplier": 2, "channels": 3}, {"planes": 2}),
    "a part of a multiplier": ({"multiplier": 34, "channels": 2, "batch": 1}, {"planes": 2, "tile_h": 1}),
    "5 × 7 rows one at a time": ({"kernel": (5, 7), "input_size": (24, 40)}, {"unroll": "row", "vthread_w": 2}),
    "1-D": ({"input_size": (1, 200), "kernel": (1, 9), "padding": ((0, 0), (8, 0))}, {"vthread_w": 2}),
    "registers, stride 2": (
        {"stride": (2, 2), "multiplier": 2, "padding": ((0, 1), (1, 2)), "input_size": (13, 29)},
        {"stage": "registers", "tile_w": 2, "threads_w": 8, "planes": 10},
    ),
    "dynamic shared memory": (
        {"channels": 32, "input_size": (30, 56), "batch": 1},
        {"planes": 16, "block_h": 30, "tile_h": 10, "threads_w": 14, "vthread_w": 4},
    ),
}


def candidate(case: str = "plain") -> Candidate:
    changes, knobs = CASES[case]
    workload = dataclasses.replace(PLAIN, **changes)
    space = template("cuda.fprop_nchw").space(workload, SM_90)
    return Candidate(workload, space.check({**space.default.to_dict(), **knobs}))


@pytest.mark.parametrize("case", CASES)
def test_source_and_launches_give_the_right_numbers(case: str, objects: Path) -> None:
    chosen = candidate(case)
    assert_right_and_clean(chosen.workload, chosen.config, objects)


PARAMETER = re.compile(r"^(float ?\*|int)(?: __restrict__)? (\w+)$")


def test_arguments_are_listed_as_the_kernel_takes_them() -> None:
    artifact = build(candidate(), SM_90)
    (launch,) = artifact.launches
    listed = [
        ("int", argument.name) if isinstance(argument, Scalar) else ("float*", f"{argument.name}_ptr")
        for argument in launch.arguments
    ]
    head = re.search(rf"\b{launch.kernel}\(([^)]*)\) \{{", artifact.source)
    assert head is not None
    found = [PARAMETER.match(parameter.strip()) for parameter in head[1].split(",")]
    assert listed == [(match[1].replace(" ", ""), match[2]) for match in found if match]
    assert artifact.arguments == (
        Argument("x", "float32", (Extent(), 5, 9, 11)),
        Argument("w", "float32", (5, 3, 3)),
        Argument("y", "float32", (Extent(), 5, 9, 11)),
    )


def test_one_kernel_serves_every_batch() -> None:
    small, large = (build(Candidate(PLAIN.with_batch(n), candidate().config), SM_90) for n in (1, 64))
    assert small.source == large.source and small.launches == large.launches
    (launch,) = small.launches
    assert isinstance(launch.grid[0], Extent) and launch.grid[1:] == (1, 1)
    assert launch.grid[0].at(64) == 64 * launch.grid[0].at(1)


def test_resources_count_all_shared_memory() -> None:
    artifact = build(candidate("dynamic shared memory"), SM_90)
    (launch,) = artifact.launches
    assert launch.shared_bytes > 48 * 1024
    assert artifact.resources["shared_bytes"] == launch.shared_bytes
    assert 0 < artifact.resources["registers"] <= 255
    assert artifact.cubin.startswith(b"\x7fELF")


def test_no_guard_in_the_inner_loop() -> None:
    """What is multiplied was fetched before the barrier, and every guard after it is on a store."""
    source = build(candidate("dilation 2, asymmetric"), SM_90).source
    _, after = source.split("__syncthreads();")
    multiplied, _, stored = after.partition("if (")
    assert "* w_ptr[" in multiplied and "* w_ptr[" not in stored


def test_a_config_from_outside_the_space_is_refused() -> None:
    wild = Config.of("cuda.fprop_nchw", **{**dict(candidate().config.values), "planes": 3})
    with pytest.raises(InvalidConfig, match="planes=3"):
        build(Candidate(PLAIN, wild), SM_90)


def of_two_loops(first: int, second: int, axis: str = "x") -> Any:
    """A program of two loops over threads, one after the other."""
    x = te.placeholder((64,), "float32", name="x")
    part = te.compute((first,), lambda i: x[i], name="part")
    y = te.compute((second,), lambda i: part[i % first], name="y")
    schedule = s_tir.Schedule(te.create_prim_func([x, y]))
    for name in ("part", "y"):
        schedule.bind(schedule.get_loops(schedule.get_sblock(name))[0], f"threadIdx.{axis}")
    return schedule.mod["main"]


@pytest.mark.parametrize("axis", ["x", "y", "z"])
def test_loops_of_different_lengths_on_one_axis_of_threads_are_an_error(axis: str) -> None:
    """TVM would drop threads of the longer one."""
    with pytest.raises(
        BuildError, match=rf"threadIdx\.{axis} .* different lengths, i of 32 and i\w* of 64; give them one"
    ):
        lower(of_two_loops(32, 64, axis), (), arch="sm_90")


def test_each_kernel_has_a_number_of_threads_of_its_own() -> None:
    x = te.placeholder((64,), "float32", name="x")
    half = te.compute((2, 16), lambda b, i: x[16 * b + i], name="half")
    y = te.compute((2, 32), lambda b, i: half[b, i // 2], name="y")
    schedule = s_tir.Schedule(te.create_prim_func([x, half, y]))
    for name in ("half", "y"):
        block, thread = schedule.get_loops(schedule.get_sblock(name))
        schedule.bind(block, "blockIdx.x")
        schedule.bind(thread, "threadIdx.x")
    function = schedule.mod["main"]
    _, launches = lower(function, tuple(map(describe, function.params)), arch="sm_90")
    assert [launch.block for launch in launches] == [(16, 1, 1), (32, 1, 1)]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (lambda n: tirx.IntImm("int32", 7), 7),
        (lambda n: n, Extent()),
        (lambda n: n * 6, Extent(times=6)),
        (lambda n: (n * 6 + 3) // 4, Extent(times=6, over=4)),
        (lambda n: (n + 7) // 8, Extent(times=1, over=8)),
    ],
)
def test_extents_are_read_in_terms_of_the_batch(expression: Any, expected: int | Extent) -> None:
    assert extent(expression(te.var("n", "int32"))) == expected


def test_other_extents_are_an_error() -> None:
    with pytest.raises(BuildError, match="is not a multiple of n"):
        extent(te.var("n", "int32") * 2 + 5)
