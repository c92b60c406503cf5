"""The wgrad template of the CPU in NHWC: every way to share out the work, tiles of rows, lines requested ahead."""

from __future__ import annotations

import dataclasses

import pytest

from dwconv.problems.workload import Padding
from dwconv.schedules.space import Config
from dwconv.schedules.template import templates_for
from tests.schedules.cpu_layers import SHAPES, TARGET, assert_right, built, layer
from tests.turns import in_turns


@pytest.mark.parametrize("parallel", ["images", "channels"])
@pytest.mark.parametrize(("unroll", "bias"), in_turns(["kw", "none"], [True, False]))
def test_every_way_to_share_out_wgrad(parallel: str, unroll: str, bias: bool) -> None:
    workload = dataclasses.replace(SHAPES["multiplier"], bias=bias).for_pass("wgrad")
    space = templates_for(workload, TARGET)[0].space(workload, TARGET)
    config = next(config for config in space if (config.parallel, config.unroll) == (parallel, unroll))
    kernel = built(workload, config)
    assert_right(kernel, workload)
    assert len(kernel.artifact.workspaces) == (1 if parallel == "images" else 0)


@pytest.mark.parametrize(("sampled", "ahead"), in_turns([(2, 1), (1, 1), (1, 2)], [3, 6], quick_of=2))
def test_wgrad_requests_lines_ahead_and_no_others(ahead: int, sampled: tuple[int, int]) -> None:
    """On what stays in the cache there is nothing to gain: the knob is there in large workloads alone."""
    stride, multiplier = sampled
    small = layer(34, (17, 14), (3, 3), padding=((1, 1), (1, 1)), stride=(stride, stride), multiplier=multiplier)
    small = small.for_pass("wgrad")
    large = dataclasses.replace(small, batch=2000)
    without, space = (templates_for(each, TARGET)[0].space(each, TARGET) for each in (small, large))
    assert "prefetch" not in without.default.to_dict()
    rows = {"block_h": 4, "tile_h": 2 if multiplier == 1 else 1}
    wanted = {**rows, "tile_w": 3, "vectors_c": 1, "unroll": "kw", "prefetch": ahead}
    ahead_kernel = built(large, space.check({**space.default.to_dict(), **wanted}))
    assert "llvm.prefetch" in ahead_kernel.artifact.source
    assert_right(ahead_kernel, small)
    before = {name: value for name, value in space.default.values if name != "prefetch"}
    assert "llvm.prefetch" not in built(large, Config.of(space.template, **before)).artifact.source


@pytest.mark.parametrize(("group_kh", "parallel"), in_turns([3, 1, 2], ["channels", "images"], quick_of=3))
def test_tiles_of_several_rows_of_dy_and_rows_that_are_left(parallel: str, group_kh: int) -> None:
    workload = layer(24, (9, 10), (4, 3), padding=((2, 1), (1, 1)), stride=(1, 2), bias=True).for_pass("wgrad")
    space = templates_for(workload, TARGET)[0].space(workload, TARGET)
    rows, tasks = (9, 2) if parallel == "channels" else (4, 8)
    fields = {"parallel": parallel, "tasks": tasks, "block_h": rows, "vectors_c": 1, "tile_w": 2, "group_kh": group_kh}
    for tile_h in (2, 4):
        assert_right(built(workload, space.check(space.default.to_dict() | fields | {"tile_h": tile_h})), workload)


@pytest.mark.parametrize("group_kh", [1, 2])
@pytest.mark.parametrize("padding", [((0, 0), (0, 0)), ((4, 3), (5, 0))])
def test_a_gradient_of_the_bias_sums_outputs_that_meet_padding_alone_too(group_kh: int, padding: Padding) -> None:
    workload = layer(20, (9, 8), (3, 2), padding=padding, bias=True).for_pass("wgrad")
    space = templates_for(workload, TARGET)[0].space(workload, TARGET)
    for parallel in ("images", "channels"):
        config = next(config for config in space if (config.parallel, config.group_kh) == (parallel, group_kh))
        assert_right(built(workload, config), workload)
