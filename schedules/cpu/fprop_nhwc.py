"""fprop, NHWC, CPU.

Level one: a task is `block_h` rows of one image, in `block_c` channels; tasks are shared out over the threads.
Level two: a register tile is `tile_h` rows × `tile_w` columns × `vectors_c` vectors of channels, its sums in registers.
Between the two, tiles follow each other in `order`. `unroll`: all taps, those of a kernel row ("kw"), or none.
A result too large for the caches may go past them (`store`).

    image             task                               register tile
    ┌─────────┐       ┌──────┬───────────────┬───────┐          ┌───────┬───────┬───────┐
    │ block_h │       │ left │ interior: a   │ right │   tile_h │ v0 v1 │ v0 v1 │ v0 v1 │  v: a vector of channels;
    ├─────────┤  ──►  │ edge │ loop of tiles │ edge  │   ──►    ├───────┼───────┼───────┤  each x is loaded once, and
    │ block_h │       ├──────┼───────────────┼───────┤          │ v0 v1 │ v0 v1 │ v0 v1 │  added to all sums it meets
    └─────────┘       └──────┴───────────────┴───────┘          └───────┴───────┴───────┘
                                                                         tile_w
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

NAME = "cpu.fprop_nhwc"


def space(workload: Workload, target: Target) -> ConfigSpace:
    assert isinstance(target, CpuTarget)
    work = Gather.of_convolution(workload)
    block_h = sizes.preferred_rows(workload.output_size[0], batch=workload.batch, threads=target.threads)
    block_c = preferred_channels(work, block_h, batch=workload.batch, threads=target.threads)
    return ConfigSpace(
        NAME,
        Knob("block_h", sizes.row_blocks(workload.output_size[0])),
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
    """Parameters: x (n, H, W, C), w (C·M, KH, KW), bias (C·M) if there is one, y (n, OH, OW, C·M), workspace
    (vectors, 1, KH, KW, lanes)."""
    from dwconv.schedules.cpu.gather import schedule_gather

    assert isinstance(target, CpuTarget)
    work = Gather.of_convolution(workload)
    return schedule_gather(
        work,
        config,
        lanes=sizes.vector_lanes(work.channels, target),
        streamed_above=sizes.streamed_above(workload, target) if is_streamed(config) else None,
    )


TEMPLATE = ScheduleTemplate(
    name=NAME, device="cpu", pass_="fprop", layout="nhwc", misfit=sizes.misfit, space=space, schedule=schedule
)
