"""The knobs of the NHWC weight gradient, the rules that make a configuration illegal, and where a search starts. No
TVM here."""

from __future__ import annotations

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cpu.shared.limits import (
    WIDE_KERNEL,
    channel_lanes,
    code_within_limit,
    fills_cache_lines,
    sum_registers,
    thread_knobs,
    vector_count,
    vector_registers,
)
from dwconv.schedules.cpu.shared.row_blocks import block_heights, preferred_block, preferred_width, width_knob
from dwconv.schedules.cpu.shared.weight_gradient import WeightGradient
from dwconv.schedules.cpu.wgrad_nhwc.cut import WeightCut
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule, Value
from dwconv.schedules.taps import HEIGHT

SMALL_IMAGE = 256
"""Pixels of dy up to which small kernels are better shared out by channels."""

LEAST_WIDTH_NHWC = 16
"""Columns of a block of a single row: few are read nearly as they lie."""

LARGE_BYTES = 4 << 20
"""More than the second-level caches of a few cores hold: tiles wait for the last one, or for memory."""


def weight_gradient_space(name: str, workload: Workload, target: CpuTarget) -> ConfigSpace:
    work = WeightGradient.of(workload)
    out_h, out_w = work.rows.outputs, work.columns.outputs
    return ConfigSpace(
        name,
        Knob("parallel", ["images", "channels"]),
        Knob("tasks", [target.threads * share for share in (1, 2, 4, 8)]),
        Knob("block_h", block_heights(out_h)),
        width_knob(work.axes, least=LEAST_WIDTH_NHWC),
        Knob("group_kh", range(1, min(work.rows.taps, 7) + 1)),
        Knob("tile_h", tile_heights(work, target), absent=1),
        Knob("tile_w", [size for size in (1, 2, 3, 4, 7, 8, 14) if size <= out_w]),
        Knob("vectors_c", [count for count in (1, 2, 3, 4) if count <= vectors_in(work, target)]),
        Knob("order", ["hw", "wh"]),
        Knob("unroll", unrolling(work)),
        *thread_knobs(workload, target),
        prefetch_knob(workload),
        rules=weight_gradient_rules(work, target),
        preferred={
            "threads": target.threads,
            **preferred_tile(work, target),
            "unroll": "kw",
            **preferred_tasks(work, target, batch=workload.batch * work.depths.outputs),
            **(preferred_row(work, workload, target) if work.axes.is_row else {}),
        },
    )


def unrolling(work: WeightGradient) -> list[str]:
    """Which kernel columns are unrolled: all, those of a group, or none. Groups are in a loop where images are single
    rows: then a wide kernel has many of them."""
    if work.columns.taps < WIDE_KERNEL and work.multiplier == 1:
        return ["kw"]
    return ["kw", "group", "none"] if work.axes.is_row and work.columns.taps >= WIDE_KERNEL else ["kw", "none"]


def most_dy(target: CpuTarget) -> int:
    """Vectors of dy that a tile may hold."""
    return sum_registers(target) - 8


def tile_heights(work: WeightGradient, target: CpuTarget) -> list[int]:
    """Rows of a tile. More than one load x less often, which pays where every load takes as long as two."""
    return [rows for rows in (1, 2, 3, 4) if rows <= work.rows.outputs] if is_ragged(work, target) else [1]


def is_ragged(work: WeightGradient, target: CpuTarget) -> bool:
    """Whether channels fill no whole vectors: then most of those that are loaded lie across two cache lines."""
    return work.channels % channel_lanes(work.channels, target) != 0


def vectors_in(work: WeightGradient, target: CpuTarget) -> int:
    """Vectors of channels."""
    return vector_count(work.channels, channel_lanes(work.channels, target))


def prefetch_knob(workload: Workload) -> Knob:
    """How many rows ahead lines are prefetched: the rows of a strip follow each other a pitch apart, which CPUs do not
    foresee. Measured in turns, 144×56² k3, tiles of 7 × 2: from memory 608 µs, 3 ahead 540; 32×112²: 568 and 507;
    192×28²: 168 and 153; 96×112² stride 2: 953 and 1075."""
    waits = workload.bytes > LARGE_BYTES and workload.output_size[HEIGHT] >= 8
    return Knob("prefetch", [0, 3, 6] if waits else [], absent=0)


def weight_gradient_rules(work: WeightGradient, target: CpuTarget) -> list[Rule]:
    def cut(config: Config) -> WeightCut:
        return WeightCut(work, config, target)

    out_h, vectors, registers = work.rows.outputs, vectors_in(work, target), sum_registers(target)
    return [
        Rule(
            "tasks that own channels make no partial sums and no blocks",
            lambda config: (
                config.parallel == "channels"
                and (config.tasks != target.threads or config.block_h != out_h or cut(config).column_blocks > 1)
            ),
        ),
        Rule(
            "the vectors of channels do not divide into tasks",
            lambda config: config.parallel == "channels" and vectors % config.vectors_c != 0,
        ),
        Rule(f"more sums than {registers} registers", lambda config: cut(config).sums > registers),
        Rule(
            "more dy in a tile than registers hold",
            lambda config: config.tile_h * config.tile_w * config.vectors_c > most_dy(target),
        ),
        Rule(
            "taps in loops are summed one at a time",
            lambda config: (
                config.unroll == "none"
                and (config.group_kh, config.tile_h, config.tile_w, config.order) != (1, 1, 1, "hw")
            ),
        ),
        Rule(
            "groups of taps in a loop go along a single row",
            lambda config: config.unroll == "group" and config.order != "hw",
        ),
        Rule(
            "taps in loops read one column at a time: there is little to prefetch",
            lambda config: config.unroll != "kw" and cut(config).prefetch > 0,
        ),
        code_within_limit(lambda config: cut(config).code_size),
    ]


def preferred_tasks(work: WeightGradient, target: CpuTarget, *, batch: int) -> dict[str, Value]:
    """By images, unless these are small: then clearing and adding up partial sums, which a task by images does besides,
    shows. Whole images, if there are enough: then a strip is cut least often, and the rows of x at its ends read twice.
    """
    out_h, out_w = work.rows.outputs, work.columns.outputs
    vectors, threads = vectors_in(work, target), target.threads
    if work.columns.taps <= 3 and out_h * out_w <= SMALL_IMAGE and vectors % 2 == 0 and vectors >= 16 * threads:
        return {"parallel": "channels", "tasks": threads, "block_h": out_h}
    block_h = out_h if batch >= 4 * threads else preferred_block(out_h, batch=batch, threads=threads)
    return {"parallel": "images", "tasks": 4 * threads, "block_h": block_h}


def preferred_row(work: WeightGradient, workload: Workload, target: CpuTarget) -> dict[str, Value]:
    """Where images are single rows: blocks of columns. Of a small kernel so short ones that they are read nearly as
    they lie; of a wider one, whose strip of channels stays in the first-level cache while groups of taps go over it.

    Measured with AVX2, one thread, 1536×2048 k4: blocks of 32 1690 µs, of 128 1880, of 1024 2780."""
    is_wide = work.columns.taps >= WIDE_KERNEL
    most = 256 if is_wide else 32
    width = preferred_width(work.axes, tasks=workload.batch, threads=target.threads, most=most, least=LEAST_WIDTH_NHWC)
    shared: dict[str, Value] = {
        "parallel": "images",
        "tasks": 4 * target.threads,
        "block_h": work.rows.outputs,
        "block_w": width,
    }
    tile: dict[str, Value] = {"order": "hw", "group_kh": 1, "tile_h": 1, "tile_w": 3 if is_wide else 4, "vectors_c": 1}
    return {**shared, **tile, "unroll": "group" if is_wide else "kw", "prefetch": 0}


def preferred_tile(work: WeightGradient, target: CpuTarget) -> dict[str, Value]:
    """Sums in all registers but those for dy, or nearly. Down a strip of columns a small kernel finds the x that the
    row above has read in the first-level cache; a wide one reads too much meanwhile, and a single row shares nothing.

    With vectors of half a cache line, and few registers, a small kernel takes two of them. Measured with AVX2, one
    thread, groups of 2 rows, tiles of 2 × 2 against 3 rows, 4 × 1: 192×28² k3 610 and 690 µs, 576×14² 460 and 510,
    stride 2 360 and 580. Groups of 2 rows against 1 with k5: 672×14² 800 and 1600, 240×28² stride 2 470 and 600."""
    kernel_h, kernel_w = work.rows.taps, work.columns.taps
    at_a_time = max(1, (vector_registers(target) - most_dy(target)) // kernel_w)
    if kernel_h == 1 and kernel_w <= 7:
        return {"order": "hw", "group_kh": 1, "tile_h": 1, "tile_w": 3, "vectors_c": at_a_time}
    if kernel_w == 1:
        return {"order": "wh", "group_kh": 7, "tile_h": 1, "tile_w": 4, "vectors_c": 2}
    if kernel_w <= 3 and is_ragged(work, target):
        return {"order": "hw", "group_kh": 3, "tile_h": 3, "tile_w": 2, "vectors_c": 2}
    if kernel_w <= 3:
        dense = {"tile_w": 14, "vectors_c": 1, "prefetch": 3}
        strided = {"tile_w": 4, "vectors_c": 2, "prefetch": 0}
        is_dense = (work.rows.up, work.columns.up) == (1, 1)
        if most_dy(target) < 8 and not fills_cache_lines(target):
            tile = {"tile_h": 1, "tile_w": 2, "vectors_c": 2}
            return {"order": "wh", "group_kh": 2, **tile, "prefetch": 3 if is_dense else 0}
        return {"order": "wh", "group_kh": 3, "tile_h": 1, **(dense if is_dense else strided)}
    if kernel_w <= 7:
        return {"order": "wh", "group_kh": at_a_time, "tile_h": 1, "tile_w": 7, "vectors_c": 1}
    if kernel_w <= 12:
        return {"order": "hw", "group_kh": 3, "tile_h": 1, "tile_w": 4, "vectors_c": 1}
    return {"order": "hw", "group_kh": 1, "tile_h": 1, "tile_w": 7, "vectors_c": 1}
