"""Microseconds that a cut of fprop or dgrad, NHWC, may take on CUDA, from plain integers: how long each resource of the
GPU would be busy, as the cost of a built candidate is computed, with guesses for what only the compiler knows.

It puts candidates in order, to start a search and to choose what is worth building. No TVM here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from dwconv.schedules.cuda.gather_nhwc_cost import Work, registers, work_of
from dwconv.schedules.cuda.gather_nhwc_cut import Cut, ImageCut
from dwconv.schedules.cuda.gather_nhwc_patch import BANK_BYTES, VECTOR_BYTES, WARP, Turns, turns_of
from dwconv.target import CudaTarget
from dwconv.workload import Workload

LINE_BYTES, SECTOR_BYTES = 128, 32
ROWS_AHEAD, BYTES_AHEAD = 3, 192
"""What the compiler loads at a time in straight code: source rows, and bytes of them if they are more than one; in a
loop, one row."""
COPIES_AHEAD = 16
"""Copies to shared memory that a thread has on their way."""
LATENCY_CYCLES = 800
BYTES_IN_FLIGHT_PER_SM = 50_000
"""What an SM must have asked for at any time to draw its share of the bandwidth."""
LONG_CODE = 60_000
"""Instructions in straight code that take twice as long: instructions come from memory, too."""
NOT_HIDDEN = 0.05
LAUNCH_US = 2.0
SYSTEM_SHARED_BYTES = 1024
REGISTERS_AT_A_TIME = 8


@dataclass(frozen=True, kw_only=True)
class Held:
    """What an SM holds at a time."""

    blocks: int
    threads: int


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """How long each resource would be busy, in microseconds, and what else speaks for a cut."""

    busy_us: tuple[float, ...]
    issue_us: float
    bytes_in_flight_per_sm: int
    conflicts: float
    """Turns of shared memory over turns without a bank conflict; 1 is none."""

    @property
    def microseconds(self) -> float:
        return (1 - NOT_HIDDEN) * max(self.busy_us) + NOT_HIDDEN * sum(self.busy_us) + LAUNCH_US


def estimate(cut: Cut, workload: Workload, target: CudaTarget) -> Estimate:
    """It takes infinitely long where a block does not fit on an SM."""
    held = _held(cut, target)
    if not held.blocks:
        return Estimate(busy_us=(math.inf,), issue_us=math.inf, bytes_in_flight_per_sm=0, conflicts=1.0)
    blocks = workload.batch * math.prod(axis.blocks for axis in cut.axes)
    warps = -(-cut.threads // WARP)
    work = work_of(cut)
    read, written = _read_bytes(cut, workload), float(_written_bytes(cut, workload))
    at_a_time = min(blocks, held.blocks * target.sms)
    missed = max(0.0, 1 - target.limits.cache_bytes / (at_a_time * (read + written) / blocks))
    needed = workload.bytes - written
    in_flight = held.threads * max(_bytes_in_flight(cut), cut.itemsize)  # a thread that reads nothing writes
    drawn = min(1.0, in_flight / BYTES_IN_FLIGHT_PER_SM) * min(1.0, blocks / target.sms)
    in_turn = math.ceil(blocks / target.sms)
    cycles_per_us = target.clock_ghz * 1e3
    flops_per_cycle = target.limits.peak_gflop_per_s / (target.sms * target.clock_ghz)
    issued = work.instructions * (1 + work.code / LONG_CODE)
    issue_us = in_turn * warps * issued / target.issue_slots / cycles_per_us
    busy = (
        (needed + written + max(0.0, read - needed) * missed) / (target.limits.memory_gb_per_s * drawn) / 1e3,
        (read + written) / (target.limits.cache_gb_per_s * drawn) / 1e3,
        in_turn * _load_store(cut, work) / cycles_per_us,
        in_turn * warps * WARP * work.fma * 2 / flops_per_cycle / cycles_per_us,
        issue_us,
        math.ceil(blocks / at_a_time) * (LATENCY_CYCLES + issued) / cycles_per_us,
    )
    return Estimate(busy_us=busy, issue_us=issue_us, bytes_in_flight_per_sm=in_flight, conflicts=_conflicts(cut))


def _held(cut: Cut, target: CudaTarget) -> Held:
    warps = -(-cut.threads // WARP)
    each = -(-min(registers(cut), target.registers_per_thread) // REGISTERS_AT_A_TIME) * REGISTERS_AT_A_TIME
    slots = target.issue_slots
    blocks = min(
        target.registers_per_sm // (each * WARP) // slots * slots // warps,
        target.shared_bytes_per_sm // (cut.shared_bytes + SYSTEM_SHARED_BYTES),
        target.threads_per_sm // (warps * WARP),
        target.blocks_per_sm,
    )
    return Held(blocks=blocks, threads=blocks * cut.threads)


def _bytes_in_flight(cut: Cut) -> int:
    """Of a thread."""
    if cut.stage == "shared":
        return min(cut.patch.turns_in_all, COPIES_AHEAD) * cut.patch.lanes * cut.itemsize
    row = len(cut.columns.reads) * cut.source_lanes * cut.itemsize
    if cut.unroll == "kw":
        return row
    kernels = cut.strip_kernels * cut.taps * cut.itemsize if cut.weights == "registers" else 0
    return max(row, min(BYTES_AHEAD, row * ROWS_AHEAD, row * len(cut.rows.reads))) + kernels // 2


# -- memory --------------------------------------------------------------------------------------------------------


def _read_bytes(cut: Cut, workload: Workload) -> float:
    """Bytes that all blocks together read, each block every sector once."""
    span = _sectors(min(cut.block_channels, cut.work.source_channels) * cut.itemsize)
    source = _read_by_blocks(cut.rows) * _read_by_blocks(cut.columns) * cut.channels.blocks * span
    weights = math.prod(axis.blocks for axis in cut.axes) * cut.block_kernels * cut.taps * cut.itemsize
    return workload.batch * float(source + weights)


def _written_bytes(cut: Cut, workload: Workload) -> int:
    return workload.batch * cut.itemsize * math.prod(axis.size for axis in cut.axes)


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


def _load_store(cut: Cut, work: Work) -> float:
    """Cycles of a block: lines of global memory, and turns of shared memory."""
    warps = -(-cut.threads // WARP)
    lane_bytes = min(cut.source_lanes * cut.itemsize, VECTOR_BYTES)
    if cut.stage == "shared":
        patch = cut.patch
        copies = patch.rows.count * patch.columns.count * patch.vectors / WARP
        copied = _lines(patch.vectors, patch.lanes * cut.itemsize) + patch.lanes * cut.itemsize / BANK_BYTES
        source = copies * copied + warps * work.loads * patch.read_turns.taken
    else:
        source = warps * work.loads * _lines(cut.channels.threads, lane_bytes)
    result_bytes = cut.channels.tile * cut.itemsize
    return source + _weights(cut, work) + warps * work.stores * _lines(cut.channels.threads, result_bytes)


def _weights(cut: Cut, work: Work) -> float:
    warps, across = -(-cut.threads // WARP), min(cut.channels.threads, WARP)
    if cut.weights == "shared":
        staged = cut.taps * cut.block_kernels / WARP * 6
        return warps * work.weight_loads * _weight_turns(cut).taken + staged
    apart = cut.strip_kernels * cut.taps * cut.itemsize
    return warps * work.weight_loads * max(1.0, across * min(1.0, apart / LINE_BYTES))


def _weight_turns(cut: Cut) -> Turns:
    words = min(VECTOR_BYTES // BANK_BYTES, cut.weight_lanes & -cut.weight_lanes)
    apart, across = cut.strip_kernels, cut.channels.threads
    return turns_of([thread % across * apart for thread in range(min(WARP, cut.threads))], words=words)


def _conflicts(cut: Cut) -> float:
    met = [_weight_turns(cut)] if cut.weights == "shared" else []
    met += [cut.patch.read_turns] if cut.stage == "shared" else []
    return max((turns.taken / turns.least for turns in met), default=1.0)


def _lines(across: int, lane_bytes: int) -> float:
    """Lines that a warp asks for, of whose threads ``across`` lie side by side and read ``lane_bytes`` each."""
    if across >= WARP:
        return max(1.0, WARP * lane_bytes / LINE_BYTES)
    pixels = WARP / across + (0 if WARP % across == 0 else 0.7)
    return pixels * max(1.0, across * lane_bytes / LINE_BYTES)
