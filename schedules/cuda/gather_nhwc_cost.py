"""What a cut of fprop or dgrad, NHWC, costs on CUDA: registers, code, instructions, estimated in plain integers.

Good enough to leave out what cannot run and to choose where a search starts; compiled machine code decides afterwards.
"""

from __future__ import annotations

import math
from functools import cache

from dwconv.schedules.cuda.gather_nhwc_cut import VECTOR_BYTES, Cut, ImageCut
from dwconv.target import CudaTarget
from dwconv.workload import Workload

ADDRESS_REGISTERS = 16
"""For addresses, counters and loads ahead of their use; in a loop over rows twice as many."""
GUARD_CODE = 5
LATENCY = 700
"""Cycles until what is loaded is there."""
ROWS_AHEAD = 3
"""Source rows that the compiler loads at a time in straight code; in a loop, one."""
THREADS_AT_A_TIME = 128
"""Of an SM."""
LONG_CODE = 100_000
"""Instructions in straight code that take twice as long: instructions come from memory, too."""
INSTRUCTIONS_PER_BYTE = 7
"""What a thread may issue at the memory's pace: 132 SMs × 128 lanes at 1.75 GHz over 4.3 TB/s."""


def registers(cut: Cut) -> int:
    """Of a thread."""
    columns = len(cut.columns.reads)
    words = columns * cut.source_lanes
    packed = words // 2 if cut.itemsize == 2 else 0
    held = cut.strip_kernels * cut.taps if cut.weights == "registers" else cut.weight_lanes
    others = ADDRESS_REGISTERS * (1 if cut.unroll == "taps" else 2)
    return rows_alive(cut) * cut.columns.tile * cut.channels.tile + words + packed + held + others


def rows_alive(cut: Cut) -> int:
    """Rows of sums that exist at the same time: straight code writes each as soon as it is complete."""
    if cut.unroll != "taps" or cut.fan_turns > 1:
        return cut.rows_summed
    return _rows_alive(cut.rows)


@cache
def _rows_alive(rows: ImageCut) -> int:
    at_row: dict[int, list[int]] = {}
    for at, pairs in rows.reads.items():
        for row, _ in pairs:
            at_row.setdefault(row, []).append(at)
    spans = [(min(ats), max(ats)) for ats in at_row.values()]
    return max((sum(first <= at <= last for first, last in spans) for at in rows.reads), default=1)


def code_size(cut: Cut) -> int:
    """Multiply-adds and loads in the code. A load that may be padding is several instructions."""
    in_loop = cut.unroll == "kw"
    multiplied = cut.rows.tile if in_loop else cut.rows.products
    loaded = len(cut.columns.reads) * (1 if in_loop else len(cut.rows.reads))
    guarded = sum(map(cut.columns.may_be_padding, cut.columns.reads)) if in_loop else _guarded(cut)
    return multiplied * cut.columns.products * cut.weight_lanes + loaded + GUARD_CODE * guarded


def _guarded(cut: Cut) -> int:
    """Vectors of the source in straight code that may be padding."""
    rows, columns = (sum(map(axis.may_be_padding, axis.reads)) for axis in (cut.rows, cut.columns))
    return rows * len(cut.columns.reads) + (len(cut.rows.reads) - rows) * columns


def threads_per_sm(cut: Cut, target: CudaTarget) -> int:
    return min(target.threads_per_sm, target.registers_per_sm // (-(-registers(cut) // 8) * 8))


def instructions(cut: Cut) -> float:
    """Of a thread, and as many again as bytes that it loads, half: the first-level cache delivers one for each lane."""
    rows, columns, lanes = len(cut.rows.reads), len(cut.columns.reads), cut.source_lanes
    halves = cut.itemsize == 2
    source = cut.vector(lanes, itemsize=cut.itemsize)
    products = cut.rows.products * cut.columns.products * cut.weight_lanes
    loads = rows * columns * (lanes / source + lanes * halves + lanes * cut.itemsize / 2)
    results = cut.rows.tile * cut.columns.tile * cut.channels.tile
    stores = results * (cut.itemsize / VECTOR_BYTES + halves / 2)
    return cut.fan_turns * (products + loads + _padding(cut) + _weights(cut)) + stores + 60


def _padding(cut: Cut) -> float:
    """What is not known to be inside is set to zero before it is loaded; in a loop over rows, asked for."""
    if cut.unroll == "taps":
        return _guarded(cut) * (1 + cut.source_lanes * cut.itemsize / 4)
    unsure = sum(map(cut.columns.may_be_padding, cut.columns.reads))
    meetings = cut.rows.tile if cut.rows_together and cut.rows.tile > 1 else 0
    return len(cut.rows.reads) * (10 + 2 * unsure + 5 * meetings)


def _weights(cut: Cut) -> float:
    kernels = cut.weight_lanes
    if cut.weights == "registers":
        return kernels * cut.taps * (cut.itemsize / VECTOR_BYTES + (cut.itemsize == 2))
    uses = cut.rows.products * cut.columns.axis.taps
    if cut.weights == "global":
        return uses * kernels * 2
    staged = 10 * cut.taps * cut.block_kernels / cut.threads / cut.fan_turns
    return uses * math.ceil(kernels / 4) + staged


def cost(cut: Cut, workload: Workload, target: CudaTarget) -> float:
    """Of a result, in instructions: those issued, or what the memory takes instead; more where threads are too few to
    hide how long loads take, where the last blocks leave SMs idle, and where the code is long."""
    rows, columns, channels = cut.rows, cut.columns, cut.channels
    threads = rows.strips * columns.strips * channels.strips * workload.batch
    results = rows.size * columns.size * channels.size * workload.batch
    issued = instructions(cut)
    held = min(threads_per_sm(cut, target), threads / target.sms)
    waits = len(cut.rows.reads) / (ROWS_AHEAD if cut.unroll == "taps" else 1)
    busy = held / THREADS_AT_A_TIME * issued / (issued + waits * LATENCY)
    waves = threads / (held * target.sms)
    issue = issued * threads / results * (1 + code_size(cut) / LONG_CODE)
    time = max(issue / min(busy, 1), INSTRUCTIONS_PER_BYTE * _traffic(cut, workload) / results) + issue / 2
    return time * math.ceil(waves) / waves


def _traffic(cut: Cut, workload: Workload) -> float:
    """Bytes: of the tensors, or through the second-level cache, which is little faster, with the edges of blocks."""
    channels = cut.work.source_channels * cut.itemsize * workload.batch
    inputs = cut.rows.axis.inputs * cut.columns.axis.inputs
    edges = _read_by_blocks(cut.rows) * _read_by_blocks(cut.columns) - inputs
    return workload.bytes + max(0, edges) * channels


@cache
def _read_by_blocks(axis: ImageCut) -> int:
    """Inputs that all blocks together read, each block every input once."""
    block = min(axis.tile * axis.threads, axis.size)
    read = (block - 1) * axis.axis.up // axis.axis.down + (axis.axis.taps - 1) * abs(axis.axis.step) // axis.axis.down
    return axis.blocks * min(read + 1, axis.axis.inputs)
