"""fprop and dgrad, NHWC, CUDA: right and clean in the simulator on odd shapes, spaces worth a search, lean code."""

from __future__ import annotations

import dataclasses
import math
import random
import re
from pathlib import Path

import pytest

from dwconv.errors import InvalidConfig
from dwconv.kernels import build
from dwconv.kernels.sass import disassemble
from dwconv.measure.simulator.simulate import source_only
from dwconv.problems.workload import DTYPES, DType, Pass, Workload
from dwconv.schedules.cuda.fprop_dgrad_nhwc import TEMPLATES as CHANNELS_LAST
from dwconv.schedules.cuda.fprop_dgrad_nhwc.patch import row_pitch
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import Candidate, estimated_us
from tests.machine_code import count, instructions, loops
from tests.schedules import cuda_layers
from tests.schedules.cuda_layers import SHAPES, SM_90, assert_right_and_clean, drawn
from tests.turns import alternating, every, in_turns

TEMPLATES = {template.pass_: template for template in CHANNELS_LAST}
PASSES: tuple[Pass, ...] = ("fprop", "dgrad")


def layer(channels: int, size: tuple[int, int], kernel: tuple[int, int], **other: object) -> Workload:
    return cuda_layers.layer(channels, size, kernel, layout="nhwc", **other)


def square(channels: int, size: int, kernel: int, stride: int = 1, **other: object) -> Workload:
    return layer(channels, (size, size), (kernel, kernel), stride=(stride, stride), batch=64, **other)


def space_of(workload: Workload) -> ConfigSpace:
    return TEMPLATES[workload.pass_].space(workload, SM_90)


def config_of(workload: Workload, **knobs: object) -> Config:
    space = space_of(workload)
    return space.check({**space.default.to_dict(), **knobs})


def source_of(workload: Workload, **knobs: object) -> str:
    return source_only(Candidate(workload, config_of(workload, **knobs)), SM_90).source


# -- numbers ---------------------------------------------------------------------------------------------------------


WAYS_THROUGH_THE_TAPS: list[dict[str, object]] = [
    {"unroll": "taps", "weights": "registers"},
    {"unroll": "taps", "weights": "shared"},
    {"unroll": "kw", "weights": "shared"},
    {"unroll": "kw", "weights": "shared", "vector_c": 1, "threads_c": 8, "threads_h": 2, "tile_h": 4},
    {"unroll": "taps", "weights": "registers", "stage": "shared", "vthread_w": 2},
    {"unroll": "taps", "weights": "shared", "vthread_w": 2},
    {"unroll": "kw", "weights": "shared", "stage": "shared", "threads_c": 8, "threads_w": 1, "vthread_w": 4},
]


@pytest.mark.parametrize(("knobs", "pass_"), in_turns(WAYS_THROUGH_THE_TAPS, PASSES), ids=str)
def test_every_way_to_go_through_the_taps(knobs: dict[str, object], pass_: Pass, objects: Path) -> None:
    workload = layer(32, (15, 16), (3, 3), stride=(2, 2), pass_=pass_)
    blocks = {
        "vector_c": 4, "threads_c": 4, "threads_w": 2, "threads_h": 4, "tile_h": 2, "tile_w": 2,
        "vthread_w": 1, "stage": "none",
    }  # fmt: skip
    assert_right_and_clean(workload, space_of(workload).check({**blocks, **knobs}), objects)


@pytest.mark.parametrize(("pass_", "dtype"), in_turns(PASSES, ["float32", "bfloat16"]))
@pytest.mark.parametrize(
    "shape", every(2, ["asymmetric padding, stride 2", "dilation and stride", "a bias", "multiplier 2"])
)
def test_a_staged_source_on_odd_shapes(shape: str, dtype: DType, pass_: Pass, objects: Path) -> None:
    workload = dataclasses.replace(SHAPES[shape], layout="nhwc").for_pass(pass_)
    workload = dataclasses.replace(workload, dtype=dtype)
    assert_right_and_clean(workload, drawn(workload, TEMPLATES[pass_], stage="shared"), objects)


@pytest.mark.slow
def test_kernels_too_large_for_shared_memory(objects: Path) -> None:
    workload = layer(1, (5, 6), (31, 31), multiplier=64, batch=1, pass_="dgrad")
    config = space_of(workload).default
    assert config.weights == "global"
    assert_right_and_clean(workload, config, objects)


# -- code ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize(
    ("dtype", "vector", "word"), [("float32", 4, "float4"), ("float16", 8, "uint4"), ("bfloat16", 8, "uint4")]
)
def test_vectors_of_16_bytes(dtype: DType, vector: int, word: str, pass_: Pass) -> None:
    workload = square(64, 14, 3, dtype=dtype, pass_=pass_)
    block = {"vector_c": vector, "threads_c": 8, "threads_w": 7, "threads_h": 1, "vthread_w": 1, "stage": "none"}
    source = source_of(workload, **block, tile_h=7, tile_w=2, weights="registers", unroll="taps")
    read, written = ("x", "y") if pass_ == "fprop" else ("dy", "dx")
    for tensor in (read, "w", written):
        assert f"*({word}*)({tensor}_ptr" in source
        assert f"{tensor}_ptr[" not in source


def test_patches_are_copied_16_bytes_at_a_time() -> None:
    knobs = {"vector_c": 4, "threads_c": 4, "threads_w": 2, "threads_h": 4, "tile_h": 2, "tile_w": 2, "vthread_w": 2}
    source = source_of(layer(32, (8, 8), (3, 3), bias=True), **knobs, stage="shared", weights="shared", unroll="kw")
    assert re.search(r"cp\.async\.cg\.shared\.global \[%0\], \[%1\], 16, %2;", source), "16 bytes, or zeros"


def test_a_strided_gradient_has_live_taps_only() -> None:
    """Of 9 taps in 4 phases 9 products are left, of 36."""
    workload = square(32, 16, 3, 2, pass_="dgrad")
    strip = {"tile_h": 2, "tile_w": 2, "vector_c": 1, "weights": "registers", "unroll": "taps"}
    artifact = build(Candidate(workload, config_of(workload, **strip)), SM_90)
    (code,) = disassemble(artifact.cubin).values()
    assert count(code, "FFMA|FMUL|FADD") == 9


LEAN = [
    (square(144, 56, 3), 0.35), (square(576, 14, 3), 0.35), (square(960, 7, 3), 0.6),
    (square(192, 28, 3, dtype="float16"), 0.55), (square(960, 7, 3, dtype="bfloat16"), 0.9),
    (square(96, 112, 3, 2), 0.35), (square(240, 28, 5), 0.6),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lean", "pass_"),
    alternating(LEAN, PASSES, quick_of=2),
    ids=lambda value: value[0].key if isinstance(value, tuple) else None,
)
def test_defaults_leave_time_for_the_memory(lean: tuple[Workload, float], pass_: Pass) -> None:
    """Instructions a result, over what a GPU issues while its memory moves the data; no register is spilt."""
    workload, share = lean[0].for_pass(pass_), lean[1]
    config = space_of(workload).default
    artifact = build(Candidate(workload, config), SM_90)
    assert artifact.resources["spill_bytes"] == artifact.resources["stack_bytes"] == 0
    (launch,) = artifact.launches
    code = disassemble(artifact.cubin)[launch.kernel]
    assert not loops(code), "straight code: each instruction is run once"
    threads = math.prod(launch.block) * launch.grid[0].at(workload.batch)  # type: ignore[union-attr]
    results = math.prod(workload.output_shape if pass_ == "fprop" else workload.input_shape)
    issued = len(instructions(code)) * threads / results
    assert issued / (55 / 8 * workload.bytes / results) <= share


@pytest.mark.parametrize(("dtype", "pass_"), alternating(DTYPES, PASSES))
@pytest.mark.parametrize("kernel", every(2, [31, 7]))
def test_large_kernels_spill_nothing(kernel: int, dtype: DType, pass_: Pass) -> None:
    workload = square(128, 28, kernel, dtype=dtype, pass_=pass_)
    artifact = build(Candidate(workload, space_of(workload).default), SM_90)
    assert artifact.resources["spill_bytes"] == artifact.resources["stack_bytes"] == 0


# -- spaces ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pass_", PASSES)
def test_there_is_something_to_search(pass_: Pass) -> None:
    space = space_of(square(96, 56, 7, dtype="float16", pass_=pass_))
    rng = random.Random(0)
    legal = sum(
        space.why_illegal(Config(space.template, tuple((knob.name, rng.choice(knob.values)) for knob in space.knobs)))
        is None
        for _ in range(400)
    )
    assert space.size * legal / 400 > 1000


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("size", "kernel"), [(28, 31), (56, 51)])
def test_a_default_of_many_taps_is_no_last_resort(size: int, kernel: int, dtype: DType) -> None:
    """The weights of a line of channels would be more than shared memory has."""
    workload, rng = square(128, size, kernel, dtype=dtype), random.Random(0)
    space = space_of(workload)
    drawn = (space.sample(rng) for _ in range(60))
    least_us = min(estimated_us(workload, config, SM_90) for config in drawn if config is not None)
    assert estimated_us(workload, space.default, SM_90) < 1.5 * least_us


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"weights": "registers", "unroll": "kw"}, "indexed by a loop"),
        ({"threads_h": 14, "threads_w": 14}, "more than 1024 threads"),
        ({"threads_h": 1, "threads_w": 1, "threads_c": 1}, "fewer than 32 threads"),
        ({"tile_h": 28, "threads_h": 4}, "outputs wanted"),
        ({"tile_h": 28, "tile_w": 14, "threads_w": 4, "threads_h": 1}, "instructions unrolled"),
    ],
)
def test_illegal_configurations_say_why(knobs: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        config_of(square(144, 56, 3), **knobs)


@pytest.mark.parametrize(("lane_bytes", "turns"), [(2, 1), (16, 4)])
def test_rows_of_a_patch_are_so_far_apart_that_lanes_meet_in_no_bank(lane_bytes: int, turns: int) -> None:
    """32 lanes, eight to a row, in rows that without more bytes would all begin in the same bank."""
    apart = (lane_bytes, 0)
    pitch, taken = row_pitch(256, step=16, lane_bytes=lane_bytes, threads=(4, 8, 1), rows_apart=1, bytes_apart=apart)
    assert pitch >= 256 and taken.taken == taken.least == turns
