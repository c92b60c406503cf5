"""CUDA kernels of 3-D layers: right and clean in the simulator, those of 2-D where the depth is 1, priced by taps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dwconv.errors import InvalidConfig, NoTemplate
from dwconv.kernels import build
from dwconv.measure.simulator.simulate import source_only
from dwconv.problems.workload import DType, Pass, Sizes, Workload
from dwconv.schedules.cuda.fprop_dgrad_nchw_strip.estimate import block_work as of_strips
from dwconv.schedules.cuda.fprop_dgrad_nhwc.estimate import block_work as of_pixels
from dwconv.schedules.cuda.gpu.cost import BlockWork
from dwconv.schedules.cuda.wgrad.cut import WeightGradientCut
from dwconv.schedules.cuda.wgrad.estimate import block_works as of_weights
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, estimated_us, fitting, templates_for
from tests.fixtures import Golden, digests
from tests.schedules.cuda_layers import SM_90, TEMPLATES, assert_right_and_clean, drawn
from tests.schedules.volumes import VOLUMES
from tests.turns import every

DEEP = {name: template for name, template in TEMPLATES.items() if template.most_axes == 3}
QUICK = ("3 by 3 by 3", "padding per side")
TYPES: tuple[DType, ...] = ("float32", "bfloat16", "float16")


def of(name: str, volume: Workload, **changes: object) -> Workload:
    """The volume as the template reads it."""
    workload = dataclasses.replace(volume, layout=DEEP[name].layout, **changes)  # type: ignore[arg-type]
    return workload.for_pass(DEEP[name].pass_)


def cube(size: Sizes, kernel: Sizes, **other: object) -> Workload:
    """fprop that keeps its size, unless it has a stride."""
    padding = tuple((taps // 2, taps // 2) for taps in kernel)
    fields = {"channels": 96, "stride": (1, 1, 1), "dilation": (1, 1, 1), "padding": padding, "batch": 8, **other}
    return Workload(pass_="fprop", input_size=size, kernel=kernel, **fields)  # type: ignore[arg-type]


def config_of(workload: Workload, name: str, **knobs: object) -> Config:
    space = DEEP[name].space(workload, SM_90)
    return space.check({**space.default.to_dict(), **knobs})


def source_of(workload: Workload, config: Config) -> str:
    return source_only(Candidate(workload, config), SM_90).source


# -- numbers ---------------------------------------------------------------------------------------------------------


def cases() -> Iterator[Any]:
    """Each template with every second volume, each volume with every second template, of which all families have one;
    types, biases and choices take turns. One of each template is quick, on one of two volumes with padding along the
    depth, wgrad with a bias: its first tap along the depth sums planes of dy that meet padding alone, too."""
    for turn, (name, template) in enumerate(DEEP.items()):
        quick = QUICK[(turn + turn // 2) % 2]
        for number, label in enumerate(VOLUMES):
            at = turn + turn // 2 + number
            if at % 2 and label != quick:
                continue
            dtype, choice = TYPES[at // 2 % 3], ("default", "drawn")[at // 4 % 2]
            bias = template.pass_ != "dgrad" and (label == quick or number // 2 % 2 == (template.pass_ == "fprop"))
            yield pytest.param(
                name, label, dtype, bias, choice,
                id=f"{name}-{label}-{dtype}{'-bias' * bias}-{choice}",
                marks=() if label == quick else pytest.mark.slow,
            )  # fmt: skip


@pytest.mark.parametrize(("name", "label", "dtype", "bias", "choice"), list(cases()))
def test_right_and_clean(name: str, label: str, dtype: DType, bias: bool, choice: str, objects: Path) -> None:
    template, workload = DEEP[name], of(name, VOLUMES[label], dtype=dtype, bias=bias)
    config = drawn(workload, template) if choice == "drawn" else template.space(workload, SM_90).default
    assert_right_and_clean(workload, config, objects)


@pytest.mark.parametrize("pass_", ["fprop", "dgrad"])
def test_one_plane_at_a_time_may_be_staged(pass_: Pass, objects: Path) -> None:
    name = f"cuda.{pass_}_nhwc"
    workload = of(name, cube((3, 8, 9), (1, 3, 3), channels=32, batch=2))
    assert_right_and_clean(workload, drawn(workload, DEEP[name], stage="shared"), objects)
    several = of(name, cube((3, 8, 9), (3, 3, 3), channels=32, batch=2))
    with pytest.raises(InvalidConfig, match="stage='shared' is not one of"):
        config_of(several, name, stage="shared")


# -- code ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DEEP)
def test_a_depth_of_1_is_as_in_2d(name: str) -> None:
    flat = dataclasses.replace(
        VOLUMES["3 by 3 by 3"], input_size=(9, 12), kernel=(3, 3), stride=(2, 1), padding=((1, 1), (1, 0)),
        dilation=(1, 1), channels=16,
    )  # fmt: skip
    deep = dataclasses.replace(
        flat, input_size=(1, 9, 12), kernel=(1, 3, 3), stride=(1, 2, 1), padding=((0, 0), (1, 1), (1, 0)),
        dilation=(1, 1, 1),
    )  # fmt: skip
    bias = DEEP[name].pass_ != "dgrad"
    flat, deep = (of(name, workload, bias=bias) for workload in (flat, deep))
    config = config_of(flat, name)
    assert config == config_of(deep, name)
    assert source_of(flat, config) == source_of(deep, config)
    assert estimated_us(flat, config, SM_90) == estimated_us(deep, config, SM_90)


PINNED: dict[str, dict[str, object]] = {
    "cuda.fprop_nchw_strip": {"planes": 16, "threads_h": 2, "tile_h": 2, "threads_w": 2, "tile_w": 4, "rows_ahead": 1},
    "cuda.dgrad_nchw_strip": {"planes": 16, "threads_h": 2, "tile_h": 2, "threads_w": 2, "tile_w": 4, "rows_ahead": 1},
    "cuda.fprop_nhwc": {"threads_w": 4, "threads_h": 2, "tile_h": 2, "tile_w": 2, "weights": "registers"},
    "cuda.dgrad_nhwc": {"threads_w": 4, "threads_h": 2, "tile_h": 2, "tile_w": 2, "weights": "shared"},
    "cuda.wgrad_nchw": {"threads_c": 4, "tile_h": 4, "unroll_h": 2, "tile_w": 4, "threads_p": 16, "split_n": 8},
    "cuda.wgrad_nhwc": {"vector_c": 2, "threads_c": 4, "tile_h": 4, "unroll_h": 2, "tile_w": 2, "threads_p": 8},
}


def test_the_sources_are_pinned(golden: Golden) -> None:
    """By their digests: those of 2-D are there to be read. Gradients of the input with a stride along the depth, the
    others with a bias."""
    sources = {}
    for name, pinned in PINNED.items():
        stride = (2, 1, 1) if DEEP[name].pass_ == "dgrad" else (1, 1, 1)
        kernel = (2, 2, 2) if name == "cuda.dgrad_nhwc" else (3, 3, 3)
        workload = of(name, cube((4, 8, 8), kernel, channels=8, stride=stride, bias=True, batch=2))
        own: dict[str, object] = {"vector_c": 2, "threads_c": 4, "vthread_w": 1, "stage": "none", "unroll": "taps"}
        if DEEP[name].pass_ == "wgrad":
            own = {"split_n": 8, "threads_kh": 3, "group_kh": 3, "blocks_per_sm": 2, "edge": "zero"}
        knobs = {**(own if not name.endswith("_strip") else {}), **pinned}
        sources[name] = source_of(workload, config_of(workload, name, **knobs))
    golden("cuda_3d.txt", digests(sources))


LAYERS = {
    "1×3×3": cube((16, 28, 28), (1, 3, 3), dtype="float16"),
    "3×1×1": cube((16, 28, 28), (3, 1, 1)),
    "3³, stride 2": cube((16, 28, 28), (3, 3, 3), stride=(2, 2, 2)),
    "5³": cube((16, 28, 28), (5, 5, 5)),
    "7³": cube((16, 28, 28), (7, 7, 7), dtype="float16"),
    "3³": cube((16, 28, 28), (3, 3, 3), dtype="bfloat16"),
}


@pytest.mark.parametrize(("name", "label"), every(3, [*zip(DEEP, LAYERS, strict=True)]))
def test_defaults_keep_to_registers(name: str, label: str) -> None:
    workload = of(name, LAYERS[label])
    resources = build(Candidate(workload, config_of(workload, name)), SM_90).resources
    assert resources["spill_bytes"] == resources["stack_bytes"] == 0


# -- estimates -------------------------------------------------------------------------------------------------------


def works_of(workload: Workload, config: Config) -> BlockWork:
    """Of its first kernel."""
    if workload.pass_ == "wgrad":
        return of_weights(WeightGradientCut.of(workload, config), SM_90)[0]
    return (of_strips if workload.layout == "nchw" else of_pixels)(workload, config, SM_90)


@pytest.mark.parametrize("name", DEEP)
def test_products_are_those_of_each_plane_that_a_tap_meets(name: str) -> None:
    """4 planes meet 3 taps, of which 2 meet padding at the ends: 10 times what 2-D has of one plane."""
    flat = dataclasses.replace(cube((4, 14, 16), (3, 3, 3), channels=32, batch=64), layout=DEEP[name].layout)
    flat = dataclasses.replace(
        flat, input_size=(14, 16), kernel=(3, 3), stride=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1)
    ).for_pass(DEEP[name].pass_)
    deep = of(name, cube((4, 14, 16), (3, 3, 3), channels=32, batch=64))
    config = config_of(flat, name)
    one, all_planes = (works_of(workload, config) for workload in (flat, deep))
    assert math.isclose(all_planes.fma * all_planes.blocks, 10 * one.fma * one.blocks)
    assert all_planes.dram_bytes > 3 * one.dram_bytes
    assert estimated_us(deep, config, SM_90) > 2 * estimated_us(flat, config, SM_90)


# -- what does not run -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(TEMPLATES.keys() - DEEP.keys()))
def test_templates_of_2d_say_so_and_name_those_of_3d(name: str) -> None:
    template = TEMPLATES[name]
    workload = dataclasses.replace(VOLUMES["3 by 3 by 3"], layout=template.layout).for_pass(template.pass_)
    (way_out,) = (each for each in DEEP if each.startswith(f"cuda.{template.pass_}_{template.layout}"))
    with pytest.raises(InvalidConfig, match=f"it is for 2-D, the workload is 3-D; use {way_out}$"):
        fitting(name, workload, SM_90)


def test_planes_of_large_kernels_are_left_to_pytorch_in_nchw() -> None:
    large = cube((16, 40, 40), (3, 15, 15))
    with pytest.raises(NoTemplate, match=r"cuda\.fprop_nchw_strip: the weights and one tile take \d+ registers"):
        templates_for(large, SM_90)
    assert templates_for(dataclasses.replace(large, layout="nhwc"), SM_90)
