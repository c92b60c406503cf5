"""CPU kernels of long 1-D layers against the reference: blocks of columns as tasks, wide kernels in loops."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from dwconv.problems import reference
from dwconv.problems.workload import DTYPES, LAYOUTS, PASSES, Layout, Pass, Workload
from dwconv.schedules.space import Config
from tests.schedules.cpu_layers import TARGET, TARGETS, assert_right, built, layer, lying, run, template_of
from tests.turns import in_turns


def row(channels: int, length: int, taps: int, padding: tuple[int, int], **other: Any) -> Workload:
    sides = ((0, 0), padding)
    return layer(channels, (1, length), (1, taps), padding=sides, **{"dilation": (1, 1), **other})


ROWS = {
    "2 taps, causal": row(20, 211, 2, (1, 0)),
    "4 taps, causal and cropped later": row(5, 1501, 4, (3, 3), batch=1),
    "4 taps, dilation": row(18, 333, 4, (6, 0), dilation=(1, 2)),
    "4 taps, stride": row(16, 421, 4, (1, 2), stride=(1, 3)),
    "31 taps, same": row(17, 403, 31, (15, 15)),
    "31 taps, multiplier": row(4, 300, 31, (30, 0), multiplier=2, batch=1),
    "31 taps, dilation": row(3, 317, 31, (45, 45), dilation=(1, 3)),
    "128 taps, causal": row(6, 515, 128, (127, 0), batch=1),
    "200 taps, beyond the row": row(3, 150, 200, (199, 199)),
}


def configs(workload: Workload, vector_bytes: int = 64) -> list[Config]:
    """The default, in short blocks of columns; taps in loops, too, where there are such."""
    target = TARGETS[vector_bytes]
    space = template_of(workload, workload.layout, target=target).space(workload, target)
    knobs = {knob.name: knob.values for knob in space.knobs}
    start = space.default.to_dict()
    if workload.pass_ == "wgrad":
        start["parallel"] = "planes" if workload.layout == "nchw" else "images"
    else:
        start |= {"tile_h": 1} | ({"tile_w": knobs["tile_w"][1]} if "tile_w" in knobs else {})
    if "block_w" in knobs:
        start["block_w"] = knobs["block_w"][0]
    found = [start]
    for unroll in set(knobs.get("unroll", ())) & {"none", "group"}:
        looped = start | {"unroll": unroll} | ({"order": "hw"} if workload.pass_ == "wgrad" and "order" in knobs else {})
        if workload.layout == "nchw":
            looped["stage"] = "none" if workload.pass_ == "wgrad" else "scratch"
        if unroll == "none" and workload.pass_ == "wgrad":
            looped["tile_w"] = 1
        found.append(looped)
    return [space.nearest(Config.of(space.template, **{k: v for k, v in one.items() if k != "template"}))
            for one in found]  # fmt: skip


def cases() -> Iterator[Any]:
    for (turn, name), (number, pass_), layout in itertools.product(enumerate(ROWS), enumerate(PASSES), LAYOUTS):
        workload = lying(dataclasses.replace(ROWS[name], bias=bool(turn % 2)).for_pass(pass_), layout)
        for at, config in enumerate(configs(workload)):
            yield pytest.param(workload, config, id=f"{name}-{pass_}-{layout}-{config.to_dict().get('unroll')}-{at}")


@pytest.mark.parametrize(("workload", "config"), list(cases()))
def test_right(workload: Workload, config: Config) -> None:
    assert_right(built(workload, config), workload)
