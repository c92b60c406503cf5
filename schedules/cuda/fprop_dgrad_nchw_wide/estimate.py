"""The work of a thread of wide rows, and so of a block, in plain integers. No TVM here."""

from __future__ import annotations

from functools import cache

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.fprop_dgrad_nchw_wide.cut import WideCut
from dwconv.schedules.cuda.gpu.cost import BlockWork
from dwconv.schedules.cuda.gpu.hardware import LINE_BYTES, SHARED_LANES, WARP, compiled_registers
from dwconv.schedules.cuda.gpu.memory import aligned_lanes, lines_of_warp, sector_bytes
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config

START = 40
"""Instructions with which a thread finds its place, and copies."""
ROW_REGISTERS = 32
"""For addresses, tests and what is under way."""
FETCH_INSTRUCTIONS = 10
"""To find out where a staged vector comes from, whether it exists, and to convert and store it."""
ROW_INSTRUCTIONS = 8
"""To go on to the next kernel row."""
LOADS_IN_FLIGHT = 9
"""Loads of one thread while it stages; of 16-bit elements twice as many."""


def block_work(workload: Workload, config: Config, target: CudaTarget) -> BlockWork:
    """Kernel rows that meet padding are left out: of ``rows.taps`` an output row meets those inside."""
    cut = WideCut.of(workload, config)
    gather, itemsize = cut.gather, ITEMSIZE[cut.dtype]
    warps = -(-cut.threads // WARP)
    planes = -(-workload.batch * gather.channels // cut.planes)
    rows_met = _rows_met(gather) * cut.tile_h
    fetched = cut.planes * (cut.plane_words / cut.fetch_lanes + gather.rows.taps * cut.weight_words) / cut.threads
    reads = cut.gather.columns.reads(cut.tile_w)
    products, vectors = sum(map(len, reads.values())), len(reads) / cut.shared_lanes
    weights = cut.weight_words / cut.weight_lanes
    outputs = cut.tile_h * cut.tile_w
    stored = outputs / aligned_lanes(cut.tile_w, gather.columns.outputs, itemsize=itemsize)
    fma = gather.fan_in * rows_met * products
    issued = fma + gather.fan_in * (rows_met * (vectors + weights + ROW_INSTRUCTIONS) + FETCH_INSTRUCTIONS * fetched)
    issued += stored + (outputs if itemsize == 2 else 0) + START
    read = rows_met * vectors * cut.shared_lanes
    conflicts = read * (cut.read_turns - 1)
    turns = read + conflicts + rows_met * weights * cut.weight_lanes / SHARED_LANES
    fetched_lines = cut.planes * cut.rows.size * cut.row_words * itemsize / LINE_BYTES
    stored_lines = warps * stored * lines_of_warp(cut.threads_w, cut.tile_w * itemsize)
    written = workload.batch * gather.channels * gather.rows.outputs * gather.columns.outputs * itemsize
    blocks = planes * cut.blocks_h * cut.blocks_w
    row = sector_bytes(min(cut.columns.size, gather.columns.inputs) * itemsize, whole=cut.blocks_w == 1)
    read_bytes = blocks * cut.planes * gather.fan_in * min(cut.rows.size, gather.rows.inputs) * row
    under_way = min(fetched, LOADS_IN_FLIGHT * 4 / itemsize)
    return BlockWork(
        blocks=blocks,
        threads=cut.threads,
        registers=compiled_registers(row_registers(gather, cut.tile_w), target),
        shared_bytes=cut.shared_bytes,
        instructions=warps * issued,
        fma=warps * fma,
        lines=gather.fan_in * fetched_lines + stored_lines,
        bank_turns=warps * gather.fan_in * (turns + fetched * cut.fetch_lanes),
        conflict_turns=warps * gather.fan_in * conflicts,
        dram_bytes=float(workload.bytes),
        cache_bytes=float(max(read_bytes, workload.bytes - written) + written),
        bytes_in_flight=cut.threads * under_way * cut.fetch_lanes * itemsize,
    )


@cache
def _rows_met(gather: Gather) -> float:
    """Kernel rows that a row of results meets inside the source, the mean over all rows."""
    rows = gather.rows
    met = sum(map(len, rows.live_reads(0, rows.outputs).values()))
    return met / rows.outputs


@cache
def row_code(gather: Gather, tile_w: int) -> int:
    reads = gather.columns.reads(tile_w)
    products = sum(map(len, reads.values()))
    return gather.rows.down * (products + (len(reads) + gather.columns.taps) // SHARED_LANES)


@cache
def row_registers(gather: Gather, tile_w: int) -> int:
    row = gather.columns.taps + len(gather.columns.reads(tile_w)) // 2
    return gather.rows.down * tile_w + row + ROW_REGISTERS
