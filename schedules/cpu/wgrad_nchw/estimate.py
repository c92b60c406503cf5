"""The estimated cost of the NCHW weight gradient, from plain integers. No TVM here."""

from __future__ import annotations

import math

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cpu.shared.cost import (
    CpuWork,
    ScratchWork,
    Traffic,
    column_tiles,
    conversions,
    largest_share,
    lines_of_columns,
    price,
    read_work,
)
from dwconv.schedules.cpu.shared.limits import PARALLEL_SUMS, threads_of, vector_registers
from dwconv.schedules.cpu.shared.weight_gradient import x_rows_read
from dwconv.schedules.cpu.wgrad_nchw.cut import WgradNchwCut
from dwconv.schedules.space import Config


def estimate_us(workload: Workload, config: Config, target: CpuTarget) -> float:
    return price(cpu_work(workload, config, target), target)


def cpu_work(workload: Workload, config: Config, target: CpuTarget) -> CpuWork:
    cut = WgradNchwCut.of(workload, config, target)
    work, rows, columns, lanes = cut.work, cut.work.rows, cut.work.columns, cut.lanes
    images, taps, threads = workload.batch * work.channels, math.prod(work.axes.taps), threads_of(config, target)
    planes = images * work.depths.live_pairs  # pairs of a plane of dy and one of x
    by_planes = config.parallel == "planes"
    parts = images * cut.column_blocks if by_planes else 0
    tasks = parts or work.channels
    across, groups = column_tiles(columns, lanes), _tap_groups(cut)
    met = rows.live_pairs  # pairs of a row of dy and a kernel row
    products = planes * met * columns.taps * across.tiles
    x_rows = planes * x_rows_read(rows, group_kh=config.group_kh, tile_h=config.tile_h) * columns.taps
    dy_loads = planes * groups * rows.outputs * across.tiles
    tiles = planes * groups * cut.blocks * -(-config.block_h // config.tile_h) * across.tiles
    loads_each, shuffles_each = read_work(columns, lanes=lanes, stage=config.stage)
    scratch = _scratch(cut, planes=planes, tasks=tasks)
    # At an edge, lanes of x are loaded with a mask; lanes that do not count are cleared, in x and in the dy it meets.
    masks = x_rows * across.edges if config.stage == "none" else 0.0
    if cut.unroll == "group":  # beside what meets no padding, in each block
        masks = 4.0 * planes * cut.column_blocks * columns.taps * (2 + config.group_kw / lanes)
    elif columns.outputs > lanes:
        masks += (x_rows + planes * met * columns.taps) * across.edges
    # The dy of a tile that find no register are loaded by the multiply-adds.
    sums, registers = config.group_kh * config.group_kw, vector_registers(target)
    spilled = min(1.0, max(0, sums + config.tile_h + 2 - registers) / config.tile_h)
    # Sums of several groups wait in memory; in the end the lanes of all are added up, halves to halves.
    waiting = 0 if cut.is_one_group else planes * cut.blocks * cut.column_blocks * rows.taps * columns.taps
    halvings = 2 * tasks * taps * (lanes.bit_length() - 1)
    dy_lines = 1.0 if columns.outputs % lanes == 0 else lines_of_columns(lanes)
    widened = x_rows * across.tiles * loads_each if config.stage == "none" else scratch.loads
    together = by_planes and work.channels * taps > PARALLEL_SUMS
    return CpuWork(
        tasks=tasks,
        threads=threads,
        share=largest_share(tasks, threads),
        tiles=tiles,
        multiply_adds=products,
        loads=(dy_loads + products * spilled) * dy_lines
        + x_rows * across.tiles * loads_each
        + 2 * waiting
        + scratch.loads,
        stores=tasks * taps + waiting + scratch.stores,
        others=x_rows * across.tiles * shuffles_each
        + masks
        + halvings
        + scratch.shuffles
        + conversions(work.dtype, loaded=dy_loads + widened, stored=0.0),
        turns=tiles + x_rows / columns.taps * len(cut.column_groups) * across.tiles + scratch.turns,
        live=(sums + config.tile_h + 1) / registers,
        chain=products / tiles / sums,
        traffic=_traffic(cut, groups, scratch=scratch, workload=workload, threads=threads),
        scratches=scratch.scratches,
        fills=scratch.fills,
        # What images give is added number by number, several at a time.
        alone_slots=0.5 * parts * taps / (threads if together else 1) if by_planes else 0.0,
        regions=1 + together,
    )


def _tap_groups(cut: WgradNchwCut) -> int:
    return sum(rows.count for rows in cut.row_groups) * len(cut.column_groups)


def _traffic(
    cut: WgradNchwCut, groups: int, *, scratch: ScratchWork, workload: Workload, threads: int
) -> tuple[Traffic, ...]:
    work, config, rows = cut.work, cut.config, cut.work.rows
    planes, row_bytes = workload.batch * work.channels, float(work.itemsize) * work.columns.inputs
    x = planes * work.depths.inputs * rows.inputs * row_bytes
    dy = float(work.itemsize) * planes * math.prod(work.axes.outputs)
    groups *= work.depths.taps
    mine = workload.bytes / threads  # the same tasks fall to the same threads, call after call
    # A task that owns a channel goes from image to image: a plane is all that it moves at a time.
    run = rows.inputs * row_bytes if config.parallel == "channels" else workload.bytes
    block = rows.spanned(config.block_h)[1] * row_bytes + float(work.itemsize) * config.block_h * work.columns.outputs
    height = config.group_kh + config.tile_h - 1
    return (
        Traffic(bytes=x + dy, held_bytes=mine, run_bytes=run),
        Traffic(bytes=(x + dy) * (groups - 1), held_bytes=block),  # every group of taps reads the block again
        # Rows that kernel rows and tiles share.
        Traffic(
            bytes=x * groups * max(0.0, height / (config.tile_h * rows.up) - 1), held_bytes=(height + 1) * row_bytes
        ),
        scratch.traffic(lanes=cut.lanes, held_bytes=2 * block),
    )


def _scratch(cut: WgradNchwCut, *, planes: int, tasks: int) -> ScratchWork:
    if cut.config.stage == "none":
        return ScratchWork()
    rows, spanned = cut.work.rows, cut.work.rows.spanned(cut.config.block_h)[1]
    return ScratchWork.of(
        cut.work.columns,
        lanes=cut.lanes,
        scratches=tasks,
        fills=planes * cut.blocks,
        rows_filled=min(spanned, rows.inputs),
        rows_held=spanned,
    )
