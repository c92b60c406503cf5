"""The work of a block of the weight gradient, in plain integers, guessed where only the compiler knows. No TVM here."""

from __future__ import annotations

import math
from functools import lru_cache

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE
from dwconv.schedules.cuda.gpu.cost import BlockWork
from dwconv.schedules.cuda.gpu.hardware import LINE_BYTES, REGISTERS_PER_UNIT, SECTOR_BYTES, WARP
from dwconv.schedules.cuda.gpu.occupancy import registers_left
from dwconv.schedules.cuda.gpu.split_sum import adding_work
from dwconv.schedules.cuda.weight_gradient.cut import Cut
from dwconv.schedules.cuda.weight_gradient.thread_work import (
    instructions_of_image,
    instructions_of_sums,
    products_of,
    registers_of,
)

BYTES_AHEAD = 220
"""That the compiler loads at a time in straight code, where it has the registers."""
REMEMBERED_TURNS = 24
"""Turns of a loop for which a line that one load brought is still there for the others."""


def block_works(cut: Cut, target: CudaTarget) -> tuple[BlockWork, ...]:
    """The kernel that reads x and dy, and the one that adds what its blocks wrote, if they are several parts."""
    first = _of_sums(cut, target)
    return (first, adding_work(parts=cut.parts, results=cut.results, target=target)) if cut.parts > 1 else (first,)


def _of_sums(cut: Cut, target: CudaTarget) -> BlockWork:
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
        shared_bytes=0,  # for the sums alone, when all is over
        instructions=warps * (images * instructions_of_image(cut) + sums),
        fma=warps * images * products_of(cut) * (cut.tile_h / cut.unroll_h),
        lines=warps * images * _lines(cut),
        bank_turns=warps * sums / 4,
        dram_bytes=needed + written,
        again_bytes=max(0.0, read - needed),
        cache_bytes=read + written,
        bytes_in_flight=cut.threads * _bytes_in_flight(cut),
    )


def _registers(cut: Cut, target: CudaTarget) -> int:
    """Registers of a thread: as many as the compiler would like, up to what the configuration allows."""
    allowed = registers_left(target, threads=cut.threads, blocks=cut.blocks_per_sm)
    return min(allowed, -(-registers_of(cut) // REGISTERS_PER_UNIT) * REGISTERS_PER_UNIT)


def _bytes_in_flight(cut: Cut) -> float:
    """Loads that a thread has on their way: all of straight code, up to what the compiler moves ahead; of rows behind
    branches one."""
    x, dy = (sum(load.lanes for load in loads) for loads in (cut.x_loads, cut.dy_loads))
    rows = 1 if cut.edge == "skip" else len(cut.row_reads)
    return min(BYTES_AHEAD, ITEMSIZE[cut.workload.dtype] * (rows * x + cut.unroll_h * dy))


# -- memory --------------------------------------------------------------------------------------------------------


def _read_bytes(cut: Cut) -> float:
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


def _pixels(cut: Cut) -> tuple[int, int]:
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
    """Pixels of a plane that lie in some rectangle of that size, if their first pixels are ``corners``."""
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


def _lines(cut: Cut) -> float:
    """Lines that a warp asks for to go through its tile of an image."""
    itemsize = ITEMSIZE[cut.workload.dtype]
    turns = cut.tile_h / cut.unroll_h
    x, dy = (sum(_lines_of(cut, load.lanes * itemsize) for load in loads) for loads in (cut.x_loads, cut.dy_loads))
    return turns * (len(cut.row_reads) * x + cut.unroll_h * dy)


def _lines_of(cut: Cut, load_bytes: int) -> float:
    itemsize = ITEMSIZE[cut.workload.dtype]
    if cut.channel_last:
        across, apart = min(cut.threads_c, WARP), load_bytes
    else:
        across, apart = min(cut.tiles_w, cut.threads_p, WARP), cut.tile_w * itemsize * cut.columns.up
    if across >= WARP:
        return max(1.0, WARP * apart / LINE_BYTES)
    return WARP / across * max(1.0, across * apart / LINE_BYTES + (0.3 if WARP % across else 0.0))
