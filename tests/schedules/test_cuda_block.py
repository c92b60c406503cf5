"""Blocks on CUDA: right and clean in the simulator on odd shapes, the same bits every time, 14 passes over memory."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from dwconv.errors import InvalidConfig, NoTemplate
from dwconv.kernels import build
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.kernel import Kernel
from dwconv.measure.simulator.machine import SimulatedGpu
from dwconv.measure.simulator.simulate import source_only, verified
from dwconv.measure.verify.cases import make_case
from dwconv.problems.block import Block
from dwconv.problems.workload import BLOCK_PASSES, DTYPES, DType, Pass, Workload
from dwconv.schedules.cuda.block_nhwc.cut import BlockCut
from dwconv.schedules.cuda.block_nhwc.estimate import block_works
from dwconv.schedules.cuda.gpu.hardware import STATIC_SHARED_BYTES
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import Candidate, template, templates_for
from dwconv.tuner.gpu_cost import computed_cost
from tests.pages import table_row, text_of
from tests.schedules import cuda_layers
from tests.schedules.cuda_layers import SM_90, assert_right_and_clean, assert_right_on_extreme_values, drawn
from tests.turns import every


def layer(channels: int, size: tuple[int, int], kernel: tuple[int, int], **other: object) -> Workload:
    return cuda_layers.layer(channels, size, kernel, layout="nhwc", **other)


LAYERS = {
    "ragged channels": layer(28, (9, 11), (3, 3), batch=3),
    "odd channels": layer(9, (7, 8), (3, 3), batch=3),
    "stride": layer(24, (10, 11), (3, 3), stride=(2, 2)),
    "asymmetric padding": layer(16, (10, 13), (3, 5), padding=((0, 2), (3, 1)), stride=(2, 1)),
    "dilation": layer(34, (11, 9), (5, 3), padding=((4, 4), (2, 2)), dilation=(2, 2)),
    "7 by 7": layer(12, (8, 7), (7, 7), batch=1),
    "stride beyond the kernel": layer(8, (13, 14), (1, 2), padding=((0, 0), (0, 0)), stride=(4, 3)),
    "1-D": layer(32, (1, 30), (1, 5), padding=((0, 0), (4, 0))),
}
BLOCKS = (
    "bn+relu6,bn+relu6", "bn@0.001+hardswish,bn@0.01+silu", "bn+silu,bn", "none,bn+relu", "bn+gelu,none",
    "bn,bn+gelu", "relu,bn+hardswish", "bn+relu,bn+relu",
)  # fmt: skip


BOTH_GRADIENTS = "none,none"
"""Nothing around the convolution: of which there is a backward pass alone."""


def block(workload: Workload, pass_: Pass, text: str = "bn+relu6,bn+relu6", dtype: DType = "float32") -> Workload:
    return dataclasses.replace(workload, pass_=pass_, block=Block.parse(text), dtype=dtype)


def square(channels: int, size: int, kernel: int, stride: int, pass_: Pass) -> Workload:
    return block(layer(channels, (size, size), (kernel, kernel), stride=(stride, stride), batch=64), pass_)


def both_gradients(channels: int, size: int, kernel: int, dtype: DType) -> Workload:
    return block(square(channels, size, kernel, 1, "backward"), "backward", BOTH_GRADIENTS, dtype)


def space(workload: Workload) -> ConfigSpace:
    return template(f"cuda.block_{workload.pass_}_nhwc").space(workload, SM_90)


def artifact_of(workload: Workload, config: Config) -> Artifact:
    return source_only(Candidate(workload, config), SM_90)


# -- numbers ---------------------------------------------------------------------------------------------------------


def cases() -> Iterator[Any]:
    """Every layer, block and pass; types and configurations, the default and another, take turns."""
    for turn, (name, workload) in enumerate(LAYERS.items()):
        texts = [(pass_, BLOCKS[(turn + 3 * number) % len(BLOCKS)]) for number, pass_ in enumerate(BLOCK_PASSES)]
        for number, (pass_, text) in enumerate([*texts, ("backward", BOTH_GRADIENTS)]):
            for place, dtype in enumerate(DTYPES):
                for choice in ("default", "drawn"):
                    at = turn + number + place
                    quick = (choice == "drawn") == (turn % 2 == 1) and at % 4 == 0 and turn < 4
                    if quick or (at % 3 == 1 and (choice == "drawn") == at % 2):
                        yield pytest.param(
                            block(workload, pass_, text, dtype),
                            choice,
                            id=f"{name}-{pass_}-{text}-{dtype}-{choice}",
                            marks=() if quick else pytest.mark.slow,
                        )


@pytest.mark.parametrize(("workload", "choice"), list(cases()))
def test_right_and_clean(workload: Workload, choice: str, objects: Path) -> None:
    found = template(f"cuda.block_{workload.pass_}_nhwc")
    config = drawn(workload, found) if choice == "drawn" else space(workload).default
    assert_right_and_clean(workload, config, objects)


SMALL = {"vector_c": 2, "threads_c": 8, "threads_p": 4, "parts": 16, "split": 8, "blocks_per_sm": 1}
"""Several parts of few pixels, one of which is empty, and channels of which some threads have none."""


def small(workload: Workload, **knobs: int) -> Config:
    stride = workload.stride[0] if workload.pass_ == "backward" else 1
    tile = {"tile_h": 2 * stride, "tile_w": 1 if stride == 1 else stride, "threads_h": 1, "threads_w": 4}
    return space(workload).check({**SMALL, **tile, **knobs})


@pytest.mark.parametrize(("lanes", "kind"), [(2, "half2"), (4, "half4"), (8, "uint4")])
def test_vectors_of_16_bits_go_whole(lanes: int, kind: str, objects: Path) -> None:
    """Those of images, also where some threads have no channels; of float32 sums, 16 bytes at a time."""
    workload = block(layer(15 * lanes, (5, 8), (3, 3)), "backward", BOTH_GRADIENTS, "float16")
    config = small(workload, vector_c=lanes)
    assert_right_and_clean(workload, config, objects)
    source = artifact_of(workload, config).source
    assert set(re.findall(r"\*\((\w+)\*\)\((?:dx|dy|x)_ptr", source)) == {kind}
    assert not re.search(r"\b(dx|dy|x)_ptr\[", source)
    assert set(re.findall(r"\*\((\w+)\*\)\(workspace_ptr", source)) == {"float2" if lanes == 2 else "float4"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "workload",
    [
        block(layer(28, (16, 16), (3, 3)), "forward", "bn+silu,bn+relu"),
        block(layer(28, (16, 16), (3, 3)), "backward", "bn+silu,bn+relu"),
        block(layer(124, (2, 64), (3, 3), batch=1), "backward", BOTH_GRADIENTS, "float16"),
    ],
    ids=["forward", "backward", "16 bits"],
)
def test_a_patch_beyond_static_shared_memory(workload: Workload, objects: Path) -> None:
    """Where some threads have no channels, they cannot all wait for each other in the middle of it."""
    tile = {"vector_c": 4, "tile_h": 4, "tile_w": 2, "threads_h": 4, "threads_w": 8}
    if workload.channels > 28:
        tile |= {"threads_c": 32, "tile_h": 1, "tile_w": 8, "threads_h": 1}
    config = space(workload).check({**SMALL, **tile})
    cut = BlockCut.of(workload, config)
    assert cut.shared_bytes > STATIC_SHARED_BYTES and cut.idle_channels
    kernels = artifact_of(workload, config).source.split("__global__")
    held = re.findall(
        r"__shared__ \S+ (float4?) \w+\[(\d+)\]", next(each for each in kernels if "patch_shared" in each)
    )
    taken = sum({"float": 4, "float4": 16}[kind] * int(count) for kind, count in held)
    assert taken <= cut.static_bytes < 1.3 * taken, "what has its turn later may lie in the same place"
    assert_right_and_clean(workload, config, objects)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("pass_", "text"), [*((pass_, BLOCKS[0]) for pass_ in BLOCK_PASSES), ("backward", BOTH_GRADIENTS)]
)
def test_extreme_values(pass_: Pass, text: str, dtype: DType, objects: Path) -> None:
    """A mean far from zero beside the deviation, too: E[v²] − E[v]² would leave nothing of the variance."""
    workload = block(layer(28, (8, 8), (3, 3), batch=3), pass_, text, dtype)
    assert_right_on_extreme_values(workload, small(workload), objects)


@pytest.mark.parametrize(
    ("pass_", "text", "dtype"),
    [
        *((pass_, BLOCKS[0], dtype) for pass_ in BLOCK_PASSES for dtype in ("float32", "bfloat16")),
        ("backward", BOTH_GRADIENTS, "float16"),
    ],
)
def test_any_batch_and_the_same_bits_every_time(pass_: Pass, text: str, dtype: DType, objects: Path) -> None:
    """Sums of normally distributed data: another order would round otherwise."""
    workload = block(layer(16, (8, 8), (3, 3), stride=(2, 2)), pass_, text, dtype)
    artifact = artifact_of(workload, small(workload))
    for batch in (1, 11):
        verdict, report = verified(artifact, workload.with_batch(batch), folder=objects)
        assert verdict.right, verdict.reason
        assert report.clean
    inputs = make_case(workload, data="normal", seed=3).inputs
    with SimulatedGpu(artifact, folder=objects) as machine:
        kernel = Kernel(artifact, machine, device="cpu")
        once, again = (kernel(*inputs) for _ in range(2))
    assert all(torch.equal(first, second) for first, second in zip(once, again, strict=True))


# -- code ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["bn+relu,bn+relu", "none,bn", "bn+relu,none", "relu,none"])
def test_there_is_a_kernel_for_each_time_that_all_must_be_known(text: str) -> None:
    """Each norm: one that sums, one that adds the parts up and, where its result is stored, one that makes it."""
    forward, backward = (block(LAYERS["stride"], pass_, text) for pass_ in BLOCK_PASSES)
    given = forward.block
    assert given
    norms = (given.norm1 is not None, given.norm2 is not None)
    for workload, launches in ((forward, 1 + 2 * sum(norms)), (backward, 2 + norms[0] + 2 * norms[1])):
        config = space(workload).default
        assert len(artifact_of(workload, config).launches) == launches
        assert len(block_works(BlockCut.of(workload, config), SM_90)) == launches


REGIMES = [
    (144, 56, 3, 1), (96, 112, 3, 2), (192, 28, 3, 1), (384, 14, 3, 1), (576, 14, 3, 2), (960, 7, 3, 1), (240, 28, 5, 1)
]  # fmt: skip
"""By their row in docs/cuda.md. All of them, each way, take a minute."""


@pytest.mark.parametrize(
    ("channels", "size", "kernel", "stride", "pass_"),
    every(4, [(*REGIMES[0], BLOCK_PASSES[1]), *((*REGIMES[at], BLOCK_PASSES[at % 2]) for at in (0, 3, 6))]),
)
def test_defaults_move_what_the_passes_move_in_the_time_that_the_page_says(
    channels: int, size: int, kernel: int, stride: int, pass_: Pass
) -> None:
    """Little longer than bandwidth allows, but for the launches. Small sums may still be in the cache."""
    workload = square(channels, size, kernel, stride, pass_)
    artifact = build(Candidate(workload, space(workload).default), SM_90)
    assert artifact.resources["spill_bytes"] == artifact.resources["stack_bytes"] == 0
    cost = computed_cost(artifact, workload, SM_90)
    assert 0.8 * workload.bytes <= cost.dram_bytes <= 1.2 * workload.bytes
    launches = sum(kernel.busy_us["launch"] for kernel in cost.kernels)
    shares = [cost.limit_us / us for us in (cost.microseconds, cost.microseconds - launches)]
    row = f"{channels} × {size}², k{kernel}" + (f", stride {stride}" if stride > 1 else "")
    cell = table_row("docs/cuda.md", row, under="## Blocks")[BLOCK_PASSES.index(pass_)]
    assert cell == f"{shares[0]:.2f} ({shares[1]:.2f})"
    assert f"without the {launches:.0f} µs of five launches" in text_of("docs/cuda.md")


@pytest.mark.slow
@pytest.mark.parametrize("pass_", BLOCK_PASSES)
def test_16_bits_take_the_share_of_the_time_that_the_page_says(pass_: Pass) -> None:
    costs = []
    for dtype in ("float32", "float16"):
        workload = dataclasses.replace(square(192, 28, 3, 1, pass_), dtype=dtype)
        artifact = build(Candidate(workload, space(workload).default), SM_90)
        assert artifact.resources["spill_bytes"] == artifact.resources["stack_bytes"] == 0
        costs.append(computed_cost(artifact, workload, SM_90).microseconds)
    found = re.search(r"In float16 they take (\S+) to (\S+) of the time, computed", text_of("docs/cuda.md"))
    assert found and float(found[1]) <= round(costs[1] / costs[0], 2) <= float(found[2])


# -- the space -------------------------------------------------------------------------------------------------------


def test_what_cannot_run_is_named() -> None:
    workload = block(LAYERS["stride"], "backward")
    with pytest.raises(NoTemplate, match="blocks have no channel multiplier"):
        templates_for(dataclasses.replace(workload, multiplier=2), SM_90)
    for text in ("frozen+relu,bn", "bn,frozen", "frozen,none", "in,in"):
        for pass_ in BLOCK_PASSES:
            with pytest.raises(NoTemplate, match="it is for norms with the statistics of the batch"):
                templates_for(dataclasses.replace(workload, pass_=pass_, block=Block.parse(text)), SM_90)
    with pytest.raises(NoTemplate, match=r"sums of a 17×17 kernel take .* registers, a thread has 255"):
        templates_for(block(layer(8, (20, 20), (17, 17)), "backward"), SM_90)


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"threads_c": 36, "threads_p": 32}, "more than 1024 threads"),
        ({"threads_w": 16, "threads_h": 1, "tile_w": 7}, "the results wanted"),
        ({"blocks_per_sm": 16}, "more registers"),
    ],
)
def test_illegal_configurations_say_why(knobs: dict[str, object], reason: str) -> None:
    workload = square(144, 56, 3, 1, "backward")
    with pytest.raises(InvalidConfig, match=reason):
        space(workload).check({**space(workload).default.to_dict(), **knobs})
