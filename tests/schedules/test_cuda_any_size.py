"""CUDA kernels of any size: right and clean in the simulator at every size, the bits and about the instructions of a
kernel that is built for one."""

from __future__ import annotations

import dataclasses
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from dwconv.errors import InvalidConfig, InvalidWorkload
from dwconv.kernels import build, entry
from dwconv.kernels.artifact import Artifact, Extent, Scalar
from dwconv.kernels.kernel import Kernel
from dwconv.kernels.sass import disassemble
from dwconv.measure.simulator.machine import SimulatedGpu
from dwconv.measure.simulator.simulate import source_only, verified
from dwconv.measure.verify.cases import make_case
from dwconv.measure.verify.verify import verify_runs
from dwconv.problems.kernel_inputs import operands
from dwconv.problems.workload import PASSES, DType, Layout, Pass, Sizes, Workload
from dwconv.schedules.space import Config, Value
from dwconv.schedules.template import Candidate, fitting, templates_for
from tests.fixtures import Golden, digests
from tests.machine_code import count, loops
from tests.schedules import cuda_layers
from tests.schedules.cuda_layers import SM_90
from tests.turns import in_turns

MOST, LONGEST, DEEPEST = 40, 150, 7
"""The largest size along an axis: of an image, of a single row, and of a volume."""


def layer(channels: int, size: Sizes, kernel: Sizes, *, layout: Layout = "nhwc", **other: Any) -> Workload:
    return cuda_layers.layer(channels, size, kernel, layout=layout, **other)  # type: ignore[arg-type]


S2 = {"stride": (2, 2), "padding": ((0, 2), (3, 1))}
LOOPS: dict[str, Value] = {"unroll": "kw", "weights": "shared", "stage": "none"}
STRAIGHT: dict[str, Value] = {"unroll": "taps", "stage": "none", "edge": "zero"}
TWO: dict[str, Value] = {"tile_h": 2, "tile_w": 2}
STRIPS: dict[str, Value] = {"planes": 4, "threads_h": 2, "tile_h": 4, "threads_w": 4, "tile_w": 4, "threads_p": 16}
CASES: dict[str, tuple[Workload, dict[str, Value]]] = {
    "k 3": (layer(12, (14, 14), (3, 3)), {**STRAIGHT, "tile_h": 4, "tile_w": 4, "weights": "registers"}),
    "k 3, stride 2": (layer(12, (15, 13), (3, 3), stride=(2, 2)), {**STRAIGHT, "tile_h": 2, "tile_w": 4}),
    "k 5": (layer(8, (14, 14), (5, 5)), {**STRAIGHT, "tile_h": 7, "tile_w": 2, "weights": "shared"}),
    "k 5 × 3, stride 2, a bias": (layer(8, (15, 14), (5, 3), **S2, bias=True), {**LOOPS, "tile_h": 2, "tile_w": 4}),
    "k 7 in loops": (layer(8, (14, 14), (7, 7)), {**LOOPS, "tile_h": 2, "tile_w": 4, "threads_h": 2, "edge": "skip"}),
    "k 7, one row at a time": (layer(8, (14, 14), (7, 7)), {**LOOPS, "tile_h": 1, "tile_w": 7, "unroll_h": 1}),
    "a patch": (layer(16, (14, 14), (5, 5)), {"stage": "shared", "tile_h": 2, "vthread_w": 2, "threads_w": 2}),
    "a patch, stride 2": (layer(16, (14, 14), (3, 3), **S2), {"stage": "shared", "threads_h": 2, "tile_w": 2}),
    "dilation 2": (layer(8, (13, 17), (3, 3), dilation=(2, 2), padding=((2, 2), (3, 1))), {"tile_h": 4}),
    "multiplier 2": (layer(6, (9, 12), (3, 3), stride=(2, 1), multiplier=2), {"tile_h": 4}),
    "stride beyond the kernel": (layer(4, (20, 21), (3, 3), stride=(7, 5)), {}),
    "padding beyond the kernel": (layer(4, (6, 8), (3, 3), padding=((5, 4), (4, 6))), {"tile_h": 4}),
    "a causal row": (layer(8, (1, 60), (1, 7), padding=((0, 0), (6, 0))), {"tile_w": 7}),
    "a row, k 31": (layer(4, (1, 90), (1, 31), padding=((0, 0), (15, 15))), {"tile_w": 4}),
    "a volume": (layer(8, (4, 6, 9), (3, 3, 3), stride=(2, 1, 2), dilation=(1, 1, 1)), TWO),
    "planes of a volume": (layer(8, (4, 6, 9), (1, 3, 3), stride=(1, 1, 2), dilation=(1, 1, 1)), TWO),
    "contiguous": (layer(12, (14, 16), (3, 3), layout="nchw"), STRIPS),
    "contiguous, k 5 × 3, stride 2, a bias": (layer(8, (15, 12), (5, 3), **S2, bias=True, layout="nchw"), STRIPS),
    "contiguous, multiplier 2": (
        layer(6, (9, 12), (3, 3), stride=(2, 1), dilation=(1, 2), multiplier=2, layout="nchw"), STRIPS,
    ),
    "contiguous, padding beyond the kernel": (
        layer(4, (6, 8), (3, 3), padding=((5, 4), (4, 6)), layout="nchw"), STRIPS,
    ),
    "contiguous, a causal row": (layer(8, (1, 60), (1, 7), padding=((0, 0), (6, 0)), layout="nchw"), {"tile_w": 4}),
    "a contiguous volume": (
        layer(4, (4, 6, 8), (3, 3, 3), stride=(2, 1, 2), dilation=(1, 1, 1), layout="nchw"), STRIPS,
    ),
}  # fmt: skip


def candidate(workload: Workload, wanted: dict[str, Value]) -> Candidate:
    """For any size, with a configuration near to what is wanted, of knobs that the template has."""
    workload = workload.with_any_size()
    (template,) = templates_for(workload, SM_90)
    space = template.space(workload, SM_90)
    known = {knob.name for knob in space.knobs if knob.values}
    given = {name: value for name, value in wanted.items() if name in known}
    return Candidate(workload, space.nearest(Config.of(template.name, **{**dict(space.default.values), **given})))


def of_pass(workload: Workload, pass_: Pass) -> Workload:
    return dataclasses.replace(workload, bias=workload.bias and pass_ != "dgrad").for_pass(pass_)


def some_sizes(workload: Workload, count: int) -> list[Sizes]:
    """By chance, the same every time; the smallest and the workload's own are among them."""
    drawn = random.Random(workload.key)
    most = [1, LONGEST] if workload.is_row else [MOST if workload.axes == 2 else DEEPEST] * workload.axes
    sizes = {workload.input_size, tuple(1 for _ in most)}
    while len(sizes) < count:
        sizes.add(tuple(drawn.randint(1, drawn.randint(1, size)) for size in most))
    return sorted(sizes)


def at(artifact: Artifact, size: Sizes) -> Workload | None:
    """None if the kernel is larger than the padded image."""
    try:
        return artifact.candidate.workload.with_input_size(size)
    except InvalidWorkload:
        return None


@pytest.mark.parametrize(("case", "pass_"), in_turns(list(CASES), PASSES))
def test_right_and_clean_at_every_size(case: str, pass_: Pass, objects: Path) -> None:
    """Also where an image is smaller than a tile, and where the kernel is larger than the image."""
    workload, wanted = CASES[case]
    artifact = source_only(candidate(of_pass(workload, pass_), wanted), SM_90)
    for size in some_sizes(workload, 8):
        if own := at(artifact, size):
            verdict, report = verified(artifact, own, folder=objects)
            assert report.clean, f"{own.key}: {report.faults[0]}"
            assert verdict.right, f"{own.key}: {verdict.reason}"


@pytest.mark.parametrize(
    ("case", "dtype", "pass_"),
    [
        ("k 3, stride 2", "bfloat16", "fprop"),
        ("k 3, stride 2", "float16", "dgrad"),
        ("contiguous", "bfloat16", "dgrad"),
        ("contiguous", "float16", "wgrad"),
    ],
)
def test_right_in_16_bits_on_extreme_values(case: str, pass_: Pass, dtype: DType, objects: Path) -> None:
    """NaN and infinity, which padding and missing outputs must not spread."""
    workload = of_pass(dataclasses.replace(CASES[case][0], dtype=dtype, channels=16), pass_)
    artifact = source_only(candidate(workload, {"tile_h": 4, "tile_w": 2}), SM_90)
    for size in some_sizes(workload, 6):
        if own := at(artifact, size):
            with SimulatedGpu(artifact.at(own), folder=objects) as machine:
                case = make_case(own, data="extreme", kind="cuda")
                verdict = verify_runs(Kernel(artifact.at(own), machine, device="cpu"), case)
            assert verdict.right, f"{own.key}: {verdict.reason}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "pass_", "wanted"),
    [
        ("nhwc", "fprop", {**STRAIGHT, "weights": "registers", "threads_c": 4}),
        ("nhwc", "fprop", {"stage": "shared", "weights": "shared", "threads_c": 2}),
        ("nhwc", "dgrad", {**LOOPS, "threads_c": 4}),
        ("nhwc", "wgrad", {"threads_c": 8, "threads_p": 4, "split_n": 2}),
        ("nchw", "fprop", {"planes": 4}),
        ("nchw", "wgrad", {"threads_c": 4, "threads_p": 16, "split_n": 2}),
    ],
    ids=str,
)
def test_right_with_every_whole_number_of_vectors(
    layout: Layout, pass_: Pass, wanted: dict[str, Value], objects: Path
) -> None:
    layer_of_all = layer(16, (14, 14), (3, 3), bias=pass_ != "dgrad", layout=layout, any_size=True, any_channels=True)
    workload = layer_of_all.for_pass(pass_)
    artifact = source_only(candidate(workload, {"vector_c": 2, "tile_h": 4, "tile_w": 2, **wanted}), SM_90)
    vector = artifact.least_channels
    assert (vector > 1) == (layout == "nhwc")
    for vectors, size in ((1, (9, 3)), (3, (1, 1)), (9, (5, 17)), (20, (3, 8))):
        own = dataclasses.replace(workload, channels=vectors * vector, input_size=size)
        verdict, report = verified(artifact, own, folder=objects)
        assert report.clean, f"{own.key}: {report.faults[0]}"
        assert verdict.right, f"{own.key}: {verdict.reason}"


@pytest.mark.parametrize(("case", "pass_"), in_turns(["k 3, stride 2", "contiguous"], PASSES))
def test_the_same_bits_as_a_kernel_of_one_size(case: str, pass_: Pass, objects: Path) -> None:
    """A gather sums in the same order at every size, the weight gradient at the one it was chosen for."""
    workload = of_pass(CASES[case][0], pass_)
    whole = source_only(candidate(workload, {"tile_h": 2, "tile_w": 2}), SM_90)
    for size in (workload.input_size, (9, 22)) if pass_ != "wgrad" else (workload.input_size,):
        own = dataclasses.replace(workload.with_input_size(size), batch=3)
        space = fitting(whole.candidate.config.template, own, SM_90).space(own, SM_90)
        one = source_only(Candidate(own, space.nearest(whole.candidate.config)), SM_90)
        if pass_ == "wgrad":
            assert one.candidate.config == whole.candidate.config
        inputs = operands(own, data="normal", seed=2)
        results = []
        for artifact in (one, whole.at(own)):
            with SimulatedGpu(artifact, folder=objects) as machine:
                results.append(Kernel(artifact, machine, device="cpu")(*inputs))
        assert torch.equal(*results)


def test_the_grid_follows_the_size() -> None:
    """It is known for each size, before the batch is; and passes between processes."""
    found = candidate(layer(12, (14, 14), (3, 3)), {**STRAIGHT, "tile_h": 4, "tile_w": 2})
    artifact = entry.decode(entry.encode(source_only(found, SM_90)))
    (launch,) = artifact.at(found.workload.with_input_size((37, 9))).launches
    config = found.config

    def blocks(size: int, *parts: int) -> int:
        return -(-size // math.prod(parts))

    across = blocks(9, config.tile_w, config.threads_w, config.vthread_w)
    down = blocks(37, config.tile_h, config.threads_h)
    assert across > 1 or down > 1
    assert launch.grid == (across * blocks(12, config.vector_c, config.threads_c), down, Extent())
    sizes = {each.name: each.value for each in launch.arguments if isinstance(each, Scalar)}
    assert sizes == {"n": Extent(), "h": 37, "w": 9, "oh": 37, "ow": 9}


def test_the_sources_are_pinned(golden: Golden) -> None:
    """By their digests: those of one size are there to be read."""
    strided, contiguous = layer(32, (8, 8), (3, 3), stride=(2, 2)), layer(8, (4, 8), (1, 3), layout="nchw")
    tile: dict[str, Value] = {"threads_c": 8, "threads_w": 2, "threads_h": 2, "unroll_h": 2, "threads_p": 4}
    strip: dict[str, Value] = {"planes": 8, "threads_h": 2, "tile_h": 1, "threads_w": 2, "tile_w": 2, "rows_ahead": 0}
    wanted = {**STRAIGHT, **TWO, **tile, "vector_c": 2, "vthread_w": 1, "weights": "registers"}
    found = {f"{pass_}, NHWC": candidate(of_pass(strided, pass_), wanted) for pass_ in PASSES}
    for pass_ in PASSES:
        own = {**strip, "threads_c": 2, "unroll_h": 1, "threads_p": 16}
        found[f"{pass_}, NCHW"] = candidate(contiguous.for_pass(pass_), own)
    golden("cuda_any_size.txt", digests({name: source_only(each, SM_90).source for name, each in found.items()}))


@pytest.mark.slow
@pytest.mark.parametrize("pass_", ["fprop", "dgrad"])
def test_the_inner_loop_is_as_lean(pass_: Pass) -> None:
    """A row of the source, times seven rows of the weights, where borders need no other tests."""
    workload = of_pass(layer(96, (56, 56), (7, 7), batch=64), pass_)
    config = fitting(f"cuda.{pass_}_nhwc", workload, SM_90).space(workload, SM_90).default
    found = []
    for own in (workload, workload.with_any_size()):
        artifact = build(Candidate(own, config), SM_90)
        (code,) = disassemble(artifact.cubin).values()
        assert artifact.resources["spill_bytes"] == 0
        found.append(max(loops(code), key=lambda loop: count("\n".join(loop), "FFMA|FMUL")))
    one, any_size = map(len, found)
    assert any_size <= 1.1 * one


def test_more_images_than_a_grid_has_planes() -> None:
    for layout, name in (("nhwc", "cuda.fprop_nhwc"), ("nchw", "cuda.fprop_nchw_strip")):
        workload = layer(8, (4, 4), (3, 3), batch=70_000, layout=layout).with_any_size()
        with pytest.raises(InvalidConfig, match="a grid of blocks has at most 65535 of 70000 images, or rows"):
            fitting(name, workload, SM_90)
