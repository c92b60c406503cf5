"""Block tiles on CUDA, NCHW: right and clean in the simulator for every knob, alone and together; vectors copied and
read as vectors."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from dwconv.measure.simulator.simulate import source_only
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.fprop_dgrad_nchw.cut import BlockTile, spread_copies
from dwconv.schedules.cuda.fprop_dgrad_nchw.estimate import (
    COPY_INSTRUCTIONS,
    DIVISION,
    _copy_instructions,
    _lines_of_move,
    _lines_of_weights,
    _turns_of_read,
    reads_of_row,
    stored_lanes,
)
from dwconv.schedules.cuda.gpu.memory import turns_of_threads
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate
from tests.schedules.cuda_layers import SHAPES, SM_90, TEMPLATES, assert_right_and_clean, fitted, layer
from tests.turns import every

AHEAD = {"stage": "shared", "pipeline": 2, "turns": 4}
MAPS = {
    "a bias": layer(32, (16, 32), (3, 3), bias=True),
    "no edge": layer(16, (20, 28), (5, 5), padding=((0, 0), (0, 0))),
    "dilation": layer(32, (14, 28), (7, 3), padding=((3, 3), (2, 2)), dilation=(1, 2)),
    "7 × 7 map": layer(64, (7, 7), (5, 5), batch=1),
    "stride 2": layer(32, (16, 32), (3, 3), stride=(2, 2), bias=True),
    "stride 1 and 2": layer(16, (12, 24), (5, 5), stride=(1, 2), padding=((4, 4), (0, 0)), dilation=(2, 1)),
    "stride 3": layer(32, (25, 36), (5, 3), stride=(3, 3), padding=((1, 2), (1, 1))),
    "7 × 7 map, stride 2": layer(64, (7, 7), (5, 5), stride=(2, 2), batch=1),
}
"""Of which several tiles are an image's, as copies ahead need it."""
NARROW = {"planes": 4, "block_h": 8, "tile_h": 2, "threads_w": 32, "vthread_w": 1, "tile_w": 1}
STRIDED = {**NARROW, "vthread_h": 2, "threads_w": 16, "vthread_w": 2}
FOURS = {**NARROW, "threads_w": 8, "tile_w": 4}
SEVEN = {"planes": 8, "block_h": 14, "tile_h": 7, "threads_w": 7, "vthread_w": 1, "tile_w": 4}
TWOS = {**NARROW, "threads_w": 8, "tile_w": 2}
"""At stride 2 a vector of 4 elements is 2 outputs apart from the next."""
ROWS = {"threads_w": 1, "vthread_w": 1, "unroll": "row", "padding": "copied"}


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
            ("stride 2", "fprop", "float32", TWOS),
            ("stride 2", "fprop", "float32", {**TWOS, "threads_w": 4, "pipeline": 3, "padding": "copied"}),
            ("stride 2", "fprop", "float32", {**TWOS, "threads_w": 3, "tile_w": 6}),
            ("stride 2", "fprop", "float32", {**TWOS, "threads_w": 2, "vthread_w": 4, "blocks_per_sm": 2}),
            ("stride 2", "fprop", "float32", {**STRIDED, "threads_w": 8, "padding": "copied"}),
            ("stride 2", "fprop", "float16", {**TWOS, "threads_w": 4, "tile_w": 4}),
            ("stride 1 and 2", "fprop", "float32", {**TWOS, "block_h": 12, "tile_h": 3, "threads_w": 5}),
            ("stride 1 and 2", "fprop", "float16", {**ROWS, "planes": 16, "block_h": 3, "tile_h": 1, "tile_w": 12}),
            ("stride 3", "fprop", "float32", {**ROWS, "planes": 8, "block_h": 8, "tile_h": 2, "tile_w": 12}),
            ("7 × 7 map, stride 2", "fprop", "float32", {**NARROW, "planes": 16, "block_h": 4, "threads_w": 4}),
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
            ("28 × 28 map", {"planes": 4, "block_h": 28, "vthread_h": 1, "tile_h": 7, "threads_w": 4, "vthread_w": 8}),
            ("28 × 28 map", {"planes": 1, "block_h": 32, "vthread_h": 8, "tile_h": 2, "threads_w": 28}),
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


def test_at_stride_2_vectors_lie_as_many_outputs_apart_as_they_hold() -> None:
    """2 outputs of a row read 2 vectors in float32, 6 of them 4."""
    workload = layer(96, (56, 56), (3, 3), stride=(2, 2), batch=64)
    tile = {**TILE, "planes": 1}
    source = source_of(workload, **tile, tile_w=2)
    loads = re.findall(r"window_local\w* \+ \d+\) = \*\(float4\*\)\(staged_shared_ptr", source)
    patches, rows = 2, 7  # of 4 rows of outputs, those between, which the compiler leaves out, too
    assert len(loads) == patches * 3 * rows * 2
    assert "cp.async.cg.shared.global" in source and "*(float2*)(y_ptr" in source
    assert not re.search(r"[^*]\(staged_shared_ptr\[", source)
    space, found = TEMPLATES["cuda.fprop_nchw"].space(workload, SM_90), {}
    for tile_w, threads_w in ((1, 28), (2, 14), (4, 7), (6, 5)):
        config = space.check({**space.default.to_dict(), **tile, "tile_w": tile_w, "threads_w": threads_w})
        *_, columns = BlockTile.of(config).reads_apart(workload)
        found[tile_w] = columns, reads_of_row(workload, config), stored_lanes(workload, config)
    assert found == {1: (2, 3, 1), 2: (4, 2, 2), 4: (8, 3, 4), 6: (12, 4, 1)}, "of 30 columns 2 are cut off"


@pytest.mark.parametrize(("tile_w", "threads_w", "degree"), [(1, 16, 2), (2, 16, 1), (4, 8, 2), (6, 8, 1)])
def test_conflicts_at_stride_2_are_those_that_the_simulator_counts(
    tile_w: int, threads_w: int, degree: int, objects: Path
) -> None:
    """Threads side by side read every second word; or vectors, one beside the other, or every second or third one."""
    columns = threads_w * tile_w * (2 if tile_w == 1 else 1)
    workload = layer(8, (32, 2 * columns), (3, 3), stride=(2, 2), batch=1)
    space = TEMPLATES["cuda.fprop_nchw"].space(workload, SM_90)
    tile = {**TWOS, "planes": 1, "block_h": 16, "vthread_w": 1 if tile_w > 1 else 2}
    config = space.check({**space.default.to_dict(), **AHEAD, **tile, "tile_w": tile_w, "threads_w": threads_w})
    counts = assert_right_and_clean(workload, config, objects).counts
    works = TEMPLATES["cuda.fprop_nchw"].works
    assert works is not None
    (work,) = works(workload, config, SM_90)
    assert work.transactions_a_request == pytest.approx(counts.wavefronts_per_ideal, rel=0.1)
    assert _turns_of_read(workload, config, BlockTile.of(config)).taken == degree * (4 if tile_w > 1 else 1)


@pytest.mark.parametrize(
    ("changed", "tile_w", "copied"),
    [
        ({}, 2, True),
        ({"stride": (2, 2), "dilation": (2, 2)}, 2, False),  # of 4 elements the first and the third
        ({"stride": (2, 2), "dilation": (2, 2)}, 1, False),
        ({"kernel": (3, 1)}, 2, False),
        ({"kernel": (3, 2)}, 2, True),
        ({"stride": (4, 4), "kernel": (2, 2)}, 1, False),
        ({"stride": (4, 4), "kernel": (4, 4)}, 1, True),
    ],
)
def test_only_vectors_that_are_needed_from_the_first_to_the_last_element_are_copied(
    changed: dict[str, object], tile_w: int, copied: bool
) -> None:
    workload = dataclasses.replace(
        layer(32, (32, 64), (3, 3), stride=(2, 2), padding=((0, 0), (0, 0))),
        **changed,  # type: ignore[arg-type]
    )
    space = TEMPLATES["cuda.fprop_nchw"].space(workload, SM_90)
    threads_w = next(width for width in space.knobs[3].values if isinstance(width, int) and width >= 4)
    tile = {**NARROW, **AHEAD, "threads_w": threads_w, "tile_w": tile_w}
    reason = space.why_illegal(Config.of("cuda.fprop_nchw", **{**dict(space.default.values), **tile})) or ""
    assert ("no tap meets the first or the last element" in reason) == (not copied), reason


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


@pytest.mark.parametrize(("width", "kernel"), [(56, 7), (28, 3), (112, 5), (36, 5)])
def test_the_lines_of_rows_that_are_copied_as_a_whole_are_those_that_a_warp_asks_for(width: int, kernel: int) -> None:
    """Such rows lie one behind the other: the next row begins in the line that this row ends in."""
    workload = layer(1, (64, width), (kernel, kernel))
    tile = BlockTile(planes=1, rows=64, columns=width, threads_h=1, threads_w=32, copies_ahead=True)
    rows, vectors, before = tile.copied_patch(workload)
    first = kernel // 2 + before
    at = [(row * width + 4 * vector - first, 4 * vector - first) for row in range(rows) for vector in range(vectors)]
    warps = [at[start : start + 32] for start in range(0, len(at) - 31, 32)]
    asked = [len({element * 4 // 128 for element, column in warp if 0 <= column < width}) for warp in warps]
    counted = sum(asked) / len(asked)
    assert counted <= _lines_of_move(workload, tile, 4, columns=width + kernel - 1) < 1.2 * counted
    narrow = dataclasses.replace(tile, columns=width // 2)
    assert _lines_of_move(workload, narrow, 4, columns=width // 2 + kernel - 1) > 1.2 * counted


def test_dividing_costs_where_the_vectors_of_a_row_or_of_a_plane_are_no_power_of_two() -> None:
    """Of 56 columns and the halo of a 7 × 7 kernel 16 vectors, of 28 columns 9; 16 rows of 16 are a power of two."""
    cuts = ((1, 28, 56), (1, 28, 28), (2, 10, 56), (2, 28, 56), (2, 28, 28))
    tiles = [
        BlockTile(planes=planes, rows=rows, columns=columns, threads_h=1, threads_w=32, copies_ahead=True)
        for planes, rows, columns in cuts
    ]
    divisions = [(_copy_instructions(LAYER, tile) - COPY_INSTRUCTIONS) / DIVISION for tile in tiles]
    assert divisions == [0, 1, 0, 1, 2]


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
