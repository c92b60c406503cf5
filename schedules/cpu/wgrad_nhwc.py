"""wgrad, NHWC, CPU.

Level one, `parallel="images"`: `tasks` tasks share out the blocks of `block_h` rows of all images; each sums up all
weights into its own part of the workspace, and the parts are then added in order. Or `parallel="channels"`: a task
owns `vectors_c` vectors of channels in all images, and there is nothing to add.
Level two: `group_kh` kernel rows × as many kernel columns as fit are summed in registers, `tile_h` rows × `tile_w`
columns at a time, along the rows or down a strip of columns (`order`): then what kernel rows share stays in the
first-level cache. Lines may be asked for some rows before (`prefetch`).

    x                            dy                    registers: group_kh × KW × vectors_c sums
    ┌─────────────────┐          ┌────────────┐        ┌──────┬──────┬──────┐
    │ ░░░░░░░         │          │            │        │ kw 0 │ kw 1 │ kw 2 │   each dy of a tile is loaded once,
    │ ░░░░░░░  rows   │    ×     │ ▓▓▓▓▓ row  │   ──►  ├──────┼──────┼──────┤   each x once a tile: it meets up to
    │ ░░░░░░░         │          │ tile_w     │        │      │      │      │   min(tile_w, KW) dy
    └─────────────────┘          └────────────┘        └──────┴──────┴──────┘
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dwconv.schedules.cpu import sizes
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule, Value
from dwconv.schedules.taps import Axis
from dwconv.schedules.template import ScheduleTemplate
from dwconv.target import CpuTarget, Target
from dwconv.workload import Workload

if TYPE_CHECKING:
    from tvm import s_tir

NAME = "cpu.wgrad_nhwc"
SMALL_IMAGE = 256
"""Pixels of dy up to which small kernels are better shared out by channels."""


def space(workload: Workload, target: Target) -> ConfigSpace:
    assert isinstance(target, CpuTarget)
    kernel_h, kernel_w = workload.kernel
    out_h, out_w = workload.output_size
    vectors = sizes.vector_count(workload.out_channels, target)
    registers = sizes.sum_registers(target)
    # Whole images, if there are enough: then a strip is cut least often, and the rows of x at its ends read twice.
    whole = workload.batch >= 4 * target.threads
    block_h = out_h if whole else sizes.preferred_rows(out_h, batch=workload.batch, threads=target.threads)
    # What a task by images does besides, clearing and adding up partial sums, shows where images are small.
    by_channels = kernel_w <= 3 and out_h * out_w <= SMALL_IMAGE and vectors % 2 == 0 and vectors >= 16 * target.threads
    return ConfigSpace(
        NAME,
        Knob("parallel", ["images", "channels"]),
        Knob("tasks", [target.threads * share for share in (1, 2, 4, 8)]),
        Knob("block_h", sizes.row_blocks(out_h)),
        Knob("group_kh", range(1, min(kernel_h, 7) + 1)),
        Knob("tile_h", tile_heights(workload, target), absent=1),
        Knob("tile_w", [size for size in (1, 2, 3, 4, 7, 8, 14) if size <= out_w]),
        Knob("vectors_c", [count for count in (1, 2, 3, 4) if count <= vectors]),
        Knob("order", ["hw", "wh"]),
        Knob("unroll", ["kw", "none"] if kernel_w >= sizes.WIDE_KERNEL or workload.multiplier > 1 else ["kw"]),
        *sizes.thread_knob(workload, target),
        sizes.prefetch_knob(workload),
        rules=[
            Rule(
                "tasks that own channels make no partial sums and no row blocks",
                lambda config: (
                    config.parallel == "channels" and (config.tasks != target.threads or config.block_h != out_h)
                ),
            ),
            Rule(
                "the vectors of channels do not divide into tasks",
                lambda config: config.parallel == "channels" and vectors % config.vectors_c != 0,
            ),
            Rule(
                f"more sums than {registers} registers",
                lambda config: config.group_kh * group_kw(workload, config, target) * config.vectors_c > registers,
            ),
            Rule(
                "more dy in a tile than registers hold",
                lambda config: config.tile_h * config.tile_w * config.vectors_c > registers - 8,
            ),
            Rule(
                "taps in loops are summed one at a time",
                lambda config: (
                    config.unroll == "none"
                    and (config.group_kh, config.tile_h, config.tile_w, config.order) != (1, 1, 1, "hw")
                ),
            ),
            Rule(
                "taps in loops read one column at a time: there is little to ask for",
                lambda config: config.unroll == "none" and sizes.rows_ahead(config) > 0,
            ),
            Rule(
                "too much code: it takes long to compile",
                lambda config: code_size(workload, config, target) > sizes.MOST_CODE,
            ),
        ],
        preferred={
            "threads": target.threads,
            **preferred_tile(workload, target), "unroll": "kw",
            **({"parallel": "channels", "tasks": target.threads, "block_h": out_h} if by_channels else
               {"parallel": "images", "tasks": 4 * target.threads, "block_h": block_h}),
        },
    )  # fmt: skip


def preferred_tile(workload: Workload, target: CpuTarget) -> dict[str, Value]:
    """Sums for two thirds of the registers, or nearly. Down a strip of columns a small kernel finds the x that the row
    above has read in the first-level cache; a wide one reads too much meanwhile, and a single row shares nothing."""
    kernel_h, kernel_w = workload.kernel
    at_a_time = max(1, 2 * sizes.sum_registers(target) // 3 // kernel_w)
    if kernel_h == 1 and kernel_w <= 7:
        return {"order": "hw", "group_kh": 1, "tile_h": 1, "tile_w": 3, "vectors_c": at_a_time}
    if kernel_w == 1:
        return {"order": "wh", "group_kh": 7, "tile_h": 1, "tile_w": 4, "vectors_c": 2}
    if kernel_w <= 3 and is_ragged(workload, target):
        return {"order": "hw", "group_kh": 3, "tile_h": 3, "tile_w": 2, "vectors_c": 2}
    if kernel_w <= 3:
        dense = {"tile_w": 14, "vectors_c": 1, "prefetch": 3}
        strided = {"tile_w": 4, "vectors_c": 2, "prefetch": 0}
        return {"order": "wh", "group_kh": 3, "tile_h": 1, **(dense if workload.stride == (1, 1) else strided)}
    if kernel_w <= 7:
        return {"order": "wh", "group_kh": at_a_time, "tile_h": 1, "tile_w": 7, "vectors_c": 1}
    if kernel_w <= 12:
        return {"order": "hw", "group_kh": 3, "tile_h": 1, "tile_w": 4, "vectors_c": 1}
    return {"order": "hw", "group_kh": 1, "tile_h": 1, "tile_w": 7, "vectors_c": 1}


def is_ragged(workload: Workload, target: CpuTarget) -> bool:
    """Whether channels fill no whole vectors: then most of those that are loaded lie across two cache lines."""
    return workload.out_channels % sizes.vector_lanes(workload.out_channels, target) != 0


def tile_heights(workload: Workload, target: CpuTarget) -> list[int]:
    """Rows of a tile. More than one load x less often, which pays where every load takes as long as two."""
    return [rows for rows in (1, 2, 3, 4) if rows <= workload.output_size[0]] if is_ragged(workload, target) else [1]


def group_kw(workload: Workload, config: Config, target: CpuTarget) -> int:
    """Kernel columns that are summed at the same time: all, or the largest equal parts that registers hold."""
    taps = workload.kernel[1]
    if config.unroll == "none":
        return 1
    room = max(1, sizes.sum_registers(target) // (config.group_kh * config.vectors_c))
    parts = -(-taps // room)
    return -(-taps // parts)


def code_size(workload: Workload, config: Config, target: CpuTarget) -> int:
    """About how many vector instructions there are in the code of all tiles."""
    load = sizes.load_cost(workload.multiplier)
    if config.unroll == "none":
        return config.vectors_c * (2 + load)
    whole, left = divmod(sizes.vector_count(workload.out_channels, target), config.vectors_c)
    vectors = config.vectors_c * (whole > 0) + left
    columns, width = Axis.of_convolution(workload, 1), group_kw(workload, config, target)
    kernel_rows = 1 if config.group_kh == 1 else workload.kernel[0]
    groups = -(-kernel_rows // config.group_kh)
    code = 0
    for kw in range(0, columns.taps, width):
        taps = min(width, columns.taps - kw)
        tiles, reads, products = sizes.row_code(columns.part(kw, taps), config.tile_w)
        for height in {config.tile_h, 1}:  # whole tiles and rows that are left
            rows = kernel_rows + groups * (height - 1)
            code += vectors * (groups * height * tiles * config.tile_w + rows * load * reads)
            code += vectors * kernel_rows * height * products
            code += rows * tiles * config.group_kh * taps * vectors  # all sums meet after every tile and row test
    return code


def schedule(workload: Workload, config: Config, target: Target) -> s_tir.Schedule:
    """Parameters: x (n, H, W, C), dy (n, OH, OW, C·M), dw (C·M, KH, KW), dbias (C·M) if there is a bias and, for
    ``parallel="images"``, workspace (tasks, KH · KW and one more for dbias, C·M in whole vectors)."""
    from dwconv.schedules.cpu.correlate import schedule_correlation

    assert isinstance(target, CpuTarget)
    return schedule_correlation(
        workload,
        config,
        lanes=sizes.vector_lanes(workload.out_channels, target),
        group_kw=group_kw(workload, config, target),
    )


TEMPLATE = ScheduleTemplate(
    name=NAME, device="cpu", pass_="wgrad", layout="nhwc", misfit=sizes.misfit, space=space, schedule=schedule
)
