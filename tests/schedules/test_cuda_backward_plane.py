"""Both gradients on CUDA in one kernel, NCHW: right and free of faults on odd shapes in every type, and lean."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from dwconv.errors import InvalidConfig, NoTemplate
from dwconv.kernels import build
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.kernel import Kernel
from dwconv.measure.simulator.machine import SimulatedGpu
from dwconv.measure.simulator.simulate import source_only, verified
from dwconv.measure.verify.cases import make_case
from dwconv.problems.block import NOTHING, Block
from dwconv.problems.workload import DTYPES, DType, Workload
from dwconv.schedules.cuda.wgrad_nchw_plane.cut import cut_of
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import Candidate, template, templates_for
from dwconv.tuner.gpu_cost import computed_cost
from tests.schedules import cuda_layers
from tests.schedules.cuda_layers import SM_90, assert_right_and_clean, assert_right_on_extreme_values, drawn
from tests.turns import every, slow

TEMPLATE = template("cuda.backward_nchw_plane")


def layer(channels: int, size: tuple[int, int], kernel: tuple[int, int], **other: object) -> Workload:
    alone = cuda_layers.layer(channels, size, kernel, **other)
    return dataclasses.replace(alone, pass_="backward", block=NOTHING)


SHAPES = {
    "one pixel": layer(6, (1, 1), (3, 3), batch=3),
    "5 × 3 map": layer(5, (5, 3), (3, 3), batch=3),
    "7 × 7 map": layer(12, (7, 7), (3, 3), batch=17),
    "odd": layer(5, (13, 9), (5, 3), batch=3),
    "ragged channels": layer(58, (9, 12), (3, 3), batch=1),
    "14 × 14 map": layer(8, (14, 14), (3, 3)),
    "28 × 28 map": layer(4, (28, 28), (3, 3), batch=1),
    "56 × 56 map": layer(2, (56, 56), (3, 3), batch=1),
    "112 × 112 map": layer(1, (112, 112), (3, 3), batch=1, stride=(2, 2), padding=((0, 1), (0, 1))),
    "stride 2": layer(20, (15, 14), (3, 3), stride=(2, 2)),
    "stride 3 and 2, asymmetric padding": layer(8, (13, 9), (5, 3), stride=(3, 2), padding=((0, 2), (3, 1)), batch=3),
    "stride 2 and 1": layer(8, (14, 10), (5, 5), stride=(2, 1)),
    "stride beyond the kernel": layer(4, (11, 12), (1, 2), stride=(3, 3), padding=((0, 0), (0, 0))),
    "dilation": layer(8, (13, 17), (3, 3), padding=((2, 2), (3, 1)), dilation=(2, 2)),
    "dilation and stride": layer(4, (15, 14), (5, 3), padding=((3, 3), (2, 2)), dilation=(2, 3), stride=(3, 2)),
    "kernel beyond the map": layer(2, (5, 6), (7, 4), padding=((5, 3), (2, 3))),
    "padding beyond the kernel": layer(4, (6, 8), (3, 3), padding=((5, 4), (4, 6))),
    "5 × 5 kernel": layer(4, (14, 14), (5, 5), batch=3),
    "7 × 7 kernel": layer(4, (14, 14), (7, 7), batch=3),
    "7 × 7 kernel and map": layer(4, (7, 7), (7, 7), batch=3),
}
QUICK = {
    ("7 × 7 map", "float16", "drawn"), ("odd", "float32", "drawn"), ("ragged channels", "bfloat16", "default"),
    ("stride 3 and 2, asymmetric padding", "float32", "default"), ("stride 2", "float16", "drawn"),
    ("56 × 56 map", "float32", "default"), ("7 × 7 kernel and map", "float32", "default"),
    ("dilation", "bfloat16", "default"), ("one pixel", "float16", "default"),
}  # fmt: skip


@cache
def space(workload: Workload) -> ConfigSpace:
    return TEMPLATE.space(workload, SM_90)


def config_with(workload: Workload, **knobs: object) -> Config:
    return drawn(workload, TEMPLATE, **knobs)


def artifact_of(workload: Workload, config: Config) -> Artifact:
    return source_only(Candidate(workload, config), SM_90)


# -- numbers ---------------------------------------------------------------------------------------------------------


def cases() -> Iterator[Any]:
    """Every shape in a type, of those that it can have, with the default or with another configuration in turns."""
    for number, (name, shape) in enumerate(SHAPES.items()):
        for turn, dtype in enumerate(DTYPES, start=number):
            workload = dataclasses.replace(shape, dtype=dtype)
            if TEMPLATE.misfit(workload, SM_90) is None:
                for choice in ("default", "drawn"):
                    is_quick = (name, dtype, choice) in QUICK
                    is_turn = turn % 3 == 1 and (choice == "drawn") == turn % 2
                    if is_quick or is_turn:
                        marks = () if is_quick else pytest.mark.slow
                        yield pytest.param(workload, choice, id=f"{name}-{dtype}-{choice}", marks=marks)


@pytest.mark.parametrize(("workload", "choice"), list(cases()))
def test_right_and_clean(workload: Workload, choice: str, objects: Path) -> None:
    config = config_with(workload) if choice == "drawn" else space(workload).default
    assert_right_and_clean(workload, config, objects)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "dtype", "knobs"),
    [
        # Images and turns are left over; tiles begin within the words of odd planes.
        ("7 × 7 map", "float16", {"thread_planes": 2, "tile_h": 4, "tile_w": 7, "pipeline": 3, "split_n": 2}),
        ("ragged channels", "float32", {"thread_planes": 2, "planes": 8}),  # the last block has 2 channels
        slow("14 × 14 map", "bfloat16", {"tile_w": 7, "pipeline": 2}),  # tiles side by side, in vectors across edges
        slow("28 × 28 map", "float16", {"tile_h": 8, "tile_w": 7}),  # the last tile stands out
        slow("stride 2", "float32", {"tile_h": 4, "tile_w": 4, "pipeline": 1}),
    ],
)
def test_right_with_other_configurations(shape: str, dtype: DType, knobs: dict[str, object], objects: Path) -> None:
    workload = dataclasses.replace(SHAPES[shape], dtype=dtype)
    assert_right_and_clean(workload, config_with(workload, **knobs), objects)


def test_planes_beyond_static_shared_memory(objects: Path) -> None:
    """TVM would put a barrier between each row that is read and each that is written, for all dynamic memory is one."""
    workload = dataclasses.replace(SHAPES["56 × 56 map"], batch=3)
    config = config_with(workload, planes=1, images=1, tile_h=7, tile_w=14, split_n=1, pipeline=3)
    assert cut_of(workload, config).shared_bytes > 48 * 1024
    taken = artifact_of(workload, config).source.partition("turn < ")[2].partition("halving")[0]
    assert taken.count("__syncthreads()") == 3, "before a turn, before dx leaves, and after it"
    assert_right_and_clean(workload, config, objects)


def test_any_batch_and_the_same_bits_every_time(objects: Path) -> None:
    """Sums of normally distributed data: another order would round otherwise."""
    workload = SHAPES["stride 2"]
    artifact = artifact_of(workload, config_with(workload, split_n=2, images=2, pipeline=2))
    assert len(artifact.launches) == 2 and artifact.workspaces[0].shape[0] == 2
    for batch in (1, 3, 17):
        verdict, report = verified(artifact, workload.with_batch(batch), folder=objects)
        assert verdict.right, verdict.reason
        assert report.clean
    inputs = make_case(workload, data="normal", seed=3).inputs
    with SimulatedGpu(artifact, folder=objects) as machine:
        kernel = Kernel(artifact, machine, device="cpu")
        once, again = (kernel(*inputs) for _ in range(2))
    assert all(torch.equal(first, second) for first, second in zip(once, again, strict=True))


@pytest.mark.parametrize(("shape", "dtype"), [("14 × 14 map", "float32"), slow("7 × 7 map", "float16")])
def test_extreme_values(shape: str, dtype: DType, objects: Path) -> None:
    workload = dataclasses.replace(SHAPES[shape], dtype=dtype, batch=3)
    assert_right_on_extreme_values(workload, space(workload).default, objects)


# -- lean ------------------------------------------------------------------------------------------------------------


LAYERS = [
    (144, 56, 3), (192, 28, 3), (384, 14, 3), (576, 14, 3), (960, 7, 3), (240, 28, 5), (384, 14, 7), (768, 7, 7)
]  # fmt: skip


def square(channels: int, size: int, kernel: int, dtype: DType) -> Workload:
    return layer(channels, (size, size), (kernel, kernel), batch=64, dtype=dtype)


@pytest.mark.parametrize(
    ("channels", "size", "kernel", "dtype"),
    every(5, [(*LAYERS[4], "float32"), (*LAYERS[4], "float16"), (*LAYERS[0], "float16"),
              (*LAYERS[5], "float32"), (*LAYERS[6], "float16")]),
)  # fmt: skip
def test_defaults_are_lean(channels: int, size: int, kernel: int, dtype: DType) -> None:
    workload = square(channels, size, kernel, dtype)
    cost = computed_cost(build(Candidate(workload, space(workload).default), SM_90), workload, SM_90)
    for each in cost.kernels:
        assert each.resources["spill_bytes"] == each.resources["stack_bytes"] == 0
    assert 0.95 * workload.bytes <= cost.slowest.price.dram_bytes <= 1.1 * workload.bytes, "x and dy once, dx once"


# -- the space -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (dataclasses.replace(SHAPES["odd"], block=Block.parse("bn+relu,none")), "nothing around"),
        (dataclasses.replace(SHAPES["odd"], block=Block.parse("none,ln")), "nothing around"),
        (dataclasses.replace(SHAPES["odd"], multiplier=2), "multiplier=2"),
        (layer(4, (224, 224), (3, 3)), "planes of x and dy take 401408 bytes, a block has 232448"),
        (layer(8, (28, 28), (13, 13)), "sums"),
        (dataclasses.replace(SHAPES["5 × 3 map"], dtype="float16"), "4 bytes"),
    ],
)
def test_what_cannot_run_is_named(workload: Workload, reason: str) -> None:
    assert reason in str(TEMPLATE.misfit(workload, SM_90))
    with pytest.raises(NoTemplate, match=reason):
        templates_for(workload, SM_90)


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"planes": 3, "thread_planes": 2}, "unevenly"),
        ({"images": 64, "planes": 32, "thread_planes": 1}, "more than 1024 threads"),
        ({"images": 32, "split_n": 4}, "more than 64 images"),
        ({"images": 64, "split_n": 1, "pipeline": 4}, "bytes of shared memory"),
    ],
)
def test_illegal_configurations_say_why(knobs: dict[str, object], reason: str) -> None:
    """Those of the weight gradient alone, too, which has blocks of the same kind."""
    workload = square(960, 7, 3, "float16")
    alone = dataclasses.replace(workload, pass_="wgrad", block=None)
    base = {"planes": 8, "images": 8, "thread_planes": 2, "tile_h": 7, "tile_w": 7, "split_n": 2, "pipeline": 2}
    for own in (space(workload), template("cuda.wgrad_nchw_plane").space(alone, SM_90)):
        with pytest.raises(InvalidConfig, match=reason):
            own.check({**base, **knobs})
