"""CPU kernels of long 1-D layers against the reference: blocks of columns as tasks, wide kernels in loops."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch

from dwconv.kernels.kernel import Kernel
from dwconv.measure.verify.cases import make_case
from dwconv.measure.verify.verify import verify
from dwconv.problems import reference
from dwconv.problems.kernel_inputs import operands
from dwconv.problems.workload import LAYOUTS, PASSES, DType, Layout, Pass, Workload
from dwconv.schedules.cpu.shared.limits import WIDE_KERNEL
from dwconv.schedules.space import Config, ConfigSpace
from tests.schedules.cpu_layers import (
    TARGET,
    TARGETS,
    assert_right,
    assert_stores_in_bounds,
    built,
    layer,
    lying,
    run,
    template_of,
)
from tests.turns import in_turns, slow


def row(channels: int, length: int, taps: int, padding: tuple[int, int], **other: Any) -> Workload:
    sides = ((0, 0), padding)
    return layer(channels, (1, length), (1, taps), padding=sides, **{"dilation": (1, 1), **other})


ROWS = {
    "2 taps, causal": row(20, 211, 2, (1, 0)),
    "4 taps, causal and cropped later": row(5, 1501, 4, (3, 3), batch=1),
    "4 taps, dilation": row(18, 333, 4, (6, 0), dilation=(1, 2)),
    "4 taps, stride": row(16, 421, 4, (1, 2), stride=(1, 3)),
    "16 taps, stride 8": row(5, 521, 16, (4, 4), stride=(1, 8)),
    "10 taps, stride 5": row(3, 433, 10, (0, 0), stride=(1, 5), multiplier=2),
    "3 taps, stride 12": row(4, 615, 3, (1, 1), stride=(1, 12)),
    "19 taps, same": row(17, 403, 19, (9, 9)),
    "19 taps, multiplier": row(4, 300, 19, (18, 0), multiplier=2, batch=1),
    "19 taps, dilation": row(3, 317, 19, (27, 27), dilation=(1, 3)),
    "128 taps, causal": row(6, 515, 128, (127, 0), batch=1),
    "200 taps, beyond the row": row(3, 150, 200, (199, 199)),
}
"""19 taps are wide, and leave some beside whole groups. More of them only take longer to compile."""


QUICK: dict[str, list[tuple[Pass, Layout]]] = {
    "2 taps, causal": [("fprop", "nhwc"), ("wgrad", "nchw")],
    "4 taps, causal and cropped later": [("fprop", "nchw"), ("dgrad", "nhwc")],
    "4 taps, dilation": [("wgrad", "nhwc")],
    "16 taps, stride 8": [("fprop", "nchw"), ("dgrad", "nchw"), ("wgrad", "nchw")],
    "10 taps, stride 5": [("fprop", "nchw"), ("dgrad", "nchw")],
    "19 taps, same": [("dgrad", "nhwc")],
    "19 taps, multiplier": [("wgrad", "nchw"), ("fprop", "nchw")],
    "19 taps, dilation": [("wgrad", "nhwc")],
    "128 taps, causal": [("fprop", "nhwc"), ("dgrad", "nchw")],
}


def space_of(workload: Workload, *, vector_bytes: int = 64) -> ConfigSpace:
    target = TARGETS[vector_bytes]
    return template_of(workload, workload.layout, target=target).space(workload, target)


def config_of(workload: Workload, *, in_loops: bool, vector_bytes: int = 64) -> Config:
    """In short blocks of columns, with taps in loops or not."""
    space = space_of(workload, vector_bytes=vector_bytes)
    knobs = {knob.name: knob.values for knob in space.knobs}
    start: dict[str, Any] = dict(space.default.values)
    if "block_w" in knobs:
        least = 1 if workload.layout == "nhwc" else workload.kernel[-1]  # else there are too many partial sums
        start["block_w"] = next((width for width in knobs["block_w"] if int(width) >= least), knobs["block_w"][-1])
    if workload.pass_ == "wgrad":
        start["parallel"] = "planes" if workload.layout == "nchw" else "images"
    if in_loops:
        start["unroll"] = "group" if workload.pass_ == "wgrad" else "none"
        if workload.layout == "nchw":
            start["stage"] = "none" if workload.pass_ == "wgrad" else "scratch"
        elif workload.pass_ == "wgrad":
            start |= {"order": "hw", "group_kh": 1, "tile_w": 3}
    elif "unroll" in knobs:
        start["unroll"] = knobs["unroll"][0]
    config = space.nearest(Config.of(space.template, **start))
    assert not in_loops or config.unroll == start["unroll"]
    return config


def cases() -> Iterator[Any]:
    for (turn, name), pass_, layout in itertools.product(enumerate(ROWS), PASSES, LAYOUTS):
        workload = lying(dataclasses.replace(ROWS[name], bias=bool(turn % 2)).for_pass(pass_), layout)
        marks = () if (pass_, layout) in QUICK.get(name, ()) else (pytest.mark.slow,)
        # Groups of taps of vectors that are gathered, lane by lane, are too much code.
        has_loops = workload.kernel[-1] >= WIDE_KERNEL and (pass_, layout, workload.multiplier) != ("wgrad", "nhwc", 2)
        has_loops &= layout == "nhwc" or workload.stride[-1] == 1
        is_long = workload.kernel[-1] >= 128  # unrolled, these compile for half a minute, and no search has them
        for in_loops in (True,) if is_long else (False, True) if has_loops else (False,):
            words = f"{name}-{pass_}-{layout}{'-in loops' * in_loops}"
            yield pytest.param(workload, in_loops, id=words, marks=marks)


@pytest.mark.parametrize(("workload", "in_loops"), list(cases()))
def test_right(workload: Workload, in_loops: bool) -> None:
    assert_right(built(workload, config_of(workload, in_loops=in_loops)), workload)


@pytest.mark.parametrize("stage", ["none", "scratch"])
@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("name", ["16 taps, stride 8", slow("10 taps, stride 5"), slow("3 taps, stride 12")])
def test_a_row_with_a_long_stride_touches_nothing_beside_it(name: str, pass_: Pass, stage: str) -> None:
    """In place, and split by phase in scratch memory. Guard bands lie around every tensor."""
    workload = lying(ROWS[name].for_pass(pass_), "nchw")
    space = space_of(workload)
    whole = (workload.input_size if pass_ == "dgrad" else workload.output_size)[1]
    wanted = {**dict(space.default.values), "stage": stage, **({"block_w": whole} if stage == "scratch" else {})}
    kernel = built(workload, config := space.check(wanted | {"template": space.template}))
    assert config.stage == stage and kernel.artifact.candidate.template.layout == "nchw"
    for data in ("integers", "normal"):
        assert (verdict := verify(kernel, make_case(workload, data=data))).right, verdict.reason


@pytest.mark.parametrize(("pass_", "layout"), in_turns(PASSES, LAYOUTS))
@pytest.mark.parametrize("dtype", ["bfloat16", slow("float16")])
def test_right_in_16_bits(pass_: Pass, layout: Layout, dtype: DType) -> None:
    workload = lying(dataclasses.replace(ROWS["19 taps, same"], dtype=dtype, bias=True).for_pass(pass_), layout)
    assert_right(built(workload, config_of(workload, in_loops=True)), workload)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("taps", [4, 19, 128])
def test_sums_are_stored_within_their_memory(taps: int, layout: Layout) -> None:
    workload = lying(row(6, 515, taps, (taps - 1, 0)).for_pass("wgrad"), layout)
    assert_stores_in_bounds(workload, config_of(workload, in_loops=taps >= WIDE_KERNEL))


@cache
def groups_of_taps(layout: Layout, vector_bytes: int) -> tuple[Workload, Kernel]:
    """Two tests look at it: to compile it takes seconds."""
    workload = lying(ROWS["19 taps, same"].for_pass("wgrad"), layout)
    config = config_of(workload, in_loops=True, vector_bytes=vector_bytes)
    return workload, built(workload, config, TARGETS[vector_bytes])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("vector_bytes", [32, slow(16)])
def test_groups_of_taps_with_narrower_vectors(vector_bytes: int, layout: Layout) -> None:
    workload, kernel = groups_of_taps(layout, vector_bytes)
    assert_right(kernel, workload)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_groups_of_taps_add_what_meets_and_nothing_else(layout: Layout) -> None:
    """An infinity or a NaN at either end of a row, of x or of dy, goes to the taps that meet it alone."""
    workload, kernel = groups_of_taps(layout, 32)
    for value in (float("inf"), float("nan")):
        x, dy = operands(workload, data="integers", seed=3)
        x[0, 0, 0, 0] = x[1, 1, 0, -1] = dy[0, 2, 0, 0] = dy[1, 3, 0, -1] = value
        (expected,) = reference.reference(workload, x, dy)
        (result,) = run(kernel, workload, (x, dy))
        assert torch.equal(result.isnan(), expected.isnan())
        assert torch.equal(result.nan_to_num(), expected.float().nan_to_num())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("taps", [4, 31, 128])
def test_a_long_row_alone_is_work_for_every_thread(pass_: Pass, layout: Layout, taps: int) -> None:
    """Of few channels, too, and chosen at once, however long the row is."""
    target = dataclasses.replace(TARGET, threads=5)
    workload = lying(row(3, 1 << 20, taps, (taps - 1, 0), batch=1).for_pass(pass_), layout)
    chosen = template_of(workload, layout, target=target)
    config = chosen.space(workload, target).default
    work = importlib.import_module(chosen.estimate_us.__module__).cpu_work(workload, config, target)
    assert work.tasks >= 4 * target.threads and work.share <= 1.25 / target.threads


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
def test_a_record_that_says_nothing_of_blocks_has_whole_rows(pass_: Pass, layout: Layout) -> None:
    workload = lying(ROWS["4 taps, causal and cropped later"].for_pass(pass_), layout)
    space = space_of(workload)
    columns = (workload.input_size if pass_ == "dgrad" else workload.output_size)[1]
    whole = space.check(space.default.to_dict() | {"block_w": columns})
    silent = {name: value for name, value in whole.to_dict().items() if name != "block_w"}
    assert space.check(silent) == whole
    images = layer(16, (12, 96), (3, 3), padding=((1, 1), (1, 1)))
    assert "block_w" not in space_of(lying(images.for_pass(pass_), layout)).default.to_dict()
