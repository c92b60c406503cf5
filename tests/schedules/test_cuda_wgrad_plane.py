"""wgrad on CUDA by whole planes: right and free of faults on odd shapes in every type, in whole vectors, and lean."""

from __future__ import annotations

import dataclasses
import re
from functools import cache
from pathlib import Path

import pytest

from dwconv.kernels import build
from dwconv.problems.workload import DTYPES, DType, Workload
from dwconv.schedules.cuda.wgrad_nchw_plane.cut import cut_of
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import Candidate, all_templates, estimated_us
from dwconv.tuner.gpu_cost import computed_cost
from tests.schedules.cuda_layers import SM_90, assert_right_and_clean, drawn
from tests.schedules.test_cuda_wgrad import artifact_of, layer
from tests.turns import alternating, in_turns, slow

TEMPLATE = all_templates()["cuda.wgrad_nchw_plane"]

SHAPES = {
    "plain": layer(8, (14, 14), (3, 3)),
    "ragged channels": layer(58, (9, 12), (3, 3), batch=1),
    "20 channels, stride 2": layer(20, (15, 14), (3, 3), stride=(2, 2)),
    "7 × 7 map": layer(12, (7, 7), (3, 3), batch=17),
    "28 × 28 map": layer(4, (28, 28), (3, 3), batch=2),
    "kernel beyond the map": layer(2, (5, 6), (7, 4), padding=((5, 3), (2, 3))),
}  # fmt: skip

REGIMES = [
    layer(384, (14, 14), (3, 3), batch=64),
    layer(960, (7, 7), (3, 3), batch=64),
    layer(192, (28, 28), (3, 3), batch=64),
]


@cache
def space(workload: Workload) -> ConfigSpace:
    return TEMPLATE.space(workload, SM_90)


def config_with(workload: Workload, **knobs: object) -> Config:
    return drawn(workload, TEMPLATE, **knobs)


# What 16-bit data change is how planes are read: these shapes read in all the ways that there are.
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ("7 × 7 map", "float16"), slow("20 channels, stride 2", "bfloat16"), ("ragged channels", "float16"),
        slow("28 × 28 map", "float16"),
    ],
)  # fmt: skip
def test_every_way_to_read_planes_of_16_bits(shape: str, dtype: DType, objects: Path) -> None:
    workload = dataclasses.replace(SHAPES[shape], dtype=dtype)
    assert_right_and_clean(workload, space(workload).default, objects)


@pytest.mark.parametrize(
    ("shape", "dtype", "knobs"),
    [
        slow(
            "7 × 7 map", "float16", {"thread_planes": 2, "pipeline": 3, "split_n": 2}
        ),  # images and turns are left over
        ("ragged channels", "float32", {"thread_planes": 2, "planes": 8}),  # the last block has 2 channels
        slow("plain", "bfloat16", {"tile_w": 7, "pipeline": 2}),  # tiles side by side, in vectors across their edge
        slow("20 channels, stride 2", "float16", {"tile_h": 4, "split_n": 1}),  # twice 4 rows are the 8 of dy
        slow("28 × 28 map", "float16", {"tile_h": 5, "tile_w": 28}),  # the last tile stands out
    ],
)
def test_right_with_other_configurations(shape: str, dtype: DType, knobs: dict[str, object], objects: Path) -> None:
    workload = dataclasses.replace(SHAPES[shape], dtype=dtype)
    assert_right_and_clean(workload, config_with(workload, **knobs), objects)


@pytest.mark.parametrize(
    ("shape", "dtype", "split_n"),
    [
        slow("20 channels, stride 2", "bfloat16", 1),
        ("7 × 7 map", "float32", 4),
        ("kernel beyond the map", "float32", 2),  # rows of dy that meet no x
    ],
)
def test_a_bias_has_its_gradient_from_the_same_dy(shape: str, dtype: DType, split_n: int, objects: Path) -> None:
    workload = dataclasses.replace(SHAPES[shape], dtype=dtype, bias=True)
    assert_right_and_clean(workload, config_with(workload, split_n=split_n), objects)


# -- lean ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workload", "dtype"),
    alternating(REGIMES, ["float32", "float16"], quick_of=3),
    ids=lambda value: f"{value.input_size[0]}²" if isinstance(value, Workload) else None,
)
def test_defaults_are_lean(workload: Workload, dtype: DType) -> None:
    workload = dataclasses.replace(workload, dtype=dtype)
    cost = computed_cost(build(Candidate(workload, space(workload).default), SM_90), workload, SM_90)
    for kernel in cost.kernels:
        assert kernel.resources["spill_bytes"] == kernel.resources["stack_bytes"] == 0
    assert cost.slowest.price.bytes_in_flight_per_sm >= 50_000
    small = workload.input_size[0] == 7
    assert cost.share_of_budget <= {("float32", True): 0.6, ("float16", True): 0.9, ("float32", False): 0.35}.get(
        (dtype, small), 0.55
    )


@pytest.mark.parametrize(("dtype", "size"), in_turns(DTYPES, [7, 14], quick_of=3))
def test_planes_of_any_size_are_copied_16_bytes_at_a_time(size: int, dtype: DType) -> None:
    workload = layer(384, (size, size), (3, 3), dtype=dtype, batch=64)
    config = config_with(workload, planes=8, thread_planes=1, tile_h=7, tile_w=size)
    source = artifact_of(workload, config).source
    copies = re.findall(r"cp\.async\.c[ag]\.shared\.global \[%0\], \[%1\], (\d+)", source)
    assert set(copies) == {"16"}
    assert not re.search(r"= \*\(\w+\*\)\((x|dy)_ptr", source), "all through shared memory"


def test_a_plane_of_one_thread_multiplies_no_padding() -> None:
    workload = layer(64, (7, 7), (3, 3), batch=64)
    source = artifact_of(workload, config_with(workload, tile_h=7, tile_w=7, thread_planes=1)).source
    products = len(re.findall(r"sums_local_ptr\[\d+\] = .* \* ", source))
    assert products == 19 * 19, "7 outputs a row: five meet three taps, two meet two"


# -- the space -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "size"), in_turns(DTYPES, [7, 14, 28]))
def test_threads_of_a_default_meet_in_no_bank(size: int, dtype: DType) -> None:
    workload = layer(384, (size, size), (3, 3), dtype=dtype, batch=64)
    assert cut_of(workload, space(workload).default).layout.turns == 1.0


@pytest.mark.parametrize("size", [7, 14])
def test_estimates_know_that_whole_planes_suit_small_maps(size: int) -> None:
    workload = layer(960, (size, size), (3, 3), dtype="float16", batch=64)
    pieces = all_templates()["cuda.wgrad_nchw"].space(workload, SM_90).default
    assert estimated_us(workload, space(workload).default, SM_90) < 0.8 * estimated_us(workload, pieces, SM_90)


def test_it_is_for_small_maps_of_one_output_an_input() -> None:
    assert TEMPLATE.misfit(layer(96, (14, 14), (3, 3)), SM_90) is None
    assert "rows" in str(TEMPLATE.misfit(layer(96, (56, 56), (3, 3)), SM_90))
    assert "multiplier" in str(TEMPLATE.misfit(layer(96, (14, 14), (3, 3), multiplier=2), SM_90))
    assert "4 bytes" in str(TEMPLATE.misfit(layer(5, (7, 7), (3, 3), dtype="float16"), SM_90))
    assert "sums" in str(TEMPLATE.misfit(layer(8, (28, 28), (31, 31)), SM_90))
