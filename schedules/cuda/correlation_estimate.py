"""Microseconds that a cut of a weight gradient may take on CUDA, from plain integers: how long each resource of the GPU
would be busy, as the cost of a built candidate is computed, with guesses for what only the compiler knows.

It puts candidates in order, to start a search and to choose what is worth building. No TVM here.
"""

from __future__ import annotations

import math
from functools import lru_cache

from dwconv.schedules.cuda.correlation import WARP, Correlation, registers_of
from dwconv.schedules.space import Config
from dwconv.target import CudaTarget
from dwconv.workload import ITEMSIZE, Workload

LINE_BYTES, SECTOR_BYTES = 128, 32
LATENCY_CYCLES = 800
BYTES_IN_FLIGHT_PER_SM = 50_000
"""What an SM must have asked for at any time to draw its share of the bandwidth."""
BYTES_AHEAD = 220
"""That the compiler loads at a time in straight code, where it has the registers."""
NOT_HIDDEN = 0.05
LAUNCH_US = 2.0
REGISTERS_AT_A_TIME = 8
REMEMBERED_TURNS = 24
"""Of a loop, for which what one load brought is there for the others."""
ADDED_AT_A_TIME, ADDING_SHARES, ADDING_LANES = 4, 8, 32
"""Of the second kernel: parts on their way of a thread, threads that share a result's parts, results of a block."""


def estimate(workload: Workload, config: Config, target: CudaTarget) -> float:
    return microseconds(Correlation.of(workload, config), target)


def microseconds(work: Correlation, target: CudaTarget) -> float:
    return _first_kernel(work, target) + (_second_kernel(work, target) if work.parts > 1 else 0.0)


def _first_kernel(work: Correlation, target: CudaTarget) -> float:
    """The one that reads x and dy."""
    workload = work.workload
    blocks, warps = math.prod(work.blocks), -(-work.threads // WARP)
    held = _held(work, target)
    at_a_time = min(blocks, held * target.sms)
    in_turn = math.ceil(blocks / target.sms)
    cycles_per_us = target.clock_ghz * 1e3
    flops_per_cycle = target.limits.peak_gflop_per_s / (target.sms * target.clock_ghz)
    images = workload.batch / min(work.split_n, workload.batch)
    instructions = images * work.instructions_of_image + work.instructions_of_sums
    products = images * work.products * (work.tile_h / work.unroll_h)
    read = workload.batch * _read_bytes(work)
    missed = max(0.0, 1 - target.limits.cache_bytes / (at_a_time * read / blocks))
    needed, written = float(workload.bytes), float(work.workspace_bytes) if work.parts > 1 else 0.0
    drawn = min(1.0, held * work.threads * _bytes_in_flight(work) / BYTES_IN_FLIGHT_PER_SM)
    drawn *= min(1.0, blocks / target.sms)
    busy = (
        (needed + written + max(0.0, read - needed) * missed) / (target.limits.memory_gb_per_s * drawn) / 1e3,
        (read + written) / (target.limits.cache_gb_per_s * drawn) / 1e3,
        in_turn * warps * (images * _lines(work) + work.instructions_of_sums / 4) / cycles_per_us,
        in_turn * warps * WARP * products * 2 / flops_per_cycle / cycles_per_us,
        in_turn * warps * instructions / target.issue_slots / cycles_per_us,
        math.ceil(blocks / at_a_time) * (LATENCY_CYCLES + instructions) / cycles_per_us,
    )
    return (1 - NOT_HIDDEN) * max(busy) + NOT_HIDDEN * sum(busy) + LAUNCH_US


def _second_kernel(work: Correlation, target: CudaTarget) -> float:
    """The one that adds what blocks wrote."""
    shares = max(1, min(ADDING_SHARES, work.parts // 4))
    blocks = -(-work.results // ADDING_LANES)
    threads = min(target.threads_per_sm, -(-blocks // target.sms) * shares * ADDING_LANES)
    drawn = min(1.0, 4 * ADDED_AT_A_TIME * threads / BYTES_IN_FLIGHT_PER_SM) * min(1.0, blocks / target.sms)
    size = 4 * work.parts * work.results
    gb_per_s = target.limits.cache_gb_per_s if size <= target.limits.cache_bytes / 2 else target.limits.memory_gb_per_s
    return size / (gb_per_s * drawn) / 1e3 + LAUNCH_US


def _registers(work: Correlation, target: CudaTarget) -> int:
    """Of a thread: what the compiler would like to have, up to what the configuration allows."""
    allowed = registers_of(target, threads=work.threads, blocks=work.blocks_per_sm)
    return min(allowed, -(-work.registers // REGISTERS_AT_A_TIME) * REGISTERS_AT_A_TIME)


def _held(work: Correlation, target: CudaTarget) -> int:
    """Blocks that an SM holds."""
    warps, slots = -(-work.threads // WARP), target.issue_slots
    by_registers = target.registers_per_sm // (_registers(work, target) * WARP) // slots * slots // warps
    return max(1, min(by_registers, target.threads_per_sm // (warps * WARP), target.blocks_per_sm))


def _bytes_in_flight(work: Correlation) -> float:
    """Of a thread: all loads of straight code, up to what the compiler moves ahead; of rows behind branches one."""
    x, dy = (sum(load.lanes for load in loads) for loads in (work.x_loads, work.dy_loads))
    rows = 1 if work.edge == "skip" else len(work.row_reads)
    return min(BYTES_AHEAD, ITEMSIZE[work.workload.dtype] * (rows * x + work.unroll_h * dy))


# -- memory --------------------------------------------------------------------------------------------------------


def _read_bytes(work: Correlation) -> float:
    """Of an image, by all blocks together: each block every sector once, and in long loops again what other loads have
    read before."""
    workload = work.workload
    itemsize, again = ITEMSIZE[workload.dtype], work.blocks[2]
    once, dy = _pixels(work)
    steps = work.tile_h / work.unroll_h
    loaded = work.tiles_h * work.tiles_w * steps * len(work.row_reads) * len(work.column_reads)
    loaded *= min(work.threads_kh, work.groups)
    turns = steps * workload.batch / min(work.split_n, workload.batch)
    x = once + max(0.0, loaded - once) * max(0.0, 1 - REMEMBERED_TURNS / turns)
    if work.channel_last:
        span = -(-work.threads_c * work.vector_c * itemsize // SECTOR_BYTES) * SECTOR_BYTES
        x_span = -(-work.threads_c * work.x_channels * itemsize // SECTOR_BYTES) * SECTOR_BYTES
        return again * work.blocks[0] * (x * x_span + dy * span)
    return again * itemsize * (x * workload.channels + dy * workload.out_channels)


def _pixels(work: Correlation) -> tuple[int, int]:
    """(of x, of dy) that all blocks read of a plane, each block every pixel once."""
    rows, columns = work.rows, work.columns
    (first_row, height), (first_column, width) = (
        (min(reads), max(reads) - min(reads) + 1) if reads else (0, 0) for reads in (work.row_reads, work.column_reads)
    )
    height += rows.origin(work.tile_h - work.unroll_h)
    x = dy = 0
    tiles = work.tiles_h * work.tiles_w
    for first in range(0, tiles, work.threads_p):
        places = tuple(divmod(tile, work.tiles_w) for tile in range(first, min(first + work.threads_p, tiles)))
        down, across = rows.origin(work.tile_h), columns.origin(work.tile_w)
        corners = tuple((row * down + first_row, column * across + first_column) for row, column in places)
        x += _covered(corners, (height, width), (rows.inputs, columns.inputs))
        corners = tuple((row * work.tile_h, column * work.tile_w) for row, column in places)
        dy += _covered(corners, (work.tile_h, work.tile_w), (rows.outputs, columns.outputs))
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


def _lines(work: Correlation) -> float:
    """Lines that a warp asks for to go through its tile of an image."""
    itemsize = ITEMSIZE[work.workload.dtype]
    turns = work.tile_h / work.unroll_h
    x, dy = (sum(_lines_of(work, load.lanes * itemsize) for load in loads) for loads in (work.x_loads, work.dy_loads))
    return turns * (len(work.row_reads) * x + work.unroll_h * dy)


def _lines_of(work: Correlation, load_bytes: int) -> float:
    itemsize = ITEMSIZE[work.workload.dtype]
    if work.channel_last:
        across, apart = min(work.threads_c, WARP), load_bytes
    else:
        across, apart = min(work.tiles_w, work.threads_p, WARP), work.tile_w * itemsize * work.columns.up
    if across >= WARP:
        return max(1.0, WARP * apart / LINE_BYTES)
    return WARP / across * max(1.0, across * apart / LINE_BYTES + (0.3 if WARP % across else 0.0))
