"""The NCHW templates of CUDA without TVM: their spaces, their vectors, and what they know of edges when compiling."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dwconv.problems.target import CudaTarget, parse_target
from dwconv.problems.workload import DTYPES, Workload
from dwconv.schedules.cuda.emit.sliding_sum import Reach
from dwconv.schedules.cuda.gather_nchw.cut import PlanesCut, RowsCut
from dwconv.schedules.cuda.gpu.memory import aligned_lanes, exact_vectors, least_vectors, spread_vectors
from dwconv.schedules.emit import all_of
from dwconv.schedules.taps import Axis
from dwconv.schedules.template import all_templates
from tests.schedules.test_cuda import layer
from tests.turns import every

SM_90 = parse_target("cuda:sm_90")
assert isinstance(SM_90, CudaTarget)
STRIPS = ["cuda.fprop_nchw_strip", "cuda.dgrad_nchw_strip"]
PLANES = ["cuda.fprop_nchw_plane", "cuda.dgrad_nchw_plane"]
WIDE = ["cuda.fprop_nchw_wide", "cuda.dgrad_nchw_wide"]


def of(name: str, channels: int, size: int, kernel: int, stride: int = 1, **other: object) -> Workload:
    """A layer in the pass of the template ``name``."""
    return layer(channels, size, kernel, stride, **{"pass_": all_templates()[name].pass_, **other})


# -- spaces --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STRIPS)
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "at_least"),
    every(2, [(14, 3, 2, 100), (56, 3, 1, 1000), (7, 3, 1, 100), (28, 7, 1, 300)]),
)
def test_there_are_strips_to_search(name: str, size: int, kernel: int, stride: int, at_least: int) -> None:
    workload = of(name, 144, size, kernel, stride)
    legal = sum(1 for _ in all_templates()[name].space(workload, SM_90))
    assert at_least <= legal <= 20_000


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "at_least"), every(2, [(28, 13, 2, 200), (56, 31, 1, 1000), (7, 7, 1, 50)])
)
def test_there_are_wide_rows_to_search(name: str, size: int, kernel: int, stride: int, at_least: int) -> None:
    workload = of(name, 144, size, kernel, stride)
    legal = sum(1 for _ in all_templates()[name].space(workload, SM_90))
    assert at_least <= legal <= 20_000


@pytest.mark.parametrize("name", PLANES)
@pytest.mark.parametrize(("size", "kernel", "stride", "at_least"), [(14, 3, 1, 100), (7, 3, 1, 100), (7, 7, 1, 50)])
def test_there_are_planes_to_search(name: str, size: int, kernel: int, stride: int, at_least: int) -> None:
    workload = of(name, 144, size, kernel, stride)
    legal = sum(1 for _ in all_templates()[name].space(workload, SM_90))
    assert at_least <= legal <= 20_000


@pytest.mark.parametrize("name", PLANES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [7, 14])
def test_planes_are_copied_in_whole_vectors_and_no_bank_is_met_twice(name: str, dtype: str, size: int) -> None:
    workload = of(name, 384, size, 3, dtype=dtype, batch=64)
    default = all_templates()[name].space(workload, SM_90).default
    tiles = PlanesCut.of(workload, default)
    width = {"float32": 4, "float16": 2, "bfloat16": 2}
    for held in (tiles.source, tiles.result):
        assert held.copied_lanes * width[tiles.held] == 16, "the widest of shared memory"
    assert tiles.layout.turns == 1


def test_planes_are_for_rows_shorter_than_a_line_and_for_one_source_a_result() -> None:
    template = all_templates()[PLANES[0]]
    assert "rows" in str(template.misfit(of(PLANES[0], 96, 56, 3), SM_90))
    assert "multiplier" in str(template.misfit(of(PLANES[0], 96, 14, 3, multiplier=2), SM_90))
    assert template.misfit(of(PLANES[0], 96, 14, 3), SM_90) is None


@pytest.mark.parametrize("name", STRIPS)
def test_strips_are_as_wide_as_a_vector_and_several_planes_share_a_block(name: str) -> None:
    space = all_templates()[name].space
    assert space(of(name, 144, 56, 3), SM_90).default.tile_w == 4
    assert space(of(name, 144, 56, 3, dtype="float16", batch=64), SM_90).default.tile_w == 8
    small = space(of(name, 960, 7, 3), SM_90).default
    assert small.tile_h == 7 and small.planes >= 16


def test_wide_rows_of_a_small_map_are_whole() -> None:
    workload = of(WIDE[0], 256, 28, 31)
    default = all_templates()[WIDE[0]].space(workload, SM_90).default
    tiles = RowsCut.of(workload, default)
    assert (tiles.tile_w, tiles.column_tiles) == (28, 1)
    assert 2 * tiles.shared_bytes < SM_90.shared_bytes_per_sm


@pytest.mark.parametrize("name", [*STRIPS, *WIDE])
def test_legal_configurations_fit_the_hardware(name: str) -> None:
    workload = of(name, 128, 28, 5, 2)
    space = all_templates()[name].space(workload, SM_90)
    rng = random.Random(0)
    for _ in range(50):
        config = space.sample(rng)
        assert config is not None
        assert 32 <= config.planes * config.threads_h * config.threads_w <= SM_90.threads_per_block
        assert config.threads_h <= 64, "CUDA allows 64 threads on z"
        if name.startswith("cuda.dgrad"):
            assert config.tile_w % 2 == 0, "a tile holds whole periods of the taps"


# -- vectors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "pitch", "itemsize", "expected"),
    [(4, 56, 4, 4), (8, 56, 2, 8), (8, 28, 2, 4), (4, 57, 4, 1), (2, 14, 4, 2), (0, 28, 4, 4)],
)
def test_vectors_are_as_wide_as_memory_is_aligned(step: int, pitch: int, itemsize: int, expected: int) -> None:
    assert aligned_lanes(step, pitch, itemsize=itemsize) == expected


@pytest.mark.parametrize(
    ("start", "stop", "lanes", "expected"),
    [
        (0, 7, 2, [(0, 2), (2, 2), (4, 2), (6, 1)]),
        (7, 14, 2, [(7, 1), (8, 2), (10, 2), (12, 2)]),
        (14, 28, 4, [(14, 2), (16, 4), (20, 4), (24, 4)]),
        (5, 6, 4, [(5, 1)]),
    ],
)
def test_what_is_stored_is_cut_into_aligned_vectors(start: int, stop: int, lanes: int, expected: list) -> None:  # type: ignore[type-arg]
    assert exact_vectors(start, stop, lanes) == expected


@pytest.mark.parametrize(
    ("wanted", "lanes", "expected"),
    [
        (range(-1, 5), 4, [(-1, 1), (0, 4), (4, 1)]),
        (range(-2, 6), 4, [(-2, 2), (0, 4), (4, 2)]),
        (range(-3, 7), 4, [(-4, 4), (0, 4), (4, 4)]),
        ([1, 2], 4, [(0, 4)]),
        (range(3), 1, [(0, 1), (1, 1), (2, 1)]),
    ],
)
def test_the_halo_is_read_in_the_smallest_aligned_part(wanted: range, lanes: int, expected: list) -> None:  # type: ignore[type-arg]
    assert least_vectors(wanted, lanes) == expected


@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 20),
    lanes=st.sampled_from([1, 4]),
    threads=st.sampled_from([(1, 16, 28), (1, 32, 7), (4, 1, 8), (2, 4, 28)]),
)
def test_rows_and_planes_are_spread_over_the_banks(
    rows: int, columns: int, lanes: int, threads: tuple[int, int, int]
) -> None:
    columns *= lanes
    row, plane = spread_vectors(rows, columns, lanes=lanes, unit=lanes, threads=threads, steps=(4, 1))
    assert row >= columns and plane >= rows * row and row % lanes == 0 and plane % lanes == 0
    if threads[0] == 1 and threads[1] >= 16 and lanes == 4:
        starts = Counter(thread * plane // lanes % 8 for thread in range(8))
        assert max(starts.values()) == 1


# -- edges ---------------------------------------------------------------------------------------------------------


def reach(**changes: object) -> Reach:
    fields = {"outputs": 8, "inputs": 8, "taps": 3, "up": 1, "down": 1, "step": 1, "shift": -1, **changes}
    return Reach(axis=Axis(**fields), width=4, tiles=2, index=1)  # type: ignore[arg-type]


def test_what_every_tile_reads_needs_no_test() -> None:
    inner = reach(inputs=7, shift=0, outputs=5)
    assert [inner.reads(at) is True for at in range(6)] == [True, True, True, False, False, False]
    assert reach().writes(3) is True and reach().writes(0, lanes=4) is True


def test_what_no_tile_reads_is_known_when_compiling() -> None:
    alone = Reach(axis=reach(outputs=4, inputs=4).axis, width=4, tiles=1, index=0)
    assert alone.reads(-1) is False and alone.reads(4) is False
    assert list(alone.live_reads()) == [0, 1, 2, 3]


def test_outputs_beyond_the_axis_are_not_written() -> None:
    ragged = Reach(axis=reach(outputs=3, inputs=3).axis, width=4, tiles=1, index=0)
    assert [ragged.writes(out) for out in range(4)] == [True, True, True, False]


def test_both_keeps_what_is_known() -> None:
    assert all_of(True, True) is True
    assert all_of(True, False) is False and all_of(False, "unknown") is False
    assert all_of(True, "unknown") == "unknown" and all_of("unknown", True) == "unknown"
