"""The CPU templates for NCHW: every way through a plane, biases, and what they leave to the NHWC ones."""

from __future__ import annotations

import dataclasses
import random

import pytest

from dwconv.problems.workload import Pass
from dwconv.schedules.template import templates_for
from tests.schedules.cpu_layers import SHAPES, TARGET, WIDE, assert_right, built, lying
from tests.turns import every


@pytest.mark.parametrize(
    ("pass_", "wanted"),
    [
        ("fprop", {"stage": "none", "unroll": "taps"}),
        ("fprop", {"stage": "scratch", "unroll": "taps", "planes": 4}),
        ("fprop", {"stage": "none", "unroll": "kw", "planes": 1}),
        ("dgrad", {"stage": "scratch", "unroll": "kw", "planes": 4}),
        ("wgrad", {"parallel": "planes", "stage": "scratch", "tile_h": 3}),
        ("wgrad", {"parallel": "channels", "stage": "none", "group_kh": 2, "group_kw": 1}),
    ],
)
@pytest.mark.parametrize("shape", every(2, ["multiplier", "wide image"]))
def test_every_way_through_a_plane(shape: str, pass_: Pass, wanted: dict[str, object]) -> None:
    """Rows of several vectors, with edges of their own; in place and in scratch memory; taps unrolled or in a loop."""
    workload = lying((SHAPES | {"wide image": WIDE})[shape].for_pass(pass_), "nchw")
    space = templates_for(workload, TARGET)[0].space(workload, TARGET)
    fits = [config for config in space if wanted.items() <= config.to_dict().items()]
    for config in random.Random(0).sample(fits, k=2):
        assert_right(built(workload, config), workload)


@pytest.mark.parametrize(
    ("pass_", "wanted"),
    [
        ("fprop", {"unroll": "taps"}),
        ("fprop", {"unroll": "kw"}),
        ("wgrad", {"parallel": "channels"}),
        ("wgrad", {"parallel": "planes"}),
    ],
)
def test_a_bias_in_nchw(pass_: Pass, wanted: dict[str, object]) -> None:
    for shape in (WIDE, SHAPES["multiplier"]):
        workload = lying(dataclasses.replace(shape, pass_=pass_, bias=True), "nchw")
        space = templates_for(workload, TARGET)[0].space(workload, TARGET)
        config = next(config for config in space if wanted.items() <= config.to_dict().items())
        assert_right(built(workload, config), workload)
