"""The estimated cost of the NHWC weight gradient, from plain integers. No TVM here."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cpu.shared.cost import CpuWork, Traffic, column_tiles, conversions, folded, largest_share, price
from dwconv.schedules.cpu.shared.limits import CACHE_LINE_BYTES, PARALLEL_SUMS, threads_of, vector_registers
from dwconv.schedules.cpu.shared.weight_gradient import x_rows_read
from dwconv.schedules.cpu.wgrad_nhwc.cut import WeightCut
from dwconv.schedules.space import Config


def estimate_us(workload: Workload, config: Config, target: CpuTarget) -> float:
    return price(cpu_work(workload, config, target), target)


def cpu_work(workload: Workload, config: Config, target: CpuTarget) -> CpuWork:
    cut = WeightCut.of(workload, config, target)
    work, rows, lanes, threads = cut.work, cut.work.rows, cut.lanes, threads_of(config, target)
    across, sharing = _GroupsAcross.of(cut), _Sharing.of(cut, batch=workload.batch, threads=threads)
    planes = workload.batch * work.depths.live_pairs  # pairs of a plane of dy and one of x
    groups = -(-cut.vectors // config.vectors_c)
    vectors = planes * cut.vectors
    met = rows.live_pairs  # pairs of a row of dy and a kernel row
    # Kernel rows one by one go through the rows of dy that they meet; several at a time, through all.
    dy_rows = met if config.group_kh == 1 else rows.outputs * -(-rows.taps // config.group_kh)
    x_rows = x_rows_read(rows, group_kh=config.group_kh, tile_h=cut.tile_h)
    products = vectors * met * across.products
    tiles = planes * groups * dy_rows / cut.tile_h * across.tiles
    # A vector of unaligned channels spans two lines; with a multiplier x is gathered, lane by lane.
    lines = 1 + (work.itemsize * lanes / CACHE_LINE_BYTES if work.channels % lanes else 0.0)
    dy_loads = vectors * dy_rows * across.outputs
    x_loads = vectors * x_rows * across.reads
    # The dy of a tile that find no register are loaded by the multiply-adds.
    dy_held, registers = cut.tile_h * config.tile_w * config.vectors_c, vector_registers(target)
    spilled = min(1.0, max(0, cut.sums + dy_held + 1 - registers) / dy_held)
    asked = dy_loads + x_loads / 2 if cut.prefetch else 0.0
    return CpuWork(
        tasks=sharing.tasks,
        threads=threads,
        share=sharing.share,
        tiles=tiles,
        multiply_adds=products,
        loads=lines * (dy_loads + products * spilled)
        + x_loads * (lines if work.multiplier == 1 else 1.5 * lanes)
        + sharing.sums,
        stores=sharing.stores,
        others=2 * tiles + asked + conversions(work.dtype, loaded=dy_loads + x_loads, stored=0.0),
        # A test for each row of x, unless a single kernel row takes those that it meets.
        turns=tiles + (planes * groups * x_rows * across.tiles if config.group_kh > 1 else 0.0),
        live=(cut.sums + dy_held + 1) / registers,
        chain=products / tiles / cut.sums,
        traffic=_traffic(cut, sharing, workload=workload, threads=threads),
        alone_slots=sharing.alone_slots,
        regions=sharing.regions,
        copied_bytes=workload.bytes if workload.layout != "nhwc" else 0.0,
        asks_ahead=cut.prefetch > 0,
    )


@dataclass(frozen=True, kw_only=True)
class _GroupsAcross:
    """The tiles of a row of dy, for all groups of kernel columns."""

    groups: int
    tiles: int
    outputs: int
    """dy that are loaded."""
    reads: int
    """x that are loaded."""
    products: int

    @classmethod
    def of(cls, cut: WeightCut) -> _GroupsAcross:
        columns = cut.work.columns
        if cut.config.unroll == "none":  # every product is a turn of a loop, and loads both
            products = column_tiles(columns, 1).products
            return cls(groups=columns.taps, tiles=products, outputs=products, reads=products, products=products)
        if cut.config.unroll == "group":
            return cls._of_groups(cut)
        parts = [column_tiles(columns.part(kw, width), cut.config.tile_w) for kw, width in cut.column_groups]
        return cls(
            groups=len(parts),
            tiles=sum(part.tiles for part in parts),
            outputs=columns.outputs * len(parts),
            reads=sum(part.reads for part in parts),
            products=sum(part.products for part in parts),
        )

    @classmethod
    def _of_groups(cls, cut: WeightCut) -> _GroupsAcross:
        """Tiles in the interior of each group; beside it, and where a tile does not fit in, dy one by one."""
        columns, width = cut.work.columns, cut.config.tile_w
        tiles = outputs = reads = products = 0
        for kw, taps in cut.column_groups:
            part = columns.part(kw, taps)
            met = column_tiles(part, 1).products
            inner = len(part.interior_starts(1, step=1)) - cut.column_blocks * (width // 2)
            whole = max(0, inner) // width
            beside = met - whole * width * taps  # products of dy that go one by one, each with an x of its own
            tiles += whole + beside // taps
            outputs += whole * width + beside // taps
            reads += whole * len(part.reads(width)) + beside
            products += met
        return cls(groups=len(cut.column_groups), tiles=tiles, outputs=outputs, reads=reads, products=products)


@dataclass(frozen=True, kw_only=True)
class _Sharing:
    """How tasks share the work out, and what it takes to bring their sums together, in vectors."""

    tasks: int
    share: float
    blocks: int
    """Blocks of rows of an image."""
    stores: float
    sums: float = 0.0
    """That are loaded, added to and stored, by tasks."""
    partial_bytes: float = 0.0
    """Of the partial sums of all tasks."""
    alone_slots: float = 0.0
    regions: int = 1

    @classmethod
    def of(cls, cut: WeightCut, *, batch: int, threads: int) -> _Sharing:
        config, taps = cut.config, math.prod(cut.work.axes.taps)
        results = cut.vectors * taps
        if config.parallel == "channels":
            tasks = cut.vectors // int(config.vectors_c)
            share = largest_share(tasks, threads)
            return cls(tasks=tasks, share=share, blocks=1, stores=results * cut.lanes)  # stored lane by lane
        tasks, blocks = int(config.tasks), cut.row_blocks * cut.column_blocks
        units = batch * cut.work.depths.outputs * blocks
        sums, partial = units * results, tasks * results
        # The last tasks may have fewer units than others, or none.
        busiest = min(units, -(-tasks // threads) * -(-units // tasks))
        together = partial * cut.lanes > PARALLEL_SUMS
        return cls(
            tasks=tasks,
            share=busiest / units,
            blocks=blocks,
            stores=sums + partial,
            sums=sums,
            partial_bytes=4.0 * cut.lanes * partial,
            alone_slots=2.0 * (partial + results * cut.lanes) / (threads if together else 1),
            regions=1 + together,
        )


def _traffic(cut: WeightCut, sharing: _Sharing, *, workload: Workload, threads: int) -> tuple[Traffic, ...]:
    work, config, rows, columns = cut.work, cut.config, cut.work.rows, cut.work.columns
    x = float(work.itemsize) * workload.batch * math.prod(work.axes.inputs) * work.input_channels
    dy = float(work.itemsize) * workload.batch * math.prod(work.axes.outputs) * work.channels
    run = float(work.itemsize) * config.vectors_c * cut.lanes
    fold = folded(work.itemsize * work.channels, run)
    block_h = int(config.block_h)
    spanned = rows.spanned(block_h)[1]
    # What the vectors that are summed together touch, in a block of rows or in all images.
    block = (spanned * columns.inputs / work.multiplier + block_h * columns.outputs) * run * fold / cut.column_blocks
    block *= 1 if config.parallel == "images" else workload.batch * work.depths.outputs
    later = block * -(-cut.vectors // config.vectors_c)  # until the neighbouring channels have their turn
    group_kw = 1 if config.unroll == "none" else cut.group_kw
    passes = work.depths.taps * -(-rows.taps // config.group_kh) * -(-columns.taps // group_kw)
    height, width = config.group_kh + cut.tile_h - 1, config.tile_w * columns.up + group_kw
    is_strip = config.order == "wh"
    mine = workload.bytes / threads  # the same tasks fall to the same threads, call after call

    def moved(size: float, held_bytes: float) -> Traffic:
        return Traffic(bytes=size, held_bytes=held_bytes, run_bytes=run, neighbour_bytes=later)

    again_h = height / (cut.tile_h * rows.up) - 1
    again_w = group_kw / (config.tile_w * columns.up) if is_strip else 0.0
    again_block = sharing.blocks * spanned / max(1, rows.inputs) - 1 if sharing.blocks > 1 else 0.0
    results = 4.0 * cut.lanes * cut.vectors * math.prod(work.axes.taps)
    return (
        moved(x + dy, mine),
        moved((x + dy) * (passes - 1), block),  # every group of taps reads the block again
        # Rows that kernel rows share, along the image or down a strip of columns; columns that strips share.
        moved(x * passes * max(0.0, again_h), height * (width if is_strip else columns.inputs) * run * fold),
        moved(x * passes * again_w, 2 * block_h * width * run * fold),
        moved(x * max(0.0, again_block), mine / 4),  # rows that blocks share
        Traffic(bytes=2 * 4.0 * cut.lanes * sharing.sums, held_bytes=results + block),
        _partial_sums(sharing, threads=threads),
    )


def _partial_sums(sharing: _Sharing, *, threads: int) -> Traffic:
    """Written by one thread, and read by others a line here and a line there."""
    far = float("inf") if threads > 1 else sharing.partial_bytes
    return Traffic(bytes=2 * sharing.partial_bytes, held_bytes=far, run_bytes=CACHE_LINE_BYTES, neighbour_bytes=far)
