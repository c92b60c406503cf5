"""The spaces of the CUDA templates: large enough to search, and nothing in them that cannot run."""

from __future__ import annotations

import random

import pytest

from dwconv.errors import InvalidConfig, NoTemplate
from dwconv.problems.as_written import resolve_padding
from dwconv.problems.target import CudaTarget, parse_target
from dwconv.problems.workload import Workload
from dwconv.schedules.template import template, templates_for
from tests.turns import slow

SM_90 = parse_target("cuda:sm_90")
assert isinstance(SM_90, CudaTarget)


def layer(channels: int, size: int, kernel: int, stride: int = 1, **other: object) -> Workload:
    pairs = {"kernel": (kernel, kernel), "stride": (stride, stride), "dilation": (1, 1)}
    padding = resolve_padding(None, **pairs)
    fields = {"pass_": "fprop", "batch": 8, "channels": channels, "input_size": (size, size), "padding": padding}
    return Workload(**{**fields, **pairs, **other})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("workload", "at_least"),
    [
        (layer(960, 7, 3), 100),
        slow(layer(96, 14, 7), 300),
        slow(layer(576, 14, 3, 2), 100),
    ],
    ids=lambda value: value.key if isinstance(value, Workload) else "",
)
def test_there_is_something_to_search(workload: Workload, at_least: int) -> None:
    legal = sum(1 for _ in template("cuda.fprop_nchw").space(workload, SM_90))
    assert at_least <= legal <= 20_000


def test_legal_configurations_fit_the_hardware() -> None:
    workload = layer(128, 28, 31)
    space = template("cuda.fprop_nchw").space(workload, SM_90)
    rng = random.Random(0)
    for _ in range(50):
        config = space.sample(rng)
        assert config is not None
        threads = config.planes * (config.block_h // config.tile_h) * config.threads_w
        assert 32 <= threads <= SM_90.threads_per_block
        assert config.planes <= 64, "CUDA allows 64 threads on z"
        assert config.block_h % config.tile_h == 0


def test_the_default_is_staged_in_shared_memory_and_strided_by_virtual_threads() -> None:
    default = template("cuda.fprop_nchw").space(layer(144, 56, 3), SM_90).default
    assert (default.stage, default.vthread_w) == ("shared", 2)
    assert default.threads_w == 32, "a row of threads meets every bank once"


def test_what_cannot_run_is_named() -> None:
    far = Workload(pass_="fprop", batch=1, channels=1, input_size=(600, 600), kernel=(31, 31), dilation=(16, 16))
    with pytest.raises(NoTemplate, match="shared memory"):
        templates_for(far, SM_90)


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"block_h": 8, "tile_h": 7}, "tile_h does not divide block_h"),
        ({"stage": "shared", "tile_w": 2}, "columns are strided"),
        ({"stage": "registers"}, "columns are neighbours"),
        ({"planes": 32}, "more than 1024 threads"),
        ({"block_h": 64, "tile_h": 8, "vthread_w": 4, "threads_w": 19, "planes": 1}, "outputs wanted"),
        ({"tile_h": 14, "vthread_w": 4, "threads_w": 14, "planes": 16, "block_h": 56}, "more registers"),
    ],
)
def test_illegal_configurations_say_why(knobs: dict[str, object], reason: str) -> None:
    space = template("cuda.fprop_nchw").space(layer(144, 56, 3), SM_90)
    with pytest.raises(InvalidConfig, match=reason):
        space.check({**space.default.to_dict(), **knobs})
