"""The estimated cost of the NHWC gather, from plain integers. No TVM here."""

from __future__ import annotations

import math

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cpu.fprop_dgrad_nhwc.cut import GatherNhwcCut
from dwconv.schedules.cpu.shared.cost import (
    ACTIVATED,
    CpuWork,
    Traffic,
    column_tiles,
    conversions,
    folded,
    largest_share,
    price,
    row_tiles,
)
from dwconv.schedules.cpu.shared.limits import (
    CACHE_LINE_BYTES,
    PARALLEL_WEIGHTS,
    threads_of,
    vector_count,
    vector_registers,
)
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config


def estimate_us(workload: Workload, config: Config, target: CpuTarget) -> float:
    return price(cpu_work(workload, config, target), target)


def cpu_work(workload: Workload, config: Config, target: CpuTarget) -> CpuWork:
    cut = GatherNhwcCut.of(workload, config, target)
    work, unroll, lanes, channel_blocks = cut.work, config.unroll, cut.lanes, cut.channel_blocks
    depths, rows, columns = work.depths, work.rows, work.columns
    planes = workload.batch * depths.outputs
    met = workload.batch * depths.live_pairs  # pairs of a plane of the result and one of the source
    vectors, groups = vector_count(work.channels, lanes), channel_blocks * -(-cut.block_vectors // config.vectors_c)
    across = column_tiles(cut.columns, config.tile_w, rolled=unroll == "none").times(cut.tile_step)
    down = row_tiles(cut.row_axis, config.tile_h).times(cut.row_step)
    # Rows of the source that tiles read; with kernel rows in a loop each row of results reads its own.
    rows_read = down.reads if unroll == "taps" else rows.live_pairs
    products = (down.products if unroll == "taps" else rows.live_pairs) * across.products
    height = down.tiles if unroll == "taps" else rows.outputs
    tiles = planes * groups * height * across.tiles
    each = met * vectors * work.fan_in  # what follows is for each vector of channels and each source channel
    # A vector of unaligned channels spans two lines; with a multiplier it is gathered, lane by lane.
    lines = 1 + (work.itemsize * lanes / CACHE_LINE_BYTES if work.channels % lanes else 0.0)
    loads = float(rows_read) * (across.products if unroll == "none" else across.reads)
    loads *= lines if work.multiplier == 1 else 1.5 * lanes
    weights, spilled = _weight_loads(cut, tiles=height * across.tiles, rows_read=rows_read, products=products)
    stores = planes * vectors * rows.outputs * columns.outputs
    turns = met * groups * across.tiles * work.fan_in * rows_read * (1 if unroll != "none" else columns.taps)
    row_blocks = cut.rows.blocks * cut.row_step
    threads, tasks = threads_of(config, target), planes * row_blocks * cut.column_blocks * channel_blocks
    kernels = work.weights * math.prod(work.axes.taps)
    return CpuWork(
        tasks=tasks,
        threads=threads,
        share=largest_share(tasks, threads),
        tiles=tiles,
        multiply_adds=each * products,
        loads=each * (loads + weights),
        spilled_loads=each * spilled,
        stores=stores * lines,
        # Sums are cleared.
        others=stores * (1 + ACTIVATED[work.epilogue]) + conversions(work.dtype, loaded=each * loads, stored=stores),
        turns=turns + tiles,
        live=(cut.sums + 2) / vector_registers(target),
        chain=work.fan_in * math.prod(work.axes.taps) / (depths.down * rows.down * columns.down),
        traffic=_traffic(cut, workload, threads=threads),
        # Weights are packed, lane by lane, by all threads if they are many.
        alone_slots=1.5 * kernels / (threads if kernels >= PARALLEL_WEIGHTS else 1),
        regions=2 if kernels >= PARALLEL_WEIGHTS else 1,
        copied_bytes=workload.bytes if workload.layout != "nhwc" else 0.0,
    )


def _weight_loads(cut: GatherNhwcCut, *, tiles: int, rows_read: int, products: int) -> tuple[float, float]:
    """(weights that tiles load, multiply-adds that load their own) for a vector of channels: registers hold the weights
    of all taps, those of a kernel row, or too few of them."""
    work, config = cut.work, cut.config
    free = vector_registers(cut.target) - cut.sums - 2
    if config.unroll == "none":  # one at a time, for all columns of the tile
        return products / config.tile_w, 0.0
    if config.unroll == "kw":
        used = work.columns.taps * config.vectors_c
        return (rows_read * tiles / work.rows.outputs * work.columns.taps, 0.0) if used <= free else (0.0, products)
    taps = work.rows.taps * work.columns.taps
    if taps * config.vectors_c <= free:  # they stay from tile to tile, unless the next has other channels
        return tiles * taps * (1.0 if config.order[-1] == "c" else 0.1), 0.0
    return 0.0, products * (1 - 0.5 * max(0, free) / (taps * config.vectors_c))


def _traffic(cut: GatherNhwcCut, workload: Workload, *, threads: int) -> tuple[Traffic, ...]:
    """``order`` decides what a core touches between two tiles that read the same lines: all that the loops inside of
    the one over these tiles go through."""
    work, config = cut.work, cut.config
    rows, columns, order = work.rows, work.columns, config.order
    vector_bytes = float(work.itemsize) * cut.lanes * work.source_channels / work.channels
    taken = {
        "h": (cut.row_axis.spanned(config.tile_h)[1], cut.row_axis.spanned(cut.rows.block_rows)[1]),
        "w": (cut.columns.spanned(config.tile_w)[1], _columns_read(cut)),
        "c": (config.vectors_c * vector_bytes, cut.block_vectors * vector_bytes),
    }  # by a tile, by a task

    def touched(loop: str) -> float:
        """Bytes of the source that one turn of a loop goes through."""
        sizes = [taken[other][order.index(other) > order.index(loop)] for other in "hwc"]
        return float(sizes[0] * sizes[1] * sizes[2])

    source, result = (float(work.itemsize) * workload.batch * size for size in _sizes(work))
    mine = workload.bytes / threads  # the same tasks fall to the same threads, call after call
    run = taken["c"][order[-1] == "c"]
    fold = folded(work.itemsize * work.source_channels, run)
    later = 0.0 if order[-1] == "c" else touched("c") * cut.block_vectors / config.vectors_c * fold
    again_d = work.depths.live_pairs / work.depths.inputs - 1

    def moved(size: float, held_bytes: float) -> Traffic:
        return Traffic(bytes=size, held_bytes=held_bytes, run_bytes=run, neighbour_bytes=later)

    again_h = taken["h"][0] * rows.down / (config.tile_h * rows.up) - 1
    again_w = taken["w"][0] * columns.down / (config.tile_w * columns.up) - 1
    again_block = cut.rows.blocks * taken["h"][1] / max(1, cut.row_axis.inputs) - 1 if cut.rows.blocks > 1 else 0.0
    if cut.column_blocks > 1:
        again_block = cut.column_blocks * taken["w"][1] / columns.inputs - 1
    streamed = config.to_dict().get("store") == "streamed"
    weights = 4.0 * cut.lanes * math.prod(work.axes.taps) * work.fan_in  # of a vector of channels
    times = -(-rows.outputs // config.tile_h) if order.index("c") > order.index("h") else cut.rows.blocks
    times *= -(-columns.outputs // config.tile_w) if order.index("c") > order.index("w") else 1
    times *= work.depths.outputs
    return (
        moved(source, mine),
        # Planes that planes of the result share: a task reads each of them anew.
        moved(source * max(0.0, again_d), work.depths.taps * source / (workload.batch * work.depths.inputs)),
        moved(source * max(0.0, again_h), touched("h") * fold),  # rows that tiles above and below share
        moved(source * max(0.0, again_w), touched("w") * fold),  # columns that tiles side by side share
        moved(source * max(0.0, again_block), mine),  # rows, or columns, that tasks share
        # A line that is stored is read first, unless it is streamed; then it always goes to memory.
        moved(result, float("inf")) if streamed else moved(2 * result, mine),
        moved(result if work.reads_dy else 0.0, mine),
        Traffic(
            bytes=workload.batch * times * vector_count(work.channels, cut.lanes) * weights,
            held_bytes=cut.block_vectors * weights + (touched(order[order.index("c") - 1]) if order[0] != "c" else 0.0),
        ),
    )


def _columns_read(cut: GatherNhwcCut) -> int:
    """By a task."""
    columns = cut.work.columns
    return columns.inputs if cut.column_blocks == 1 else columns.spanned(cut.block_columns)[1]


def _sizes(work: Gather) -> tuple[int, int]:
    """Elements of the source and of the result, of one image."""
    return math.prod(work.axes.inputs) * work.source_channels, math.prod(work.axes.outputs) * work.channels
