"""The weight gradient of banded products on tensor cores: what it loads, and in which order it multiplies."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dwconv.problems.workload import DType
from dwconv.schedules.cuda.wgrad_toeplitz.cut import ToeplitzGradientCut
from dwconv.schedules.cuda.wgrad_toeplitz.estimate import block_works
from tests.schedules.cuda_layers import (
    SM_90,
    TEMPLATES,
    assert_right_and_clean,
    assert_right_on_extreme_values,
    drawn,
    layer,
)
from tests.schedules.toeplitz_layers import TYPES, WGRADS, of
from tests.turns import alternating, every


@pytest.mark.parametrize("name", WGRADS)
def test_units_of_a_gradient_as_they_were_once_multiplied(name: str, objects: Path) -> None:
    """No search comes to them, but records have them."""
    workload, template = of(name, "14 × 14, k13", "float16"), TEMPLATES[name]
    assert_right_and_clean(workload, drawn(workload, template, lean=0, tile_w=8), objects)


ODD_UNITS: list[tuple[str, dict[str, int]]] = [
    ("14 × 14, k13", {"images": 16, "tile_h": 14, "tile_w": 8, "warps_kh": 1}),
    ("14 × 14, k13", {"images": 4, "tile_h": 7, "tiles_w": 2, "warps_kh": 2}),
    ("28 × 28, k31", {"images": 1, "tile_h": 7, "tiles_w": 4, "warps_kh": 2}),
    ("7 × 7, 17 images", {"images": 16, "tile_h": 7, "warps_kh": 1}),
    ("no padding", {"images": 4, "tile_h": 2, "tile_w": 16, "warps_kh": 1}),
]
"""Whole maps, of which the first and the last row have one beside them that is padding, and parts; odd and even numbers
of kernel rows; units beside others, and one that is the whole row."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "knobs", "name"),
    every(2, [(*each, WGRADS[at % 2]) for at, each in enumerate([*ODD_UNITS, ODD_UNITS[3]])]),
)
def test_an_odd_unit_is_multiplied_for_two_kernel_rows(
    shape: str, knobs: dict[str, int], name: str, objects: Path
) -> None:
    workload, template = of(name, shape, "bfloat16"), TEMPLATES[name]
    config = drawn(workload, template, **knobs)
    cut = ToeplitzGradientCut.of(workload, config)
    assert cut.has_odd_unit
    assert_right_and_clean(workload, config, objects)


WHOLE_ROWS = {
    "9 × 13": {"images": 8, "tile_h": 5, "warps_kh": 1},
    "14 × 14, k13": {"images": 16, "tile_h": 14},
    "a bias, 13 kernel rows": {"images": 8, "tile_h": 5, "split_n": 2},
    "many channels": {"images": 8, "tile_h": 5},
}


@pytest.mark.parametrize(("shape", "name"), alternating(list(WHOLE_ROWS), WGRADS, quick_of=2))
def test_tiles_that_are_whole_rows_meet_nothing_beside_the_map(shape: str, name: str, objects: Path) -> None:
    workload, template = of(name, shape, "float16"), TEMPLATES[name]
    config = drawn(workload, template, tile_w=16, **WHOLE_ROWS[shape])
    cut = ToeplitzGradientCut.of(workload, config)
    assert (cut.x.units, cut.dy.units, cut.matrices) == (range(2), range(2), 1)
    report = assert_right_and_clean(workload, config, objects)
    assert report.counts.wavefronts_per_ideal < 1.2
    assert_right_on_extreme_values(workload, config, objects)


AHEAD = {
    "57 columns": {"tiles_w": 8, "split_n": 2},
    "14 × 14, k13": {"tiles_w": 2, "blocks_kh": 4},
    "28 × 28, k31": {"blocks_kh": 2, "split_n": 1},
    "7 × 7, 17 images": {"images": 8, "split_n": 2},
    "4 × 9 kernel": {"tiles_w": 4},
    "a bias, 13 kernel rows": {"images": 8, "split_n": 1},
    "many channels": {"planes": 16, "split_n": 2},
}
"""Several items a block, and shares of them that some blocks have none of."""


BATCH = {"a bias, 13 kernel rows": 17}
"""Of shapes that would be one item."""


@pytest.mark.parametrize(("shape", "dtype"), alternating(list(AHEAD), TYPES, quick_of=2))
def test_the_next_item_is_on_its_way_while_one_is_multiplied(shape: str, dtype: DType, objects: Path) -> None:
    workload, template = of(WGRADS[1], shape, dtype), TEMPLATES[WGRADS[1]]
    workload = dataclasses.replace(workload, batch=BATCH.get(shape, workload.batch))
    config = drawn(workload, template, pipeline=2, **AHEAD[shape])
    report = assert_right_and_clean(workload, config, objects)
    assert report.counts.wavefronts_per_ideal == 1, "pixels are copied, loaded and stored in different banks"


@pytest.mark.parametrize(
    ("newer", "ahead"), [({"split_n": 1, "pipeline": 2}, True), ({"pipeline": 2}, False), ({"split_n": 1}, False)]
)
def test_configurations_without_newer_knobs_mean_what_they_meant(newer: dict[str, int], ahead: bool) -> None:
    """Of two items, of one block or of two, one is on its way while the other is multiplied, or not."""
    workload = layer(16, (14, 14), (7, 7), batch=16, dtype="float16", pass_="wgrad", layout="nhwc")
    older = {"images": 8, "tile_h": 7, "warps_w": 1, "warps_kh": 1, "split_n": 2, "planes": 8}
    config = TEMPLATES[WGRADS[1]].space(workload, SM_90).check({**older, **newer})
    cut = ToeplitzGradientCut.of(workload, config)
    assert (cut.tiles_w, cut.tile_w, cut.pipeline, cut.lean) == (1, 8, newer.get("pipeline", 1), 0)
    assert block_works(workload, config, SM_90)[0].loads_ahead == ahead
