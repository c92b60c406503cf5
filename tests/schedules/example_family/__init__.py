"""fprop, NHWC, CPU: the simplest loops.

Level one: a task is `block_h` rows of one image; tasks are shared out over the threads.
Level two: a register tile is `tile_w` neighbouring columns of one channel, its sums in registers.
Channels are the loop between the two.

    image             task                      register tile, tile_w = 4
    ┌─────────┐       ┌──────────────────┐
    │ block_h │       │ for every        │      ┌───┬───┬───┬───┐    each weight is loaded once,
    ├─────────┤  ──►  │   row, tile,     │ ──►  │ y │ y │ y │ y │    and multiplied into all
    │ block_h │       │   channel:       │      └───┴───┴───┴───┘    sums of the tile
    └─────────┘       └──────────────────┘
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cpu.shared.limits import sum_registers
from dwconv.schedules.cpu.shared.row_blocks import block_heights
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule
from dwconv.schedules.taps import Axis
from dwconv.schedules.template import ScheduleTemplate

if TYPE_CHECKING:
    from tvm import s_tir

NAME = "cpu.fprop_nhwc_example"


def space(workload: Workload, target: CpuTarget) -> ConfigSpace:
    registers = sum_registers(target)
    return ConfigSpace(
        NAME,
        Knob("block_h", block_heights(workload.output_size[0])),
        Knob("tile_w", [1, 2, 4, 8, 16, 32]),
        rules=[Rule(f"more sums in a tile than {registers} registers", lambda config: config.tile_w > registers)],
        preferred={"block_h": 8, "tile_w": 4},
    )


def schedule(workload: Workload, config: Config, target: CpuTarget) -> s_tir.Schedule:
    """x (n, H, W, C), w (C·M, KH, KW), bias (C·M) if there is one, y (n, OH, OW, C·M)."""
    from tvm import s_tir, tirx

    from dwconv.schedules.cpu.emit.vectors import Accumulators, Vectors
    from dwconv.schedules.cpu.emit.words import argument, load, parallel, store_rounded
    from dwconv.schedules.emit import BATCH, all_of, bind, ceil_div, inside, kernel, least, serial, when

    rows, columns = Axis.of_convolution(workload, 0), Axis.of_convolution(workload, 1)
    channels, block_h, tile_w = workload.out_channels, config.block_h, config.tile_w
    blocks = ceil_div(rows.outputs, block_h)
    n = tirx.Var(BATCH, "int32")
    with kernel() as builder:
        x = argument("x", (n, rows.inputs, columns.inputs, workload.channels), workload.dtype)
        w = argument("w", workload.weight_shape, workload.dtype)
        bias = argument("bias", (channels,), workload.dtype) if workload.bias else None
        y = argument("y", (n, rows.outputs, columns.outputs, channels), workload.dtype)

        for task in parallel("task", n * blocks):
            image, top = bind("image", task // blocks), bind("top", task % blocks * block_h)
            for row in serial("row", top, least(top + block_h, rows.outputs)):
                for tile in serial("tile", ceil_div(columns.outputs, tile_w)):
                    for c in serial("c", channels):
                        sums = Accumulators(Vectors(channels, 1), tile_w)
                        for kh in serial("kh", rows.taps):
                            for kw in serial("kw", columns.taps):
                                weight = bind("weight", load(w, c, kh, kw))
                                x_row = row * rows.up + kh * rows.step + rows.shift
                                for out in range(tile_w):
                                    column = tile * tile_w + out
                                    x_column = column * columns.up + kw * columns.step + columns.shift
                                    with when(all_of(inside(x_row, rows.inputs), inside(x_column, columns.inputs))):
                                        value = load(x, image, x_row, x_column, c // workload.multiplier)
                                        sums.add((out,), value * weight)
                        for (out,), total in sums.items():
                            column = tile * tile_w + out
                            with when(column < columns.outputs):
                                result = total if bias is None else total + load(bias, c)
                                store_rounded(y, result, image, row, column, c)
    return s_tir.Schedule(builder.get())


TEMPLATES = (ScheduleTemplate(name=NAME, device="cpu", pass_="fprop", layout="nhwc", space=space, schedule=schedule),)
