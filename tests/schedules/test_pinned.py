"""What templates generate is pinned by digests; `dwconv.show` prints programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import pytest

from dwconv.measure.simulator.simulate import source_only
from dwconv.problems.block import Block
from dwconv.problems.workload import Workload
from dwconv.schedules.space import Value
from dwconv.schedules.template import Candidate, all_templates, template, templates_for
from tests.fixtures import Golden, digests
from tests.schedules.cpu_layers import TARGET
from tests.schedules.cuda_layers import SM_90, layer

Pinned = dict[str, tuple[dict[str, object], Mapping[str, Value]]]
HALVED, FLOAT16, BFLOAT16 = {"stride": (2, 2)}, {"dtype": "float16"}, {"dtype": "bfloat16"}
BOTH_NORMS = {"block": Block.parse("bn+relu6,bn+relu6")}
MOBILE = {"channels": 144, "size": (56, 56), "batch": 8, **BOTH_NORMS}
LN = {"channels": 24, "size": (14, 14), "kernel": (5, 3), "bias": True, "block": Block.parse("none,ln@1e-06")}
LN_TILE = {"block_h": 7, "tile_h": 1, "tile_w": 2, "unroll": "kw"}

CPU: Pinned = {
    "fprop_nhwc": (
        {}, {"block_h": 4, "tile_h": 1, "tile_w": 2, "vectors_c": 1, "order": "chw", "block_c": 32, "unroll": "taps"},
    ),
    "dgrad_nhwc": (
        HALVED,
        {"block_h": 4, "tile_h": 2, "tile_w": 2, "vectors_c": 2, "order": "hwc", "block_c": 32, "unroll": "taps"},
    ),
    "wgrad_nhwc": (
        {},
        {"parallel": "images", "tasks": 4, "block_h": 4, "group_kh": 3, "tile_w": 2, "vectors_c": 1, "order": "hw",
         "unroll": "kw"},
    ),
    "fprop_nchw": (
        {}, {"stage": "scratch", "planes": 2, "block_h": 4, "tile_h": 2, "vectors_w": 1, "unroll": "kw"},
    ),
    "dgrad_nchw": (
        HALVED, {"stage": "none", "planes": 1, "block_h": 8, "tile_h": 2, "vectors_w": 1, "unroll": "taps"},
    ),
    "wgrad_nchw": (
        {}, {"parallel": "channels", "stage": "none", "block_h": 8, "group_kh": 2, "group_kw": 3, "tile_h": 2},
    ),
    "block_forward_nhwc": (MOBILE, {}),
    "block_backward_nhwc": (MOBILE, {}),
    "block_inference_nhwc": (MOBILE, {}),
    "layer_norm_forward_nhwc": (LN, LN_TILE),
    "layer_norm_backward_nhwc": (LN, {**LN_TILE, "strip_h": 4, "group_kh": 2, "dy_w": 1}),
}  # fmt: skip

SPLIT_PLANES = {"planes": 8, "images": 8, "thread_planes": 2, "split_n": 2, "pipeline": 2}
"""Two planes a thread, two turns under way, in two parts that the second kernel adds."""
PLANES_OF_3 = {"channels": 32, "size": (3, 3), "kernel": (2, 2), "batch": 64, **FLOAT16}
SPLIT = {"tile_h": 4, "unroll_h": 2, "tile_w": 2, "threads_c": 8, "threads_kh": 1, "blocks_per_sm": 2, "group_kh": 3,
         "edge": "zero"}  # fmt: skip
PIXELS = {"vector_c": 4, "threads_c": 8, "threads_w": 2, "threads_h": 2, "tile_h": 2, "tile_w": 2, "vthread_w": 1,
          "stage": "none", "unroll": "taps"}  # fmt: skip
STRIP = {"planes": 8, "threads_h": 2, "threads_w": 2, "rows_ahead": 1}
FOUR = {"channels": 4, "size": (8, 16)}
PARTS = {"vector_c": 2, "threads_c": 8, "threads_p": 4, "parts": 16, "split": 8, "blocks_per_sm": 1, "threads_h": 1,
         "threads_w": 4, "tile_h": 1, "tile_w": 1}  # fmt: skip
BLOCK = {"channels": 28, "batch": 3, "block": Block.parse("bn+relu6,bn+relu")}
FIVE = {"channels": 24, "size": (8, 16), "kernel": (5, 5), **FLOAT16}
TOEPLITZ = {"images": 8, "tile_h": 4, "tiles_w": 1, "interleave": 0, "lean": 0}
OF_CHANNELS = {**TOEPLITZ, "planes": 16, "warps_c": 8, "tile_w": 16, "warps_h": 1, "warps_w": 1, "taps_h": 5}
OF_WEIGHTS = {"images": 8, "tile_h": 4, "warps_w": 1, "split_n": 2}
AHEAD = {**OF_WEIGHTS, "warps_kh": 1, "planes": 16, "tiles_w": 1, "tile_w": 8, "pipeline": 1, "lean": 0}

CUDA: Pinned = {
    "fprop_nchw": (
        {**FOUR, **HALVED, "size": (16, 32)},
        {"planes": 2, "block_h": 8, "tile_h": 2, "threads_w": 8, "vthread_w": 2, "tile_w": 1, "stage": "shared",
         "pipeline": 1, "turns": 1, "unroll": "kernel"},
    ),
    "fprop_nchw pipeline": (
        {"channels": 16, "size": (8, 16), **FLOAT16},
        {"planes": 2, "block_h": 8, "tile_h": 4, "threads_w": 16, "vthread_w": 1, "pipeline": 3, "turns": 4},
    ),
    "fprop_nchw vectors": (
        {"channels": 64, "size": (8, 32), "kernel": (5, 5)},
        {"planes": 8, "block_h": 8, "tile_h": 2, "vthread_h": 1, "threads_w": 8, "vthread_w": 1, "tile_w": 4,
         "pipeline": 2, "turns": 4, "padding": "copied", "blocks_per_sm": 2},
    ),
    "fprop_nchw vectors, stride 2": (
        {"channels": 64, "size": (8, 32), "kernel": (5, 5), **HALVED},
        {"planes": 8, "block_h": 4, "tile_h": 2, "vthread_h": 1, "threads_w": 4, "vthread_w": 1, "tile_w": 2,
         "pipeline": 2, "turns": 4, "padding": "copied", "blocks_per_sm": 2},
    ),
    "dgrad_nchw": (
        {**FOUR, **FLOAT16},
        {"planes": 4, "block_h": 8, "tile_h": 4, "threads_w": 8, "vthread_w": 2, "stage": "shared"},
    ),
    "wgrad_nchw": ({}, {**SPLIT, "threads_p": 16, "split_n": 8}),
    "fprop_nchw_strip": ({**FOUR, "size": (4, 16), **FLOAT16}, {**STRIP, "tile_h": 2, "tile_w": 8}),
    "dgrad_nchw_strip": ({**FOUR, **HALVED}, {**STRIP, "tile_h": 4, "tile_w": 8}),
    "fprop_nchw_plane": (
        {"channels": 64, "size": (3, 3), "bias": True, **FLOAT16},
        {"planes": 64, "thread_planes": 2, "tile_h": 3, "tile_w": 3, "held": "float16"},
    ),
    "dgrad_nchw_plane": (
        {"channels": 20, "size": (6, 7), "stride": (2, 1), **BFLOAT16},
        {"planes": 48, "thread_planes": 1, "tile_h": 2, "tile_w": 7, "held": "float32"},
    ),
    "wgrad_nchw_plane": (PLANES_OF_3, {**SPLIT_PLANES, "tile_h": 2, "tile_w": 2}),
    "backward_nchw_plane": (
        {**PLANES_OF_3, "block": Block.parse("none,none")}, {**SPLIT_PLANES, "tile_h": 3, "tile_w": 3},
    ),
    "fprop_nchw_wide": (
        {**FOUR, "size": (8, 8), "kernel": (7, 7)}, {"planes": 4, "threads_h": 8, "threads_w": 1, "tile_w": 8},
    ),
    "dgrad_nchw_wide": (
        {**FOUR, "size": (8, 8), "kernel": (5, 5), **HALVED, **BFLOAT16},
        {"planes": 4, "threads_h": 4, "threads_w": 2, "tile_w": 4},
    ),
    "fprop_nchw_toeplitz": (
        {**FOUR, "kernel": (5, 5), "bias": True, **FLOAT16},
        {**TOEPLITZ, "planes": 1, "tile_w": 8, "warps_h": 1, "warps_w": 2, "taps_h": 2},
    ),
    "dgrad_nchw_toeplitz": (
        {**FOUR, "size": (4, 13), "kernel": (5, 5), **BFLOAT16},
        {**TOEPLITZ, "planes": 2, "images": 16, "tile_w": 16, "warps_h": 1, "warps_w": 1, "taps_h": 5},
    ),
    "wgrad_nchw_toeplitz": (
        {**FIVE, "channels": 4}, {**OF_WEIGHTS, "warps_kh": 2, "tiles_w": 1, "tile_w": 16, "lean": 1},
    ),
    "fprop_nhwc": ({}, {**PIXELS, "weights": "registers"}),
    "fprop_nhwc staged, a bias": (
        {"bias": True},
        {**PIXELS, "threads_c": 4, "threads_h": 4, "vthread_w": 2, "stage": "shared", "weights": "shared",
         "unroll": "kw"},
    ),
    "dgrad_nhwc": (HALVED, {**PIXELS, "weights": "shared"}),
    "wgrad_nhwc": ({}, {**SPLIT, "vector_c": 2, "threads_p": 8, "split_n": 4}),
    "fprop_nhwc_toeplitz": (FIVE, OF_CHANNELS),
    "fprop_nhwc_toeplitz interleaved": (FIVE, {**OF_CHANNELS, "interleave": 1, "lean": 1}),
    "dgrad_nhwc_toeplitz interleaved": (FIVE, {**OF_CHANNELS, "interleave": 1, "lean": 1}),
    "wgrad_nhwc_toeplitz": (FIVE, AHEAD),
    "wgrad_nhwc_toeplitz copied ahead": (FIVE, {**AHEAD, "images": 4, "tiles_w": 2, "pipeline": 2, "lean": 1}),
    "block_forward_nhwc": ({**BLOCK, "size": (9, 9), "kernel": (2, 2)}, PARTS),
    "block_backward_nhwc": ({**BLOCK, "kernel": (3, 1)}, PARTS),
}  # fmt: skip


def workload_of(name: str, changed: Mapping[str, object]) -> Workload:
    *_, pass_, layout = name.removeprefix("block_").removeprefix("layer_norm_").split()[0].split("_")[:2]
    fields = {"channels": 32, "size": (8, 8), "kernel": (3, 3), "pass_": pass_, "layout": layout, **changed}
    return layer(**fields)  # type: ignore[arg-type]


def on_cpu(name: str) -> str:
    """TVMScript of the first template that fits, in its default but for the knobs."""
    changed, knobs = CPU[name]
    workload = workload_of(name, changed)
    space = templates_for(workload, TARGET)[0].space(workload, TARGET)
    candidate = Candidate(workload, space.check({**space.default.to_dict(), **knobs}))
    return f"{candidate.schedule(TARGET).mod['main'].script()}\n"


@cache
def on_cuda(name: str) -> str:
    """CUDA C++ of the template of that name, in its default but for the knobs."""
    changed, knobs = CUDA[name]
    workload = workload_of(name, changed)
    space = template(f"cuda.{name.split()[0]}").space(workload, SM_90)
    return source_only(Candidate(workload, space.check({**space.default.to_dict(), **knobs})), SM_90).source


@pytest.mark.parametrize(("kind", "pinned", "generated"), [("cpu", CPU, on_cpu), ("cuda", CUDA, on_cuda)])
def test_programs(golden: Golden, kind: str, pinned: Pinned, generated: Callable[[str], str]) -> None:
    golden(f"{kind}.txt", digests({name: generated(name) for name in pinned}))


def test_every_template_is_pinned() -> None:
    pinned = {f"cpu.{name}" for name in CPU} | {f"cuda.{name.split()[0]}" for name in CUDA}
    assert pinned == set(all_templates())
