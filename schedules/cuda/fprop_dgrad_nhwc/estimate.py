"""The work of a thread and of a block of NHWC strips, in plain integers, guessed where only the compiler knows: good
enough to leave out what cannot run and to choose where a search starts. No TVM here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.fprop_dgrad_nhwc.cut import ChannelsLastCut, ImageCut
from dwconv.schedules.cuda.gpu.cost import LONG_CODE, BlockWork
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, LINE_BYTES, SECTOR_BYTES, SHARED_LANES, VECTOR_BYTES, WARP
from dwconv.schedules.cuda.gpu.memory import Turns, turns_of_warp
from dwconv.schedules.space import Config
from dwconv.schedules.tap_loops import source_loops

ROWS_AHEAD, BYTES_AHEAD = 3, 192
"""Loads of the compiler at a time in straight code: source rows, and bytes of them if they are more than one; in a
loop, one row."""
COPIES_AHEAD = 16
"""Copies to shared memory that a thread has on their way."""


def block_work(workload: Workload, config: Config, target: CudaTarget) -> BlockWork:
    """Blocks that lie side by side read their halo again, from the cache where it is still there."""
    return work_of(ChannelsLastCut.of(workload, config), workload, target)


def work_of(cut: ChannelsLastCut, workload: Workload, target: CudaTarget) -> BlockWork:
    blocks = workload.batch * cut.gather.depths.outputs * math.prod(axis.blocks for axis in cut.axes)
    warps, work = -(-cut.threads // WARP), thread_work(cut)
    read, results = _read_bytes(cut, workload), math.prod(axis.size for axis in cut.axes)
    written = float(workload.batch * cut.itemsize * cut.gather.depths.outputs * results)
    needed = workload.bytes - written
    return BlockWork(
        blocks=blocks,
        threads=cut.threads,
        registers=min(registers_of(cut), target.registers_per_thread),
        shared_bytes=cut.shared_bytes,
        instructions=warps * work.instructions * (1 + work.code / LONG_CODE),
        fma=warps * work.fma,
        lines=_lines(cut, work),
        bank_turns=_bank_turns(cut, work),
        conflict_turns=_conflict_turns(cut, work),
        dram_bytes=needed + written,
        again_bytes=max(0.0, read - needed),
        cache_bytes=read + written,
        # A thread that reads nothing writes.
        bytes_in_flight=float(cut.threads * max(_bytes_in_flight(cut), cut.itemsize)),
    )


def conflicts(cut: ChannelsLastCut) -> float:
    met = [_weight_turns(cut)] if cut.weights == "shared" else []
    met += [cut.patch.read_turns] if cut.stage == "shared" else []
    return max((turns.taken / turns.least for turns in met), default=1.0)


def _bytes_in_flight(cut: ChannelsLastCut) -> int:
    if cut.stage == "shared":
        return min(cut.patch.turns_in_all, COPIES_AHEAD) * cut.patch.lanes * cut.itemsize
    row = len(cut.columns.reads) * cut.source_lanes * cut.itemsize
    if cut.unroll == "kw":
        return row
    kernels = cut.strip_kernels * cut.plane_taps * cut.itemsize if cut.weights == "registers" else 0
    return max(row, min(BYTES_AHEAD, row * ROWS_AHEAD, row * len(cut.rows.reads))) + kernels // 2


# -- memory --------------------------------------------------------------------------------------------------------


def _read_bytes(cut: ChannelsLastCut, workload: Workload) -> float:
    span = -(-min(cut.block_channels, cut.gather.source_channels) * cut.itemsize // SECTOR_BYTES) * SECTOR_BYTES
    source = _read_by_blocks(cut.rows) * _read_by_blocks(cut.columns) * cut.channels.blocks * span
    weights = math.prod(axis.blocks for axis in cut.axes) * cut.block_kernels * cut.taps * cut.itemsize
    depths = cut.gather.depths
    return workload.batch * float(depths.live_pairs * source + depths.outputs * weights)


@cache
def _read_by_blocks(axis: ImageCut) -> int:
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


def _lines(cut: ChannelsLastCut, work: ThreadWork) -> float:
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


def _bank_turns(cut: ChannelsLastCut, work: ThreadWork) -> float:
    warps, found = -(-cut.threads // WARP), 0.0
    if cut.stage == "shared":
        found += _copies(cut) * cut.patch.lanes * cut.itemsize / BANK_BYTES
        found += warps * work.loads * cut.patch.read_turns.taken
    if cut.weights == "shared":
        staged = cut.taps * cut.block_kernels / WARP * 6
        found += warps * work.weight_loads * _weight_turns(cut).taken + staged
    return found


def _conflict_turns(cut: ChannelsLastCut, work: ThreadWork) -> float:
    met = [(work.loads, cut.patch.read_turns)] if cut.stage == "shared" else []
    met += [(work.weight_loads, _weight_turns(cut))] if cut.weights == "shared" else []
    return -(-cut.threads // WARP) * sum(loads * (turns.taken - turns.least) for loads, turns in met)


def _copies(cut: ChannelsLastCut) -> float:
    return cut.patch.rows.count * cut.patch.columns.count * cut.patch.vectors / WARP


def _weight_turns(cut: ChannelsLastCut) -> Turns:
    words = min(SHARED_LANES, cut.weight_lanes & -cut.weight_lanes)
    apart, across = cut.strip_kernels, cut.channels.threads
    return turns_of_warp([thread % across * apart for thread in range(min(WARP, cut.threads))], words=words)


def _lines_of_warp(across: int, lane_bytes: int) -> float:
    """Lines that a warp requests: ``across`` of its threads are neighbours and read ``lane_bytes`` each."""
    if across >= WARP:
        return max(1.0, WARP * lane_bytes / LINE_BYTES)
    pixels = WARP / across + (0 if WARP % across == 0 else 0.7)
    return pixels * max(1.0, across * lane_bytes / LINE_BYTES)


# -- a thread: registers and code ----------------------------------------------------------------------------------

ADDRESS_REGISTERS = 16
"""For addresses, counters and loads ahead of their use; in a loop over rows twice as many."""
GUARD_CODE = 5
START_CODE = 50
"""Instructions until a thread knows its place."""
COPY_CODE = 6
"""Instructions of a copy to shared memory; about as many for a weight."""


def registers_of(cut: ChannelsLastCut) -> int:
    columns = len(cut.columns.reads)
    words = columns * cut.source_lanes
    packed = words // 2 if cut.itemsize == 2 else 0
    held = cut.strip_kernels * cut.plane_taps if cut.weights == "registers" else cut.weight_lanes
    held += cut.channels.tile if cut.gather.bias else 0
    others = ADDRESS_REGISTERS * (1 if cut.unroll == "taps" else 2)
    alive = _rows_alive(cut.rows) if cut.unroll == "taps" and cut.goes_once else cut.rows_summed
    return alive * cut.columns.tile * cut.channels.tile + words + packed + held + others


@cache
def _rows_alive(rows: ImageCut) -> int:
    """Rows of sums that exist at the same time, where straight code writes each as soon as it is complete."""
    at_row: dict[int, list[int]] = {}
    for at, pairs in rows.reads.items():
        for row, _ in pairs:
            at_row.setdefault(row, []).append(at)
    spans = [(min(ats), max(ats)) for ats in at_row.values()]
    return max((sum(first <= at <= last for first, last in spans) for at in rows.reads), default=1)


def code_size(cut: ChannelsLastCut) -> int:
    in_loop = cut.unroll == "kw"
    multiplied = cut.rows.tile if in_loop else cut.rows.products
    loaded = len(cut.columns.reads) * (1 if in_loop else len(cut.rows.reads))
    guarded = sum(map(cut.columns.may_be_padding, cut.columns.reads)) if in_loop else _guarded(cut)
    return multiplied * cut.columns.products * cut.weight_lanes + loaded + GUARD_CODE * guarded


def _guarded(cut: ChannelsLastCut) -> int:
    rows, columns = (sum(map(axis.may_be_padding, axis.reads)) for axis in (cut.rows, cut.columns))
    return rows * len(cut.columns.reads) + (len(cut.rows.reads) - rows) * columns


# -- instructions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ThreadWork:
    """Instructions of a thread."""

    fma: float
    loads: float
    """Loads of the source, from global memory or from a patch in shared memory."""
    weight_loads: float
    stores: float
    others: float
    code: int
    """In straight code."""

    @property
    def instructions(self) -> float:
        return self.fma + self.loads + self.weight_loads + self.stores + self.others


def thread_work(cut: ChannelsLastCut) -> ThreadWork:
    rows, pairs = float(len(cut.rows.reads)), float(cut.rows.products)
    if cut.unroll == "kw":
        rows, pairs = _rows_in_loops(cut.rows, cut.rows_together)
    halves = cut.itemsize == 2
    strips = cut.columns.vthreads
    columns, lanes = len(cut.columns.reads), cut.source_lanes
    vector = 1 if cut.fan_turns > 1 else cut.vector(lanes, itemsize=cut.itemsize)
    met = cut.gather.depths.live_pairs / cut.gather.depths.outputs  # taps along the depth that meet a plane
    turns = cut.fan_turns * strips * met
    results = cut.rows.tile * cut.columns.tile
    stored = cut.channels.tile // cut.vector(cut.channels.tile, itemsize=cut.itemsize)
    converted = turns * rows * columns * lanes + strips * results * cut.channels.tile / 2 if halves else 0.0
    weight_loads, weight_others = _weight_work(cut, turns=turns, pairs=pairs)
    copies = COPY_CODE * cut.patch.turns_in_all if cut.stage == "shared" else 0
    return ThreadWork(
        fma=turns * pairs * cut.columns.products * cut.weight_lanes,
        loads=turns * rows * columns * lanes / vector,
        weight_loads=weight_loads,
        stores=strips * results * stored,
        others=START_CODE + converted + weight_others + turns * _overhead(cut, rows=rows, pairs=pairs) + copies,
        code=code_size(cut),
    )


def _weight_work(cut: ChannelsLastCut, *, turns: float, pairs: float) -> tuple[float, float]:
    """(loads of weights, other instructions for them)."""
    kernels = cut.weight_lanes
    if cut.weights == "registers":
        runs, elements = cut.weight_runs
        vectors = runs * elements / cut.vector(elements, itemsize=cut.itemsize)
        times = 1 if cut.gather.depths.taps == 1 else turns
        return times * vectors, times * runs * elements * (cut.itemsize == 2)
    uses = turns * pairs * cut.columns.axis.taps
    if cut.weights == "global":
        return uses * kernels, uses * kernels
    vector = 1 if cut.fan_in < cut.gather.fan_in else cut.vector(kernels, itemsize=4)
    return uses * kernels / vector, COPY_CODE * cut.taps * cut.block_kernels / cut.threads


def _overhead(cut: ChannelsLastCut, *, rows: float, pairs: float) -> float:
    direct = cut.stage == "none"
    if cut.unroll == "taps":
        zeros = math.ceil(cut.source_lanes * cut.itemsize / 4)
        return _guarded(cut) * (1 + zeros) if direct else 0
    unsure = sum(map(cut.columns.may_be_padding, cut.columns.reads)) if direct else 0
    meetings = cut.rows.tile if cut.rows_together and cut.rows.tile > 1 else 0
    return rows * (10 + 2 * unsure + 3 * meetings)


@cache
def _rows_in_loops(rows: ImageCut, together: bool) -> tuple[float, float]:
    """(source rows that a strip goes through, pairs of such a row and a row of the strip); the mean over strips, since
    loops over rows leave out those that are padding."""
    axis = rows.axis
    turns = pairs = 0
    reads = axis.reads(rows.tile)
    for loop in source_loops(axis, rows.tile, together=together):
        for strip in range(rows.strips):
            for turn in range(loop.count):
                at = loop.at + turn * loop.delta
                if 0 <= strip * rows.step + at < axis.inputs:
                    turns += 1
                    met = {row for row, _, _ in loop.meetings}
                    pairs += sum(row in met for row, _ in reads.get(at, ()))
    return turns / rows.strips, pairs / rows.strips
