"""Tiles of columns that lie a dilation apart: right in every part of a row; a choice only where taps stay in a part."""

from __future__ import annotations

import pytest

from dwconv.problems.workload import Pass, Workload
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import templates_for
from tests.schedules.cpu_layers import TARGET, assert_right, built, layer
from tests.turns import in_turns

LAYERS = {
    "as large": layer(20, (9, 13), (3, 3), padding=((4, 4), (4, 4)), dilation=(4, 4)),
    "whole parts": layer(16, (7, 12), (3, 3), padding=((3, 3), (3, 3)), dilation=(3, 3)),
    "smaller": layer(34, (8, 20), (2, 5), padding=((0, 0), (0, 0)), dilation=(1, 3)),
    "padding of one side": layer(8, (5, 17), (3, 4), padding=((1, 1), (10, 3)), dilation=(1, 5)),
    "larger": layer(6, (6, 9), (3, 3), padding=((3, 3), (8, 12)), dilation=(3, 4)),
    "multiplier, bias": layer(5, (9, 11), (3, 3), padding=((3, 3), (3, 3)), dilation=(3, 3), multiplier=2, bias=True),
    "volume": layer(
        8, (4, 5, 13), (3, 3, 3), padding=((1, 1), (1, 1), (3, 3)), dilation=(1, 1, 3),
    ),
    "bfloat16": layer(20, (9, 13), (3, 3), padding=((4, 4), (4, 4)), dilation=(4, 4), dtype="bfloat16"),
}  # fmt: skip


def space_of(workload: Workload) -> ConfigSpace:
    return templates_for(workload, TARGET)[0].space(workload, TARGET)


def of_pass(name: str, pass_: Pass) -> Workload:
    workload = LAYERS[name]
    return workload.for_pass(pass_)


def near(workload: Workload, **wanted: int | str) -> Config:
    """The legal configuration with these values that is nearest to the default."""
    space = space_of(workload)
    return space.nearest(Config.of(space.template, **{**dict(space.default.values), **wanted}))


CUTS = [("taps", 2, 3), ("kw", 1, 2), ("taps", 1, 1), ("kw", 1, 3), ("taps", 2, 2)]
"""What is unrolled, and the rows and the columns of a tile."""
PASSES: list[tuple[str, Pass]] = [(name, pass_) for name in LAYERS for pass_ in ("fprop", "dgrad")]


@pytest.mark.parametrize(("of", "cut"), in_turns(PASSES, CUTS))
def test_every_part_is_right(of: tuple[str, Pass], cut: tuple[str, int, int]) -> None:
    (name, pass_), (unroll, tile_h, tile_w) = of, cut
    workload = of_pass(name, pass_)
    (step,) = (knob.values[-1] for knob in space_of(workload).knobs if knob.name == "tile_step")
    config = near(workload, tile_step=step, tile_w=tile_w, unroll=unroll, tile_h=tile_h)
    assert config.tile_step == step and config.unroll == unroll
    assert_right(built(workload, config), workload)


OTHERS = {
    "no dilation": layer(20, (9, 13), (3, 3), padding=((1, 1), (1, 1))),
    "taps next but one": layer(20, (9, 13), (3, 3), padding=((2, 2), (2, 2)), dilation=(2, 2)),
    "stride": layer(20, (9, 13), (3, 3), padding=((4, 4), (4, 4)), dilation=(4, 4), stride=(1, 2)),
    "padding between": layer(20, (9, 13), (3, 3), padding=((4, 4), (3, 3)), dilation=(4, 4)),
    "a tap": layer(20, (9, 13), (3, 1), padding=((4, 4), (0, 0)), dilation=(4, 4)),
    "a row": layer(20, (1, 40), (1, 3), padding=((0, 0), (4, 4)), dilation=(1, 4)),
    "narrower than a step": layer(20, (9, 4), (3, 3), padding=((4, 4), (4, 4)), dilation=(4, 4)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_there_is_no_choice_where_taps_lie_elsewhere(name: str) -> None:
    assert "tile_step" not in [knob.name for knob in space_of(OTHERS[name]).knobs]


def test_a_configuration_written_before_there_was_a_choice_is_the_same_program() -> None:
    workload = LAYERS["as large"]
    before = {name: value for name, value in space_of(workload).default.values if name != "tile_step"}
    one, other = (built(workload, Config.of("cpu.fprop_nhwc", **each)) for each in (before, before | {"tile_step": 1}))
    assert one.artifact.source == other.artifact.source
    assert space_of(workload).check({"template": "cpu.fprop_nhwc", **before}).tile_step == 1


def test_tiles_that_cannot_be_are_named() -> None:
    workload = LAYERS["as large"]
    space = space_of(workload)
    known = {**dict(space.default.values), "tile_step": 4, "tile_h": 1, "vectors_c": 1, "unroll": "kw"}
    assert "larger than what lies a step apart" in str(
        space.why_illegal(Config.of(space.template, **{**known, "tile_w": 6}))
    )
