"""The work of a thread of the weight gradient, and so of a block and of the kernel that adds parts. No TVM here."""

from __future__ import annotations

import math
from functools import lru_cache

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE
from dwconv.schedules.cuda.gpu.cost import BlockWork, adding_work
from dwconv.schedules.cuda.gpu.hardware import LINE_BYTES, REGISTERS_PER_UNIT, SECTOR_BYTES, WARP, registers_left
from dwconv.schedules.cuda.wgrad.cut import WeightGradientCut

BOOKKEEPING, START = 12, 40
"""Instructions that find out where a tile is, and where a thread is."""
OTHER_REGISTERS, MOST_COMING = 26, 32
"""For addresses and counters, and for a row of x on its way."""


@lru_cache(maxsize=4096)
def products_of(cut: WeightGradientCut) -> int:
    pairs_h, pairs_w = (sum(len(pairs) for pairs in reads.values()) for reads in (cut.row_reads, cut.column_reads))
    return pairs_h * pairs_w * cut.vector_c


def loads_of(cut: WeightGradientCut) -> int:
    return len(cut.row_reads) * len(cut.x_loads) + cut.unroll_h * len(cut.dy_loads)


def instructions_of(cut: WeightGradientCut) -> float:
    outputs = cut.tile_h * cut.tile_w * cut.vector_c
    return instructions_of_image(cut) / outputs * cut.kernel_rows / cut.group_kh


@lru_cache(maxsize=4096)
def instructions_of_image(cut: WeightGradientCut) -> float:
    rows, itemsize = len(cut.row_reads), ITEMSIZE[cut.workload.dtype]
    # In NCHW neighbouring threads do not read neighbouring words if a tile is wider than a vector.
    turns = 1 if cut.channel_last else min(cut.tile_w // cut.dy_vector, 32 // (itemsize * cut.dy_vector))
    wanted = rows * len(cut.column_reads) * cut.x_channels + cut.unroll_h * cut.tile_w * cut.vector_c
    begin = BOOKKEEPING * (1 + cut.unroll_h / cut.tile_h)  # of the straight code, and of the tile
    straight = products_of(cut) + 2 * turns * loads_of(cut) + _padding(cut) + begin + (wanted if itemsize == 2 else 0)
    return straight * cut.tile_h / cut.unroll_h


def instructions_of_sums(cut: WeightGradientCut) -> float:
    """Instructions of a thread, once: sums set to zero, and on their way to one thread of those that share them.
    Halving, half of the threads pass theirs on and the other half add them; what some of a warp do takes the time of
    all."""
    sums, halvings = cut.sums_of_channel * cut.vector_c, (cut.threads_p - 1).bit_length()
    across = cut.threads_c if cut.channel_last else 1
    busy = [min(cut.threads_p, -(-(across << halving) // WARP) * WARP / across) for halving in range(halvings)]
    return START + sums + sums * (3 * sum(busy) + busy[0] if busy else 1) / cut.threads_p + 8 * halvings


def _padding(cut: WeightGradientCut) -> float:
    """Instructions that put zeros where padding is, or that branch around it."""
    ends_h, ends_w = range(cut.unroll_h * cut.rows.up), range(cut.tile_w * cut.columns.up)
    rows = sum(cut.groups > 1 or at not in ends_h for at in cut.row_reads)
    beyond = [load for load in cut.x_loads if cut.tiles_w > 1 and load.column not in ends_w]
    if cut.edge == "skip":
        return 3 * rows + 4 * len(cut.row_reads) * len(beyond)
    zeros = [max(1.0, load.lanes * ITEMSIZE[cut.workload.dtype] / 8) for load in cut.x_loads]
    edge = [max(1.0, load.lanes * ITEMSIZE[cut.workload.dtype] / 8) for load in beyond]
    return rows * sum(zeros) + (len(cut.row_reads) - rows) * sum(edge)


def read_again(cut: WeightGradientCut) -> float:
    """Rows that the threads read over rows that there are: tiles share their halo, groups of kernel rows all."""
    reach_h = (cut.group_kh - 1) * cut.rows.step + 1
    rows = ((cut.tile_h - 1) * cut.rows.up + reach_h) / (cut.tile_h * cut.rows.up)
    x, dy = cut.rows.up * cut.columns.up, cut.workload.multiplier
    return cut.groups * (x * max(1.0, rows) + dy) / (x + dy)


def registers_of(cut: WeightGradientCut) -> int:
    """About how many a thread needs at least: the sums, the rows of dy that an x meets, and what is on its way."""
    rows = min(cut.unroll_h, (cut.group_kh - 1) * cut.rows.step // cut.rows.up + 1)
    sums = cut.sums_of_channel * cut.vector_c
    coming = min(MOST_COMING, sum(load.lanes for load in cut.x_loads))
    return sums + rows * cut.tile_w * cut.vector_c + coming + OTHER_REGISTERS


# -- the work of a block -------------------------------------------------------------------------------------------

BYTES_AHEAD = 220
"""That the compiler loads at a time in straight code, where it has the registers."""
REMEMBERED_TURNS = 24
"""Turns of a loop for which a line that one load brought is still there for the others."""


def block_works(cut: WeightGradientCut, target: CudaTarget) -> tuple[BlockWork, ...]:
    """The kernel that reads x and dy, and the one that adds what its blocks wrote, if they are several parts."""
    first = _of_sums(cut, target)
    return (first, adding_work(parts=cut.parts, results=cut.results, target=target)) if cut.parts > 1 else (first,)


def _of_sums(cut: WeightGradientCut, target: CudaTarget) -> BlockWork:
    workload, blocks, warps = cut.workload, math.prod(cut.blocks), -(-cut.threads // WARP)
    images = cut.planes_met * cut.planes / min(cut.split_n, cut.planes)
    registers = _registers(cut, target)
    read = cut.planes * _read_bytes(cut)
    needed, written = float(workload.bytes), float(cut.workspace_bytes) if cut.parts > 1 else 0.0
    sums = instructions_of_sums(cut)
    return BlockWork(
        blocks=blocks,
        threads=cut.threads,
        registers=registers,
        instructions=warps * (images * instructions_of_image(cut) + sums),
        fma=warps * images * products_of(cut) * (cut.tile_h / cut.unroll_h),
        lines=warps * images * _lines(cut),
        bank_turns=warps * sums / 4,
        dram_bytes=needed + written,
        again_bytes=max(0.0, read - needed),
        cache_bytes=read + written,
        bytes_in_flight=cut.threads * _bytes_in_flight(cut),
    )


def _registers(cut: WeightGradientCut, target: CudaTarget) -> int:
    allowed = registers_left(target, threads=cut.threads, blocks=cut.blocks_per_sm)
    return min(allowed, -(-registers_of(cut) // REGISTERS_PER_UNIT) * REGISTERS_PER_UNIT)


def _bytes_in_flight(cut: WeightGradientCut) -> float:
    """Loads that a thread has on their way: all of straight code, up to what the compiler moves ahead; of rows behind
    branches one."""
    x, dy = (sum(load.lanes for load in loads) for loads in (cut.x_loads, cut.dy_loads))
    rows = 1 if cut.edge == "skip" else len(cut.row_reads)
    return min(BYTES_AHEAD, ITEMSIZE[cut.workload.dtype] * (rows * x + cut.unroll_h * dy))


# -- memory --------------------------------------------------------------------------------------------------------


def _read_bytes(cut: WeightGradientCut) -> float:
    """Bytes of an image, in 3-D of a plane, that all blocks together read: each block every sector once, and in long
    loops again what other loads have read before."""
    workload = cut.workload
    itemsize, again = ITEMSIZE[workload.dtype], cut.blocks[2] * cut.planes_met
    once, dy = _pixels(cut)
    steps = cut.tile_h / cut.unroll_h
    loaded = cut.tiles_h * cut.tiles_w * steps * len(cut.row_reads) * len(cut.column_reads)
    loaded *= min(cut.threads_kh, cut.groups)
    once *= min(cut.threads_kh, cut.depths.taps)  # each tap along the depth meets another plane of x
    turns = steps * cut.planes / min(cut.split_n, cut.planes)
    x = once + max(0.0, loaded - once) * max(0.0, 1 - REMEMBERED_TURNS / turns)
    if cut.channel_last:
        span = -(-cut.threads_c * cut.vector_c * itemsize // SECTOR_BYTES) * SECTOR_BYTES
        x_span = -(-cut.threads_c * cut.x_channels * itemsize // SECTOR_BYTES) * SECTOR_BYTES
        return again * cut.blocks[0] * (x * x_span + dy * span)
    return again * itemsize * (x * workload.channels + dy * workload.out_channels)


def _pixels(cut: WeightGradientCut) -> tuple[int, int]:
    """(of x, of dy) that all blocks read of a plane, each block every pixel once."""
    rows, columns = cut.rows, cut.columns
    (first_row, height), (first_column, width) = (
        (min(reads), max(reads) - min(reads) + 1) if reads else (0, 0) for reads in (cut.row_reads, cut.column_reads)
    )
    height += rows.origin(cut.tile_h - cut.unroll_h)
    x = dy = 0
    tiles = cut.tiles_h * cut.tiles_w
    for first in range(0, tiles, cut.threads_p):
        places = tuple(divmod(tile, cut.tiles_w) for tile in range(first, min(first + cut.threads_p, tiles)))
        down, across = rows.origin(cut.tile_h), columns.origin(cut.tile_w)
        corners = tuple((row * down + first_row, column * across + first_column) for row, column in places)
        x += _covered(corners, (height, width), (rows.inputs, columns.inputs))
        corners = tuple((row * cut.tile_h, column * cut.tile_w) for row, column in places)
        dy += _covered(corners, (cut.tile_h, cut.tile_w), (rows.outputs, columns.outputs))
    return x, dy


@lru_cache(maxsize=4096)
def _covered(corners: tuple[tuple[int, int], ...], size: tuple[int, int], plane: tuple[int, int]) -> int:
    (height, width), (rows, columns) = size, plane
    spans: dict[int, list[int]] = {}
    for top, left in corners:
        for row in range(max(0, top), min(rows, top + height)):
            spans.setdefault(row, []).append(left)
    found = 0
    for lefts in spans.values():
        end = 0
        for left in sorted(lefts):
            begin, stop = max(left, end, 0), min(left + width, columns)
            found += max(0, stop - begin)
            end = max(end, stop)
    return found


# -- load/store units ------------------------------------------------------------------------------------------------


def _lines(cut: WeightGradientCut) -> float:
    itemsize = ITEMSIZE[cut.workload.dtype]
    turns = cut.tile_h / cut.unroll_h
    x, dy = (sum(_lines_of(cut, load.lanes * itemsize) for load in loads) for loads in (cut.x_loads, cut.dy_loads))
    return turns * (len(cut.row_reads) * x + cut.unroll_h * dy)


def _lines_of(cut: WeightGradientCut, load_bytes: int) -> float:
    itemsize = ITEMSIZE[cut.workload.dtype]
    if cut.channel_last:
        across, apart = min(cut.threads_c, WARP), load_bytes
    else:
        across, apart = min(cut.tiles_w, cut.threads_p, WARP), cut.tile_w * itemsize * cut.columns.up
    if across >= WARP:
        return max(1.0, WARP * apart / LINE_BYTES)
    return WARP / across * max(1.0, across * apart / LINE_BYTES + (0.3 if WARP % across else 0.0))
