"""wgrad on CUDA: right and free of faults on odd shapes in every type, the same bits every time, and lean."""

from __future__ import annotations

import dataclasses
import random
from itertools import cycle
from pathlib import Path

import pytest
import torch

from dwconv.errors import InvalidConfig, NoTemplate
from dwconv.kernels import build
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.kernel import Kernel
from dwconv.measure.simulator.machine import SimulatedGpu
from dwconv.measure.simulator.simulate import source_only, verified
from dwconv.problems.as_written import resolve_padding
from dwconv.problems.kernel_inputs import operands
from dwconv.problems.workload import DTYPES, LAYOUTS, DType, Layout, Workload
from dwconv.schedules.cuda.wgrad.cut import WeightGradientCut
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import Candidate, all_templates, templates_for
from tests.schedules.cuda_layers import SM_90, TEMPLATES, assert_right_and_clean, drawn
from tests.turns import every, in_turns, slow


def layer(channels: int, size: tuple[int, int], kernel: tuple[int, int], **other: object) -> Workload:
    pairs = {"kernel": kernel, "stride": other.get("stride", (1, 1)), "dilation": other.get("dilation", (1, 1))}
    padding = resolve_padding(None, **pairs)  # type: ignore[arg-type]
    fields = {"pass_": "wgrad", "batch": 3, "channels": channels, "input_size": size, "padding": padding}
    return Workload(**{**fields, **pairs, **other})  # type: ignore[arg-type]


STRIDED = layer(20, (15, 14), (3, 3), stride=(2, 2))
MAP_OF_7 = layer(12, (7, 7), (3, 3), batch=17)
KERNEL_OF_31 = layer(2, (14, 14), (31, 31))
NO_X = layer(2, (5, 6), (9, 4), padding=((6, 4), (2, 3)))
"""Rows of dy that meet no x."""
BIASED = {
    "stride 2": dataclasses.replace(STRIDED, dtype="bfloat16"),
    "multiplier 2": layer(6, (9, 8), (3, 3), multiplier=2, stride=(2, 1), dtype="float16"),
    "no x": NO_X,
    "31 × 31": KERNEL_OF_31,  # several groups of kernel rows, one of which sums the bias
}


def space(workload: Workload) -> ConfigSpace:
    return all_templates()[f"cuda.wgrad_{workload.layout}"].space(workload, SM_90)


def some_configs(workload: Workload, count: int) -> list[Config]:
    """The default and ``count`` other legal configurations, the same in every run."""
    rng = random.Random(workload.key)
    others = [space(workload).sample(rng) for _ in range(count)]
    return list(dict.fromkeys([space(workload).default, *(config for config in others if config is not None)]))


def artifact_of(workload: Workload, config: Config) -> Artifact:
    return source_only(Candidate(workload, config), SM_90)


@pytest.mark.parametrize(
    ("name", "layout"),
    [*in_turns(["stride 2", "multiplier 2", "no x"], LAYOUTS), *(slow("31 × 31", layout) for layout in LAYOUTS)],
)
@pytest.mark.parametrize("choice", ["drawn", slow("default")])
def test_a_bias_has_its_gradient_from_the_same_dy(name: str, layout: Layout, choice: str, objects: Path) -> None:
    workload = dataclasses.replace(BIASED[name], layout=layout, bias=True)
    assert_right_and_clean(workload, some_configs(workload, 1)[choice == "drawn"], objects)


@pytest.mark.parametrize(("workload", "layout"), in_turns([KERNEL_OF_31, NO_X], LAYOUTS), ids=str)
def test_other_configurations_of_kernels_that_are_cut_into_groups(
    workload: Workload, layout: Layout, objects: Path
) -> None:
    workload = dataclasses.replace(workload, layout=layout)
    assert_right_and_clean(workload, some_configs(workload, 1)[1], objects)


@pytest.mark.parametrize(
    ("name", "shares"),
    [("cuda.wgrad_nchw", (16, 64)), ("cuda.wgrad_nhwc", (2, 22)), ("cuda.wgrad_nchw_plane", (1, 4))],
)
def test_any_batch_and_the_same_bits_every_time(name: str, shares: tuple[int, int], objects: Path) -> None:
    """Sums of normally distributed data: another order would round otherwise. One part needs no second kernel."""
    template = TEMPLATES[name]
    workload = dataclasses.replace(STRIDED, layout=template.layout)
    knobs = {"cuda.wgrad_nchw": {"tile_h": 8, "threads_p": 16}, "cuda.wgrad_nhwc": {"tile_h": 4, "threads_p": 4}}
    knobs = {"tile_w": 7, **knobs[name]} if name in knobs else {}
    alone, artifact = (artifact_of(workload, drawn(workload, template, **knobs, split_n=n)) for n in shares)
    assert len(alone.launches) == 1 and not alone.workspaces
    assert len(artifact.launches) == 2 and artifact.workspaces[0].shape[0] > 1
    for batch in (1, 17):
        verdict, report = verified(artifact, workload.with_batch(batch), folder=objects)
        assert verdict.right, verdict.reason
        assert report.clean
    inputs = operands(workload, data="normal", seed=3)
    with SimulatedGpu(artifact, folder=objects) as machine:
        kernel = Kernel(artifact, machine, device="cpu")
        once, again = (kernel(*inputs) for _ in range(2))
    assert torch.equal(once, again)


# -- lean ----------------------------------------------------------------------------------------------------------

REGIMES = [
    layer(144, (56, 56), (3, 3), batch=64),
    layer(144, (112, 112), (3, 3), stride=(2, 2), batch=64),
    layer(576, (14, 14), (3, 3), batch=64),
    layer(960, (7, 7), (3, 3), batch=64),
    layer(240, (28, 28), (5, 5), batch=64),
    layer(96, (56, 56), (7, 7), batch=64),
    layer(384, (14, 14), (13, 13), batch=64),
    layer(128, (28, 28), (31, 31), batch=64),
]  # fmt: skip
HALVED = dataclasses.replace(REGIMES[1], dtype="float16")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "layout"),
    every(5, list(zip([*REGIMES, HALVED], cycle(LAYOUTS), strict=False))),
    ids=lambda value: value.key if isinstance(value, Workload) else None,
)
def test_defaults_keep_to_registers(workload: Workload, layout: Layout) -> None:
    workload = dataclasses.replace(workload, layout=layout)
    resources = build(Candidate(workload, space(workload).default), SM_90).resources
    assert resources["spill_bytes"] == resources["stack_bytes"] == 0
    assert resources["shared_bytes"] <= 16 * 1024


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_loads_are_16_bytes_wide_where_rows_and_channels_allow(dtype: DType, layout: Layout) -> None:
    workload = layer(64, (32, 32), (3, 3), layout=layout, dtype=dtype)
    widest = 4 if dtype == "float32" else 8
    configs = (space(workload).sample(random.Random(seed)) for seed in range(100))
    wide = next(
        config
        for config in configs
        if config is not None and WeightGradientCut.of(workload, config).dy_vector == widest
    )  # fmt: skip
    source = artifact_of(workload, wide).source
    assert f"*({'float4' if dtype == 'float32' else 'uint4'}*)(dy_ptr" in source


# -- the space -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workload", "layout"),
    in_turns(REGIMES, LAYOUTS, quick_of=2),
    ids=lambda value: value.key if isinstance(value, Workload) else None,
)
def test_there_is_something_to_search(workload: Workload, layout: Layout) -> None:
    knobs = space(dataclasses.replace(workload, layout=layout))
    rng = random.Random(0)
    assert len({knobs.sample(rng) for _ in range(60)} - {None}) > 45


def test_what_cannot_run_is_named() -> None:
    with pytest.raises(NoTemplate, match="a kernel row of 200 sums takes more registers"):
        templates_for(layer(2, (1, 400), (1, 200)), SM_90)


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"tile_h": 14, "unroll_h": 4}, "unroll_h does not divide tile_h"),
        ({"threads_c": 48, "threads_p": 32}, "more than 1024 threads"),
        ({"tile_h": 28, "unroll_h": 14, "tile_w": 28, "vector_c": 1}, "products unrolled"),
        ({"blocks_per_sm": 6, "vector_c": 4, "tile_h": 7, "unroll_h": 7}, "more registers"),
    ],
)
def test_illegal_configurations_say_why(knobs: dict[str, object], reason: str) -> None:
    workload = layer(144, (56, 56), (3, 3), layout="nhwc", batch=64)
    with pytest.raises(InvalidConfig, match=reason):
        space(workload).check({**space(workload).default.to_dict(), **knobs})
