"""dgrad, NHWC, CPU.

Level one: a task is `block_h` rows of one image of dx, in `block_c` channels; tasks are shared out over the threads.
Level two: a register tile is `tile_h` rows × `tile_w` columns × `vectors_c` vectors of channels, its sums in registers.
Tiles are multiples of the stride: each of their positions has its own taps, the same in every tile, and no others.
A result too large for the caches may go past them (`store`).

    dx, stride 2, kernel 3          register tile, tile_h = tile_w = 2
    ┌────┬────┬────┬────┐           ┌──────────────┬──────────────┐
    │ a b│ a b│ a b│ a b│           │ a: tap 1,1   │ b: taps 1,0  │      dy meets each tap of each position in its
    │ c d│ c d│ c d│ c d│    ──►    │              │     and 1,2  │      phase: 1 + 2 + 2 + 4 = 9 products for four
    ├────┼────┼────┼────┤           ├──────────────┼──────────────┤      dx, where all taps in all phases are 36
    │ a b│ a b│ a b│ a b│           │ c: taps 0,1  │ d: taps 0,0  │
    │ c d│ c d│ c d│ c d│           │     and 2,1  │ 0,2 2,0 2,2  │
    └────┴────┴────┴────┘           └──────────────┴──────────────┘
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dwconv.schedules.cpu import sizes
from dwconv.schedules.cpu.gather_space import (
    ORDERS,
    TILE_WIDTHS,
    channel_blocks,
    gather_rules,
    is_streamed,
    preferred_channels,
    preferred_tile,
    store_knob,
    unrolling,
)
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, ConfigSpace, Knob
from dwconv.schedules.template import ScheduleTemplate
from dwconv.target import CpuTarget, Target
from dwconv.workload import Workload

if TYPE_CHECKING:
    from tvm import s_tir

NAME = "cpu.dgrad_nhwc"


def space(workload: Workload, target: Target) -> ConfigSpace:
    assert isinstance(target, CpuTarget)
    work = Gather.of_input_gradient(workload)
    block_h = sizes.preferred_rows(workload.input_size[0], batch=workload.batch, threads=target.threads)
    block_c = preferred_channels(work, block_h, batch=workload.batch, threads=target.threads)
    return ConfigSpace(
        NAME,
        Knob("block_h", sizes.row_blocks(workload.input_size[0], multiple=workload.stride[0])),
        Knob("tile_h", sizes.tiles((1, 2, 3, 4), work.rows)),
        Knob("tile_w", sizes.tiles(TILE_WIDTHS, work.columns)),
        Knob("vectors_c", [1, 2, 3, 4]),
        Knob("order", ORDERS),
        Knob("block_c", channel_blocks(work.channels, target)),
        Knob("unroll", unrolling(work)),
        *sizes.thread_knob(workload, target),
        store_knob(work, workload, target),
        rules=gather_rules(work, target),
        preferred={
            "threads": target.threads, "store": "streamed",
            "block_h": block_h, "block_c": block_c, **preferred_tile(work, target),
        },
    )  # fmt: skip


def schedule(workload: Workload, config: Config, target: Target) -> s_tir.Schedule:
    """Parameters: dy (n, OH, OW, C·M), w (C·M, KH, KW), dx (n, H, W, C), workspace (vectors, M, KH, KW,
    lanes)."""
    from dwconv.schedules.cpu.gather import schedule_gather

    assert isinstance(target, CpuTarget)
    work = Gather.of_input_gradient(workload)
    return schedule_gather(
        work,
        config,
        lanes=sizes.vector_lanes(work.channels, target),
        streamed_above=sizes.streamed_above(workload, target) if is_streamed(config) else None,
    )


TEMPLATE = ScheduleTemplate(
    name=NAME, device="cpu", pass_="dgrad", layout="nhwc", misfit=sizes.misfit, space=space, schedule=schedule
)
