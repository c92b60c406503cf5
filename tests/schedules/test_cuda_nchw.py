"""Block tiles on CUDA, NCHW: right and clean in the simulator for every knob, alone and together; vectors copied and
read as vectors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dwconv.measure.simulator.simulate import source_only
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.fprop_dgrad_nchw.cut import BlockTile, spread_copies
from dwconv.schedules.cuda.fprop_dgrad_nchw.estimate import _lines_of_weights
from dwconv.schedules.cuda.gpu.memory import turns_of_threads
from dwconv.schedules.template import Candidate
from tests.schedules.cuda_layers import SHAPES, SM_90, TEMPLATES, assert_right_and_clean, fitted, layer
from tests.turns import every

AHEAD = {"stage": "shared", "pipeline": 2, "turns": 4}
MAPS = {
    "a bias": layer(32, (16, 32), (3, 3), bias=True),
    "no edge": layer(16, (20, 28), (5, 5), padding=((0, 0), (0, 0))),
    "dilation": layer(32, (14, 28), (7, 3), padding=((3, 3), (2, 2)), dilation=(1, 2)),
    "7 × 7 map": layer(64, (7, 7), (5, 5), batch=1),
}
"""Of which several tiles are an image's, as copies ahead need it."""
NARROW = {"planes": 4, "block_h": 8, "tile_h": 2, "threads_w": 32, "vthread_w": 1, "tile_w": 1}
STRIDED = {**NARROW, "vthread_h": 2, "threads_w": 16, "vthread_w": 2}
FOURS = {**NARROW, "threads_w": 8, "tile_w": 4}
SEVEN = {"planes": 8, "block_h": 14, "tile_h": 7, "threads_w": 7, "vthread_w": 1, "tile_w": 4}


@pytest.mark.parametrize(
    ("shape", "pass_", "dtype", "knobs"),
    every(
        3,
        [
            ("a bias", "fprop", "float32", FOURS),
            ("a bias", "fprop", "float32", {**NARROW, "padding": "copied"}),
            ("a bias", "fprop", "float32", {**STRIDED, "blocks_per_sm": 2}),
            ("a bias", "fprop", "float32", {**FOURS, "pipeline": 3, "blocks_per_sm": 4}),
            ("a bias", "fprop", "float32", {**FOURS, "threads_w": 4, "vthread_w": 2, "padding": "copied"}),
            ("a bias", "fprop", "float32", {**FOURS, "threads_w": 4, "tile_w": 8}),
            ("a bias", "fprop", "float32", {**FOURS, "threads_w": 3, "tile_w": 12}),
            ("a bias", "fprop", "float16", {**FOURS, "threads_w": 4, "tile_w": 8}),
            ("a bias", "fprop", "float16", {**FOURS, "planes": 8, "threads_w": 1, "tile_w": 40}),
            ("a bias", "fprop", "float16", {**STRIDED, "padding": "copied"}),
            ("no edge", "fprop", "float32", {**FOURS, "threads_w": 6}),
            ("no edge", "dgrad", "float32", {**SEVEN, "block_h": 10, "tile_h": 5}),
            ("no edge", "dgrad", "float32", {**SEVEN, "block_h": 10, "tile_h": 2, "threads_w": 3, "tile_w": 12}),
            ("dilation", "fprop", "float32", SEVEN),
            ("dilation", "fprop", "float32", {**SEVEN, "tile_h": 2, "threads_w": 1, "tile_w": 28, "unroll": "row"}),
            ("dilation", "dgrad", "float32", {**SEVEN, "unroll": "row", "padding": "copied"}),
            ("7 × 7 map", "fprop", "float32", {**SEVEN, "block_h": 7, "threads_w": 4, "tile_w": 2, "planes": 16}),
            ("7 × 7 map", "dgrad", "float32", {**SEVEN, "block_h": 7, "tile_h": 1, "tile_w": 1, "padding": "copied"}),
        ],
    ),
)
def test_copied_ahead(shape: str, pass_: str, dtype: str, knobs: dict[str, object], objects: Path) -> None:
    template = TEMPLATES[f"cuda.{pass_}_nchw"]
    workload = fitted(MAPS[shape], template, dtype)  # type: ignore[arg-type]
    assert workload is not None
    space = template.space(workload, SM_90)
    assert_right_and_clean(workload, space.check({**space.default.to_dict(), **AHEAD, **knobs}), objects)


FETCHED = {"stage": "shared", "pipeline": 1, "turns": 1, "tile_w": 1, "vthread_w": 1}


@pytest.mark.parametrize(
    ("shape", "knobs"),
    every(
        3,
        [
            ("odd", {"planes": 1, "block_h": 5, "vthread_h": 1, "tile_h": 1, "threads_w": 13, "padding": "none"}),
            ("asymmetric padding, stride 2", {"planes": 20, "block_h": 2, "vthread_h": 2, "tile_h": 1, "threads_w": 7}),
            ("multiplier 2", {"planes": 4, "block_h": 2, "vthread_h": 2, "tile_h": 1, "threads_w": 11}),
            ("7 × 7 kernel", {"block_h": 14, "vthread_h": 2, "tile_h": 7, "threads_w": 14, "planes": 4}),
            ("7 × 7 kernel", {"planes": 4, "block_h": 7, "tile_h": 1, "threads_w": 14, "blocks_per_sm": 2}),
        ],
    ),
)
def test_fetched_by_threads(shape: str, knobs: dict[str, object], objects: Path) -> None:
    template = TEMPLATES["cuda.fprop_nchw"]
    workload = fitted(SHAPES[shape], template, "float32")
    assert workload is not None
    space = template.space(workload, SM_90)
    assert_right_and_clean(workload, space.check({**space.default.to_dict(), **FETCHED, **knobs}), objects)


LAYER = layer(96, (56, 56), (7, 7), batch=64)
TILE = {"planes": 2, "block_h": 28, "tile_h": 4, "threads_w": 14, "vthread_w": 1, "unroll": "kernel", **AHEAD}


def source_of(workload: Workload, **knobs: object) -> str:
    space = TEMPLATES["cuda.fprop_nchw"].space(workload, SM_90)
    config = space.check({**space.default.to_dict(), **knobs})
    return source_only(Candidate(workload, config), SM_90).source


def test_a_row_is_read_once_in_vectors_for_all_neighbouring_outputs() -> None:
    """16 bytes are copied, loaded and stored at a time: of 4 outputs side by side, 3 vectors for each kernel row."""
    source = source_of(LAYER, **TILE, tile_w=4)
    loads = re.findall(r"window_local\w* \+ \d+\) = \*\(float4\*\)\(staged_shared_ptr", source)
    patches = 2  # one of the loop, and the last one
    assert len(loads) == patches * 7 * 4 * 3
    assert "cp.async.cg.shared.global" in source and "*(float4*)(y_ptr" in source
    assert not re.search(r"[^*]\(staged_shared_ptr\[", source)
    narrow = source_of(LAYER, **TILE, tile_w=1)
    assert "window" not in narrow


def test_padding_keeps_copied_rows_apart() -> None:
    """8 threads of every second row, which lie 64 words apart, meet in a bank; 68 words apart they do not."""
    threads = {"threads": (1, 4, 8), "steps": (2, 1), "unit": 4, "lanes": 1, "itemsize": 4}
    row, plane = spread_copies(64, 58, **threads)
    assert row == 68 and plane == 58 * 68
    workload = layer(96, (56, 56), (3, 3), batch=64)
    space = TEMPLATES["cuda.fprop_nchw"].space(workload, SM_90)
    knobs = {"planes": 1, "block_h": 56, "tile_h": 2, "threads_w": 8, "vthread_w": 1, "pipeline": 2, "turns": 4}
    work = TEMPLATES["cuda.fprop_nchw"].works
    assert work is not None
    found = {}
    for padding in ("copied", "fetched"):
        config = space.check({**space.default.to_dict(), **knobs, "padding": padding})
        (found[padding],) = work(workload, config, SM_90)
        assert BlockTile.of(config).copied_bytes(workload) * 2 == found[padding].shared_bytes
    assert found["copied"].conflict_turns < 0.5 * found["fetched"].conflict_turns
    assert found["copied"].shared_bytes > found["fetched"].shared_bytes


@pytest.mark.parametrize(("dtype", "widths"), [("float32", {12, 20, 28}), ("float16", {24, 56})])
def test_wide_tiles_lie_in_different_banks(dtype: str, widths: set[int]) -> None:
    """Threads beside each other read vectors at the same time: those of an odd number of vectors meet nowhere."""
    workload = layer(96, (56, 56), (7, 7), batch=64, dtype=dtype)
    space = TEMPLATES["cuda.fprop_nchw"].space(workload, SM_90)
    values = {knob.name: knob.values for knob in space.knobs}
    assert set(values["tile_w"]) - {1, 2, 4, 8} == widths
    itemsize = 4 if dtype == "float32" else 2
    for tile_w in widths:
        assert -(-56 // tile_w) in values["threads_w"]
        places = tuple(thread * tile_w for thread in range(8))
        turns = turns_of_threads(places, itemsize=itemsize, lanes=16 // itemsize)
        assert turns.taken == turns.least == 1


def test_the_estimate_knows_what_is_copied_ahead_and_counts_weights() -> None:
    work = TEMPLATES["cuda.fprop_nchw"].works
    space = TEMPLATES["cuda.fprop_nchw"].space(LAYER, SM_90)
    assert work is not None
    found = {
        pipeline: work(
            LAYER,
            space.check({**space.default.to_dict(), **TILE, **AHEAD, "pipeline": pipeline, "turns": turns}),
            SM_90,
        )
        for pipeline, turns in ((1, 1), (2, 4))
    }
    assert [each.loads_ahead for (each,) in found.values()] == [False, True]
    alone = BlockTile(planes=1, rows=8, columns=56, threads_h=2, threads_w=14)
    four = BlockTile(planes=4, rows=8, columns=56, threads_h=1, threads_w=8)
    large = layer(96, (56, 56), (31, 31))
    assert _lines_of_weights(large, alone) == 1, "a warp in one plane wants one weight at a time"
    assert _lines_of_weights(large, four) == 4, "weights of large kernels lie in different lines"
    assert _lines_of_weights(layer(96, (56, 56), (3, 3)), four) == 1 + 3 * 36 / 128
