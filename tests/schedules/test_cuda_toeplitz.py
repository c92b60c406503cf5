"""Banded products on tensor cores: their space, how they cut a map, and their numbers on maps that no tile divides."""

from __future__ import annotations

import dataclasses
import itertools
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dwconv.kernels import build
from dwconv.kernels.kernel import Kernel
from dwconv.measure.simulator.machine import SimulatedGpu
from dwconv.measure.simulator.simulate import source_only
from dwconv.measure.verify.cases import judge_all, make_case
from dwconv.measure.verify.verify import verify_runs
from dwconv.problems.target import CudaTarget, parse_target
from dwconv.problems.workload import DType, Layout, Pass, Workload
from dwconv.schedules.cuda.fprop_dgrad_toeplitz.cut import ToeplitzCut
from dwconv.schedules.template import Candidate, estimated_us
from dwconv.tuner.gpu_cost import computed_cost
from tests.pages import table_row, text_of
from tests.schedules.cuda_layers import SM_90, TEMPLATES, assert_right_and_clean, drawn, fitted, layer
from tests.schedules.toeplitz_layers import NAMES, SHAPES, TYPES, WGRADS, of
from tests.turns import alternating, every, slow


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dtype": "float32"}, "float32"),
        ({"stride": (2, 2)}, "stride and dilation 1"),
        ({"dilation": (1, 2)}, "stride and dilation 1"),
        ({"multiplier": 2}, "multiplier=2"),
        ({"kernel": (3, 3)}, "5 to 63"),
    ],
)
@pytest.mark.parametrize("name", [NAMES[0], WGRADS[0]])
def test_what_does_not_fit_is_named(name: str, changes: dict[str, object], reason: str) -> None:
    template = TEMPLATES[name]
    workload = layer(8, (14, 14), (7, 7), **{"dtype": "float16", "pass_": template.pass_, "layout": template.layout})
    assert TEMPLATES[name].misfit(workload, SM_90) is None
    assert reason in str(TEMPLATES[name].misfit(dataclasses.replace(workload, **changes), SM_90))


@pytest.mark.parametrize("name", [NAMES[-1], WGRADS[-1]])
def test_channels_that_come_last_are_whole_vectors(name: str) -> None:
    template = TEMPLATES[name]
    workload = layer(12, (14, 14), (7, 7), dtype="float16", pass_=template.pass_, layout="nhwc")
    assert "8 channels at a time, channels=12" in str(template.misfit(workload, SM_90))


@pytest.mark.parametrize(
    ("name", "size", "kernel", "reason"),
    [
        (NAMES[0], (9, 9), (999, 63), "shared memory 232448"),
        (NAMES[2], (9, 9), (199, 63), "shared memory 232448"),
        (WGRADS[1], (9, 3000), (7, 7), "shared memory 232448"),
        (WGRADS[0], (9, 20_000), (7, 7), "shared memory 232448"),
        (WGRADS[0], (99, 9), (199, 63), "registers, a thread has 255"),
    ],
)
def test_what_is_too_large_is_named(name: str, size: tuple[int, int], kernel: tuple[int, int], reason: str) -> None:
    template = TEMPLATES[name]
    workload = layer(8, size, kernel, dtype="float16", pass_=template.pass_, layout=template.layout)
    assert reason in str(TEMPLATES[name].misfit(workload, SM_90))


@pytest.mark.parametrize("name", [*NAMES, *WGRADS])
@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (700, 3), (400, 400)])
def test_maps_of_every_size_have_a_default(name: str, size: tuple[int, int]) -> None:
    template = TEMPLATES[name]
    workload = layer(8, size, (5, 31), dtype="bfloat16", pass_=template.pass_, batch=1, layout=template.layout)
    if (reason := TEMPLATES[name].misfit(workload, SM_90)) is None:
        space = TEMPLATES[name].space(workload, SM_90)
        assert space.why_illegal(space.default) is None
    else:
        assert name in WGRADS and "shared memory" in reason, "a block of it holds whole rows"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("size", "kernel", "at_least"), every(2, [(56, 7, 300), (14, 13, 100), (28, 31, 100)]))
def test_there_are_products_to_search(name: str, size: int, kernel: int, at_least: int) -> None:
    template = TEMPLATES[name]
    workload = layer(64, (size, size), (kernel, kernel), dtype="float16", pass_=template.pass_, layout=template.layout)
    space, rng = TEMPLATES[name].space(workload, SM_90), random.Random(0)
    assert len({space.sample(rng) for _ in range(2 * at_least)}) > at_least // 2


def test_a_band_ends_where_its_weights_do() -> None:
    """7 weights reach 3 columns to either side: the columns of a product meet three units, 5 the unit on the left."""
    cut = ToeplitzCut.of(*_of_56(warps_w=7))
    assert list(cut.band) == [-1, 0, 1] and list(cut.units_of(0)) == [-1, 0, 1]
    alone = ToeplitzCut.of(*_of_56(warps_w=1, tile_w=56))
    assert list(alone.units_of(0)) == [0, 1] and list(alone.units_of(6)) == [5, 6], "no padding is multiplied"


def _of_56(**knobs: int) -> tuple[Workload, object]:
    workload = layer(96, (56, 56), (7, 7), dtype="float16")
    space = TEMPLATES[NAMES[0]].space(workload, SM_90)
    values = {
        "planes": 1, "images": 2, "tile_h": 7, "tile_w": 8, "warps_h": 1, "taps_h": 7, "tiles_w": 1, "interleave": 0,
        "lean": 0,
    }  # fmt: skip
    return workload, type(space.default).of(NAMES[0], **values | knobs)


def cases() -> Iterator[Any]:
    """Every template on every second shape, every shape by half of the templates, with the default and with a
    configuration that was drawn in turns, each in both types. Half is quick."""
    for (number, name), (at, shape) in itertools.product(enumerate([*NAMES, *WGRADS]), enumerate(SHAPES)):
        if (number + number // 2 + at) % 2:
            continue
        turn = number + at // 2
        choice, dtype = ("default", "drawn")[turn % 2], TYPES[turn // 2 % 2]
        marks = pytest.mark.slow if (number // 2 + at // 2) % 2 else ()
        yield pytest.param(name, shape, dtype, choice, id=f"{name}-{shape}-{dtype}-{choice}", marks=marks)


@pytest.mark.parametrize(("name", "shape", "dtype", "choice"), list(cases()))
def test_right_and_clean(name: str, shape: str, dtype: DType, choice: str, objects: Path) -> None:
    workload, template = of(name, shape, dtype), TEMPLATES[name]
    config = drawn(workload, template) if choice == "drawn" else template.space(workload, SM_90).default
    report = assert_right_and_clean(workload, config, objects)
    assert report.counts.wavefronts > 0


ODD: list[tuple[str, dict[str, int]]] = [
    # No search comes to them, but records have them.
    *[("9 × 13", {"lean": 0})] * 4,
    # Kernel rows in turns, the last of which is not whole: 5 = 3 + 2 = 2 + 2 + 1.
    ("9 × 13", {"taps_h": 2}),
    ("9 × 13", {"taps_h": 3}),
    # Strips one after the other, which know of no padding.
    ("many channels", {"interleave": 0, "images": 8, "tile_h": 5, "tiles_w": 1, "taps_h": 5, "warps_h": 1}),
    ("9 × 13", {"interleave": 0, "images": 8, "tile_h": 5, "tiles_w": 1, "taps_h": 5, "warps_h": 1}),
    # Strips that take turns at rows: whole maps and parts of them, of one warp and of several.
    ("57 columns", {"interleave": 1, "images": 1, "tile_h": 1, "warps_h": 1}),
    ("14 × 14, k13", {"interleave": 1, "images": 4, "tile_h": 4, "tiles_w": 1}),
    ("28 × 28, k31", {"interleave": 1, "images": 4, "taps_h": 4}),
    ("7 × 7, 17 images", {"interleave": 1, "images": 8, "tile_h": 2, "taps_h": 7}),
    ("4 × 9 kernel", {"interleave": 1, "images": 2, "tile_h": 1, "warps_h": 2}),
    ("kernel beyond the map", {"interleave": 1, "tile_h": 3}),
    ("a bias, 13 kernel rows", {"interleave": 1, "images": 8, "tile_h": 5, "warps_h": 1, "taps_h": 8, "tiles_w": 1}),
    ("9 × 13", {"interleave": 1, "images": 8, "tile_h": 1, "warps_h": 1, "taps_h": 2}),
    # Tiles side by side: the nothing on the right of a row is that on the left of the next, perhaps of another image.
    ("57 columns", {"tiles_w": 8, "images": 1, "warps_w": 1}),
    ("4 × 9 kernel", {"tiles_w": 4, "images": 1, "warps_w": 1}),
    ("100 columns", {"tiles_w": 8, "warps_w": 2, "images": 2, "tile_h": 3}),
    ("14 × 14, k13", {"tiles_w": 2, "images": 2, "warps_w": 1, "interleave": 0}),
    ("no padding", {"tiles_w": 2, "warps_w": 1, "images": 4, "tile_h": 4}),
    ("9 × 13", {"tiles_w": 2, "warps_w": 1, "images": 4, "tile_h": 5, "warps_h": 1}),
    ("many channels", {"tiles_w": 2, "warps_w": 1, "images": 4, "tile_h": 5, "warps_h": 1, "interleave": 1}),
    ("28 × 28, k31", {"tiles_w": 4, "taps_h": 4, "warps_w": 1, "images": 2}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("odd", "name"), alternating(ODD, NAMES, quick_of=2), ids=str)
def test_every_way_to_cut_a_map(odd: tuple[str, dict[str, int]], name: str, objects: Path) -> None:
    (shape, knobs), template = odd, TEMPLATES[name]
    workload = of(name, shape, "float16")
    tiles_w = knobs.get("tiles_w", 1)
    config = drawn(workload, template, **knobs, **({"tile_w": 8 * tiles_w} if tiles_w > 1 else {}))
    cut = ToeplitzCut.of(workload, config)
    assert cut.strips > 1 or not knobs.get("interleave")
    assert tiles_w == 1 or (cut.right is None) == (shape == "no padding")
    report = assert_right_and_clean(workload, config, objects)
    assert report.counts.wavefronts_per_ideal < 1.2 or knobs.get("lean") == 0


@pytest.mark.parametrize(
    ("channels", "planes", "warps_c"), [(24, 16, 8), (16, 16, 4), slow(40, 32, 4), slow(16, 16, 16)]
)
@pytest.mark.parametrize("name", NAMES[2:])
def test_kernel_rows_of_the_channels_that_have_their_turn(
    name: str, channels: int, planes: int, warps_c: int, objects: Path
) -> None:
    """The last one has no next, in its block or in the layer."""
    workload = fitted(layer(channels, (6, 19), (5, 7), batch=3), TEMPLATES[name], "float16")
    assert workload is not None
    config = drawn(workload, TEMPLATES[name], planes=planes, warps_c=warps_c, warps_h=1, warps_w=1)
    cut = ToeplitzCut.of(workload, config)
    assert cut.bands_in_turns == (planes > warps_c) and cut.bands == warps_c
    assert_right_and_clean(workload, config, objects)


@pytest.mark.parametrize("name", NAMES[:2])
def test_rows_with_more_padding_on_one_side(name: str, objects: Path) -> None:
    """On the right, of fprop; its gradient has it on the left."""
    workload = fitted(layer(2, (9, 32), (3, 20), padding=((1, 1), (3, 16))), TEMPLATES[name], "float16")
    assert workload is not None
    knobs = {"tile_w": 32, "tiles_w": 4, "warps_w": 1, "images": 4, "tile_h": 9, "warps_h": 1, "interleave": 0}
    config = drawn(workload, TEMPLATES[name], **knobs)
    source = ToeplitzCut.of(workload, config).source
    assert (source.units.start, source.right) == ((-1, 2) if name == NAMES[0] else (-2, 1))
    assert_right_and_clean(workload, config, objects)


@pytest.mark.slow
@pytest.mark.parametrize("planes", [8, 16])
@pytest.mark.parametrize("name", [*NAMES[2:], WGRADS[1]])
def test_one_vector_of_a_pixel_and_two_of_which_the_last_is_none(name: str, planes: int, objects: Path) -> None:
    """24 channels are three vectors: of the second block with 16 channels the second half does not exist."""
    template = TEMPLATES[name]
    workload = fitted(layer(24, (6, 19), (5, 5), batch=3), template, "bfloat16")
    assert workload is not None
    report = assert_right_and_clean(workload, drawn(workload, template, planes=planes), objects)
    assert report.counts.wavefronts_per_ideal < 1.2, "pixels are taken apart into different banks"


@pytest.mark.parametrize("shape", every(2, ["57 columns", "4 × 9 kernel", "9 × 13"]))
@pytest.mark.parametrize("name", WGRADS)
def test_products_of_several_tiles(name: str, shape: str, objects: Path) -> None:
    """The last of which are none: 8, 4 and 3 tiles, two at a time."""
    workload, template = of(name, shape, "float16"), TEMPLATES[name]
    report = assert_right_and_clean(workload, drawn(workload, template, tiles_w=2, split_n=2), objects)
    assert report.counts.wavefronts_per_ideal < 1.2


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), alternating([*NAMES, *WGRADS], TYPES))
def test_sums_that_are_cut_off_stay_within_the_bound(name: str, dtype: DType, objects: Path) -> None:
    workload = of(name, "14 × 14, k13", dtype)
    artifact = source_only(Candidate(workload, TEMPLATES[name].space(workload, SM_90).default), SM_90)
    with SimulatedGpu(artifact, folder=objects) as machine:
        verdict = verify_runs(Kernel(artifact, machine, device="cpu"), make_case(workload, data="normal", kind="cuda"))
    assert verdict.right, verdict.reason
    assert verdict.max_error > 0, "nothing was rounded"


@pytest.mark.parametrize(("name", "dtype"), list(zip(NAMES, TYPES * 2, strict=True)))
def test_nan_spreads_to_columns_beside_and_no_further(name: str, dtype: DType, objects: Path) -> None:
    workload = fitted(layer(8, (6, 60), (5, 5)), TEMPLATES[name], dtype)
    assert workload is not None
    artifact = source_only(Candidate(workload, TEMPLATES[name].space(workload, SM_90).default), SM_90)
    case = make_case(workload, data="extreme", kind="cuda")
    with SimulatedGpu(artifact, folder=objects) as machine:
        kernel = Kernel(artifact, machine, device="cpu")
        verdict = verify_runs(kernel, case)
        assert verdict.right, verdict.reason
        assert not judge_all([kernel(*case.inputs)], case).right, "a kernel that says nothing of it is wrong"


# -- code ----------------------------------------------------------------------------------------------------------

REGIMES = {
    "56², k7": layer(96, (56, 56), (7, 7), batch=64),
    "14², k13": layer(384, (14, 14), (13, 13), batch=64),
    "28², k31": layer(128, (28, 28), (31, 31), batch=32),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("regime", "name", "arch"),
    [
        *((*pair, "sm_90") for pair in alternating(list(REGIMES), [*NAMES, *WGRADS])),
        slow("14², k13", NAMES[0], "sm_80"),
    ],
)
def test_defaults_stay_in_registers_on_tensor_cores_and_cost_about_what_was_estimated(
    regime: str, name: str, arch: str
) -> None:
    target = parse_target(f"cuda:{arch}")
    assert isinstance(target, CudaTarget)
    workload = fitted(REGIMES[regime], TEMPLATES[name], "float16")
    assert workload is not None
    config = TEMPLATES[name].space(workload, target).default
    artifact = build(Candidate(workload, config), target)
    assert artifact.resources["spill_bytes"] == artifact.resources["stack_bytes"] == 0
    cost = computed_cost(artifact, workload, target)
    assert cost.slowest.work.tensor_products
    assert estimated_us(workload, config, target) == pytest.approx(cost.microseconds, rel=0.3)


def _computed_us(workload: Workload, **knobs: int) -> float:
    """Of the default, but for these knobs."""
    space = TEMPLATES[f"cuda.{workload.pass_}_{workload.layout}_toeplitz"].space(workload, SM_90)
    config = space.check({**space.default.to_dict(), **knobs})
    return computed_cost(build(Candidate(workload, config), SM_90), workload, SM_90).microseconds


NO_PIPELINE = {"pipeline": 1, "tiles_w": 1, "tile_w": 8, "warps_w": 1, "warps_kh": 1, "lean": 0}
NOT_LEAN = {"interleave": 0, "lean": 0, "warps_h": 1, "warps_w": 1}
ONE_TILE = {"tiles_w": 1, "tile_w": 8, "warps_w": 1, "lean": 0}
WITHOUT: dict[tuple[Pass, Layout, str], dict[str, int]] = {
    ("wgrad", "nhwc", "96 × 56² k7"): {"images": 4, "tile_h": 2, "split_n": 22, "planes": 16, **NO_PIPELINE},
    ("fprop", "nhwc", "384 × 14² k13"): {
        "planes": 8, "warps_c": 4, "images": 8, "tile_h": 14, "tile_w": 16, "taps_h": 13, "tiles_w": 2, **NOT_LEAN
    },
    ("wgrad", "nchw", "768 × 7² k7"): {"images": 16, "tile_h": 7, "warps_kh": 1, "split_n": 1, **ONE_TILE},
}  # fmt: skip
"""Of least estimate, of those with which a search begins, where there are no such knobs. One figure of each family: all
of them take a minute."""


@pytest.mark.slow
@pytest.mark.parametrize(("pass_", "layout", "told_as"), WITHOUT)
def test_the_page_says_what_newer_knobs_are_computed_to_save(pass_: Pass, layout: Layout, told_as: str) -> None:
    channels, size, kernel = map(int, re.findall(r"\d+", told_as))
    fields = {"batch": 64, "pass_": pass_, "dtype": "float16", "layout": layout}
    workload = layer(channels, (size, size), (kernel, kernel), **fields)
    before, after = _computed_us(workload, **WITHOUT[pass_, layout, told_as]), _computed_us(workload)
    assert f"{told_as} from {before:.1f} to {after:.1f}" in text_of("docs/cuda.md").replace(" µs", "")


@pytest.mark.slow
def test_the_page_says_what_is_computed_beside_what_was_measured() -> None:
    workload = layer(128, (56, 56), (31, 31), batch=16, pass_="wgrad", dtype="float16", layout="nhwc")
    *_, wgrad = table_row("docs/cuda.md", "128 × 56², k31, 16")
    assert f", computed {_computed_us(workload):.0f} (" in wgrad
