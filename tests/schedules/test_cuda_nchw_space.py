"""The NCHW templates of CUDA without a kernel: spaces large enough to search, nothing in them that cannot run, starts
that suit the memory; and rows spread over the banks of shared memory."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dwconv.errors import InvalidConfig, NoTemplate
from dwconv.measure.simulator.simulate import source_only
from dwconv.problems.workload import DTYPES, Workload
from dwconv.schedules.cuda.fprop_dgrad_nchw_plane.cut import PlanesCut
from dwconv.schedules.cuda.fprop_dgrad_nchw_wide.cut import WideCut
from dwconv.schedules.cuda.gpu.hardware import BANKS
from dwconv.schedules.cuda.gpu.memory import spread_vectors, spread_words
from dwconv.schedules.space import ConfigSpace
from dwconv.schedules.template import Candidate, templates_for
from tests.schedules import cuda_layers
from tests.schedules.cuda_layers import SM_90, TEMPLATES, assert_right_and_clean
from tests.turns import every

TILES = "cuda.fprop_nchw"
STRIPS = ["cuda.fprop_nchw_strip", "cuda.dgrad_nchw_strip"]
PLANES = ["cuda.fprop_nchw_plane", "cuda.dgrad_nchw_plane"]
WIDE = ["cuda.fprop_nchw_wide", "cuda.dgrad_nchw_wide"]


def layer(channels: int, size: int, kernel: int, stride: int = 1, **other: object) -> Workload:
    fields = {"batch": 8, "stride": (stride, stride), **other}
    return cuda_layers.layer(channels, (size, size), (kernel, kernel), **fields)


def of(name: str, channels: int, size: int, kernel: int, stride: int = 1, **other: object) -> Workload:
    """A layer in the pass of the template ``name``."""
    return layer(channels, size, kernel, stride, **{"pass_": TEMPLATES[name].pass_, **other})


def space(name: str, channels: int, size: int, kernel: int, stride: int = 1, **other: object) -> ConfigSpace:
    return TEMPLATES[name].space(of(name, channels, size, kernel, stride, **other), SM_90)


# -- spaces --------------------------------------------------------------------------------------------------------

SEARCHED = [
    (TILES, 960, 7, 3, 1, 100), (TILES, 96, 14, 7, 1, 300), (TILES, 576, 14, 3, 2, 100),
    (STRIPS[0], 144, 14, 3, 2, 100), (STRIPS[1], 144, 56, 3, 1, 1000), (STRIPS[1], 144, 7, 3, 1, 100),
    (WIDE[0], 144, 28, 13, 2, 200), (WIDE[0], 144, 56, 31, 1, 1000), (WIDE[1], 144, 7, 7, 1, 50),
    (PLANES[0], 144, 14, 3, 1, 100), (PLANES[1], 144, 7, 3, 1, 100), (PLANES[1], 144, 7, 7, 1, 50),
]  # fmt: skip


@pytest.mark.parametrize(("name", "channels", "size", "kernel", "stride", "at_least"), every(3, SEARCHED))
def test_there_is_something_to_search(
    name: str, channels: int, size: int, kernel: int, stride: int, at_least: int
) -> None:
    searched, rng = space(name, channels, size, kernel, stride), random.Random(0)
    if name == TILES:  # they have far more: to list those before the first that are legal takes many seconds
        assert len({searched.sample(rng) for _ in range(2 * at_least)} - {None}) >= at_least
        return
    assert at_least <= sum(1 for _ in itertools.islice(searched, 20_001)) <= 20_000


@pytest.mark.parametrize("name", [TILES, *STRIPS, *WIDE])
def test_legal_configurations_fit_the_hardware(name: str) -> None:
    every_config, rng = space(name, 128, 28, 5, 2), random.Random(0)
    for _ in range(50):
        config = every_config.sample(rng)
        assert config is not None
        down = config.block_h // (config.vthread_h * config.tile_h) if name == TILES else config.threads_h
        assert 32 <= config.planes * down * config.threads_w <= SM_90.threads_per_block
        assert (config.planes if name == TILES else down) <= 64, "CUDA allows 64 threads on z"
        if name.startswith("cuda.dgrad"):
            assert config.tile_w % 2 == 0, "a tile holds whole periods of the taps"


def test_what_cannot_run_is_named() -> None:
    far = Workload(pass_="fprop", batch=1, channels=1, input_size=(600, 600), kernel=(31, 31), dilation=(16, 16))
    with pytest.raises(NoTemplate, match="shared memory"):
        templates_for(far, SM_90)
    misfit = TEMPLATES[PLANES[0]].misfit
    assert "rows" in str(misfit(layer(96, 56, 3), SM_90))
    assert "multiplier" in str(misfit(layer(96, 14, 3, multiplier=2), SM_90))
    assert misfit(layer(96, 14, 3), SM_90) is None


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"block_h": 8, "tile_h": 7}, "tile_h does not divide block_h"),
        ({"stage": "shared", "tile_w": 2}, "columns are strided"),
        ({"stage": "registers"}, "columns are neighbours"),
        ({"stage": "registers", "vthread_w": 1, "vthread_h": 2, "block_h": 14}, "rows are neighbours"),
        ({"stage": "registers", "vthread_w": 1, "padding": "none"}, "there are no banks"),
        ({"padding": "copied"}, "nothing is copied ahead"),
        ({"pipeline": 2, "turns": 4, "padding": "none"}, "all is copied ahead"),
        ({"vthread_h": 4, "block_h": 14}, "not vthread_h times"),
        ({"pipeline": 2, "turns": 4, "tile_w": 4, "vthread_w": 2, "threads_w": 4}, "as wide as the map"),
        ({"blocks_per_sm": 8}, "more registers than that many blocks leave"),
        ({"planes": 32}, "more than 1024 threads"),
        ({"block_h": 64, "tile_h": 8, "vthread_w": 4, "threads_w": 19, "planes": 1}, "outputs wanted"),
        ({"tile_h": 14, "vthread_w": 4, "threads_w": 14, "planes": 16, "block_h": 56}, "more registers"),
    ],
)
def test_illegal_configurations_say_why(knobs: dict[str, object], reason: str) -> None:
    tiles = space(TILES, 144, 56, 3)
    with pytest.raises(InvalidConfig, match=reason):
        tiles.check({**tiles.default.to_dict(), **knobs})


def test_a_record_of_block_tiles_from_before_a_knob_means_what_it_meant() -> None:
    """No virtual threads on rows, rows spread over the banks, and registers as ptxas likes."""
    tiles = space(TILES, 144, 56, 3)
    recorded = {"planes": 2, "block_h": 28, "tile_h": 7, "threads_w": 32, "vthread_w": 2, "tile_w": 1,
                "stage": "shared", "unroll": "kernel", "pipeline": 1, "turns": 1}  # fmt: skip
    config = tiles.check({"template": TILES, **recorded})
    assert (config.vthread_h, config.padding, config.blocks_per_sm) == (1, "fetched", 0)
    source = source_only(Candidate(layer(144, 56, 3), config), SM_90).source
    assert "__launch_bounds__(256)" in source
    bounded = tiles.check({**recorded, "blocks_per_sm": 4})
    assert "__launch_bounds__(256, 4)" in source_only(Candidate(layer(144, 56, 3), bounded), SM_90).source


# -- where a search starts -----------------------------------------------------------------------------------------


def test_block_tiles_are_strided_by_virtual_threads(objects: Path) -> None:
    """Neighbouring threads own neighbouring columns: they meet in no bank."""
    workload = layer(8, 56, 3, batch=1)
    default = space(TILES, 8, 56, 3, batch=1).default
    assert (default.stage, default.vthread_w, default.threads_w) == ("shared", 2, 32)
    counts = assert_right_and_clean(workload, default, objects).counts
    assert counts.wavefronts_per_ideal < 1.05


AHEAD = {"pipeline": 2, "turns": 4, "block_h": 56, "blocks_per_sm": 2}


@pytest.mark.parametrize(
    ("name", "knobs"),
    [
        (TILES, {**AHEAD, "planes": 1, "tile_h": 4, "threads_w": 8, "vthread_w": 1, "padding": "fetched"}),
        (TILES, {**AHEAD, "planes": 1, "tile_h": 4, "threads_w": 8, "vthread_w": 1, "padding": "copied"}),
        (TILES, {**AHEAD, "planes": 1, "tile_h": 4, "threads_w": 28, "vthread_h": 2, "vthread_w": 2}),
        (TILES, {**AHEAD, "planes": 1, "tile_h": 4, "threads_w": 14, "vthread_w": 1, "tile_w": 4, "blocks_per_sm": 4}),
        (TILES, {"planes": 8, "block_h": 8, "tile_h": 2, "threads_w": 7, "vthread_w": 1, "padding": "none"}),
        (TILES, {"planes": 8, "block_h": 8, "tile_h": 2, "threads_w": 7, "vthread_w": 1}),
        (WIDE[0], {"planes": 8, "threads_h": 4, "threads_w": 7, "tile_w": 8}),
    ],
)
def test_computed_conflicts_are_those_that_the_simulator_counts(
    name: str, knobs: dict[str, object], objects: Path
) -> None:
    workload = layer(16, 56, 3, batch=1)
    tiles = space(name, 16, 56, 3, batch=1)
    config = tiles.check({**tiles.default.to_dict(), **knobs})
    counts = assert_right_and_clean(workload, config, objects).counts
    works = TEMPLATES[name].works
    assert works is not None
    (work,) = works(workload, config, SM_90)
    assert work.transactions_a_request == pytest.approx(counts.wavefronts_per_ideal, rel=0.1)


@pytest.mark.parametrize("name", STRIPS)
def test_strips_are_as_wide_as_a_vector_and_several_planes_share_a_block(name: str) -> None:
    assert space(name, 144, 56, 3).default.tile_w == 4
    assert space(name, 144, 56, 3, dtype="float16", batch=64).default.tile_w == 8
    small = space(name, 960, 7, 3).default
    assert small.tile_h == 7 and small.planes >= 16


def test_wide_rows_of_a_small_map_are_whole() -> None:
    tiles = WideCut.of(of(WIDE[0], 256, 28, 31), space(WIDE[0], 256, 28, 31).default)
    assert (tiles.tile_w, tiles.column_tiles) == (28, 1)
    assert 2 * tiles.shared_bytes < SM_90.shared_bytes_per_sm


@pytest.mark.parametrize(("name", "dtype", "size"), list(zip(PLANES * 3, DTYPES * 2, [7, 14, 14] * 2, strict=True)))
def test_planes_are_copied_in_whole_vectors_and_no_bank_is_met_twice(name: str, dtype: str, size: int) -> None:
    fields = {"dtype": dtype, "batch": 64}
    tiles = PlanesCut.of(of(name, 384, size, 3, **fields), space(name, 384, size, 3, **fields).default)
    for held in (tiles.source, tiles.result):
        assert held.copied_lanes * (4 if tiles.held == "float32" else 2) == 16, "the widest of shared memory"
    assert tiles.layout.turns == 1


# -- banks ---------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    held=st.integers(1, 300),
    threads=st.tuples(st.sampled_from([1, 2, 4, 7, 32]), st.sampled_from([1, 7, 8, 14, 16, 28, 32, 33])),
    rows=st.integers(1, 16),
)
def test_rows_are_spread_over_the_banks(held: int, threads: tuple[int, int], rows: int) -> None:
    def most_in_a_bank(apart: int) -> int:
        lanes = range(min(BANKS, threads[0] * threads[1]))
        words = {lane // threads[1] * rows * apart + lane % threads[1] for lane in lanes}
        return max(Counter(word % BANKS for word in words).values())

    apart = spread_words(held, threads=threads, words=((rows, 1),))
    assert held <= apart < held + BANKS
    assert most_in_a_bank(apart) == min(map(most_in_a_bank, range(held, held + BANKS)))


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
        assert max(Counter(thread * plane // lanes % 8 for thread in range(8)).values()) == 1
