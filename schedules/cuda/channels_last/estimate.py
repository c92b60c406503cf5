"""The work of a block of NHWC strips, in plain integers, guessed where only the compiler knows. No TVM here."""

from __future__ import annotations

import math
from functools import cache

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.channels_last.cut import Cut, ImageCut
from dwconv.schedules.cuda.channels_last.thread_work import ThreadWork, registers_of, thread_work
from dwconv.schedules.cuda.gpu.cost import LONG_CODE, BlockWork
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, LINE_BYTES, SECTOR_BYTES, SHARED_LANES, VECTOR_BYTES, WARP
from dwconv.schedules.cuda.gpu.memory import Turns, turns_of_warp
from dwconv.schedules.space import Config

ROWS_AHEAD, BYTES_AHEAD = 3, 192
"""Loads of the compiler at a time in straight code: source rows, and bytes of them if they are more than one; in a
loop, one row."""
COPIES_AHEAD = 16
"""Copies to shared memory that a thread has on their way."""


def block_work(workload: Workload, config: Config, target: CudaTarget) -> BlockWork:
    """Blocks that lie side by side read their halo again, from the cache where it is still there."""
    return work_of(Cut.of(workload, config), workload, target)


def work_of(cut: Cut, workload: Workload, target: CudaTarget) -> BlockWork:
    blocks = workload.batch * cut.gather.depths.outputs * math.prod(axis.blocks for axis in cut.axes)
    warps, work = -(-cut.threads // WARP), thread_work(cut)
    read, written = _read_bytes(cut, workload), float(_written_bytes(cut, workload))
    needed = workload.bytes - written
    registers = min(registers_of(cut), target.registers_per_thread)
    return BlockWork(
        blocks=blocks,
        threads=cut.threads,
        registers=registers,
        shared_bytes=cut.shared_bytes,
        instructions=warps * work.instructions * (1 + work.code / LONG_CODE),
        fma=warps * work.fma,
        lines=_lines(cut, work),
        bank_turns=_bank_turns(cut, work),
        dram_bytes=needed + written,
        again_bytes=max(0.0, read - needed),
        cache_bytes=read + written,
        # A thread that reads nothing writes.
        bytes_in_flight=float(cut.threads * max(_bytes_in_flight(cut), cut.itemsize)),
    )


def conflicts(cut: Cut) -> float:
    """Turns of shared memory over turns without a bank conflict; 1 is none."""
    met = [_weight_turns(cut)] if cut.weights == "shared" else []
    met += [cut.patch.read_turns] if cut.stage == "shared" else []
    return max((turns.taken / turns.least for turns in met), default=1.0)


def _bytes_in_flight(cut: Cut) -> int:
    """Loads of a thread."""
    if cut.stage == "shared":
        return min(cut.patch.turns_in_all, COPIES_AHEAD) * cut.patch.lanes * cut.itemsize
    row = len(cut.columns.reads) * cut.source_lanes * cut.itemsize
    if cut.unroll == "kw":
        return row
    kernels = cut.strip_kernels * cut.plane_taps * cut.itemsize if cut.weights == "registers" else 0
    return max(row, min(BYTES_AHEAD, row * ROWS_AHEAD, row * len(cut.rows.reads))) + kernels // 2


# -- memory --------------------------------------------------------------------------------------------------------


def _read_bytes(cut: Cut, workload: Workload) -> float:
    """Bytes that all blocks together read, each block every sector once."""
    span = _sectors(min(cut.block_channels, cut.gather.source_channels) * cut.itemsize)
    source = _read_by_blocks(cut.rows) * _read_by_blocks(cut.columns) * cut.channels.blocks * span
    weights = math.prod(axis.blocks for axis in cut.axes) * cut.block_kernels * cut.taps * cut.itemsize
    depths = cut.gather.depths
    return workload.batch * float(depths.live_pairs * source + depths.outputs * weights)


def _written_bytes(cut: Cut, workload: Workload) -> int:
    return workload.batch * cut.itemsize * cut.gather.depths.outputs * math.prod(axis.size for axis in cut.axes)


def _sectors(size: int) -> int:
    return -(-size // SECTOR_BYTES) * SECTOR_BYTES


@cache
def _read_by_blocks(axis: ImageCut) -> int:
    """Inputs that all blocks together read, each block every input once."""
    reads = axis.reads
    if not reads:
        return 0
    found = 0
    for block in range(axis.blocks):
        first = block * axis.block_strips
        last = min(first + axis.block_strips, axis.strips) - 1
        begin, end = first * axis.step + min(reads), last * axis.step + max(reads) + 1
        found += max(0, min(end, axis.axis.inputs) - max(begin, 0))
    return found


# -- load/store units ------------------------------------------------------------------------------------------------


def _lines(cut: Cut, work: ThreadWork) -> float:
    """Lines of global memory that a block requests."""
    warps, itemsize = -(-cut.threads // WARP), cut.itemsize
    result_bytes = cut.channels.tile * itemsize
    found = warps * work.stores * _lines_of_warp(cut.channels.threads, result_bytes)
    if cut.stage == "shared":
        found += _copies(cut) * _lines_of_warp(cut.patch.vectors, cut.patch.lanes * itemsize)
    else:
        lane_bytes = min(cut.source_lanes * itemsize, VECTOR_BYTES)
        found += warps * work.loads * _lines_of_warp(cut.channels.threads, lane_bytes)
    if cut.weights != "shared":
        apart = cut.strip_kernels * cut.taps * itemsize
        across = min(cut.channels.threads, WARP)
        found += warps * work.weight_loads * max(1.0, across * min(1.0, apart / LINE_BYTES))
    return found


def _bank_turns(cut: Cut, work: ThreadWork) -> float:
    """Turns of shared memory that a block takes."""
    warps, found = -(-cut.threads // WARP), 0.0
    if cut.stage == "shared":
        found += _copies(cut) * cut.patch.lanes * cut.itemsize / BANK_BYTES
        found += warps * work.loads * cut.patch.read_turns.taken
    if cut.weights == "shared":
        staged = cut.taps * cut.block_kernels / WARP * 6
        found += warps * work.weight_loads * _weight_turns(cut).taken + staged
    return found


def _copies(cut: Cut) -> float:
    """Copies of the patch, by whole warps."""
    return cut.patch.rows.count * cut.patch.columns.count * cut.patch.vectors / WARP


def _weight_turns(cut: Cut) -> Turns:
    words = min(SHARED_LANES, cut.weight_lanes & -cut.weight_lanes)
    apart, across = cut.strip_kernels, cut.channels.threads
    return turns_of_warp([thread % across * apart for thread in range(min(WARP, cut.threads))], words=words)


def _lines_of_warp(across: int, lane_bytes: int) -> float:
    """Lines that a warp requests: ``across`` of its threads are neighbours and read ``lane_bytes`` each."""
    if across >= WARP:
        return max(1.0, WARP * lane_bytes / LINE_BYTES)
    pixels = WARP / across + (0 if WARP % across == 0 else 0.7)
    return pixels * max(1.0, across * lane_bytes / LINE_BYTES)
