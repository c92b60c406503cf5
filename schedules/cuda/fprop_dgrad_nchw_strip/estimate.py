"""The work of a thread of strips, and so of a block, in plain integers. No TVM here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, DType, Workload
from dwconv.schedules.cuda.fprop_dgrad_nchw_strip.cut import StripCut, source_lanes
from dwconv.schedules.cuda.gpu.cost import BlockWork
from dwconv.schedules.cuda.gpu.hardware import WARP, compiled_registers
from dwconv.schedules.cuda.gpu.memory import aligned_lanes, least_vectors, lines_of_warp, sector_bytes
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config

STRIP_START = 30
"""Instructions with which a thread finds its place."""
STRIP_REGISTERS = 20
"""For addresses, tests and what is under way."""
ELEMENTS_AHEAD = 36
"""Elements of source and weights that the compiler loads ahead of their use in straight code."""


@dataclass(frozen=True, kw_only=True)
class StripWork:
    """Instructions of a thread for its strip and one plane of the source, and lines of memory that a warp of them
    requests."""

    fma: int
    loads: float
    stores: float
    others: float
    lines: float

    @property
    def instructions(self) -> float:
        return self.fma + self.loads + self.stores + self.others


@cache
def thread_work(gather: Gather, dtype: DType, tile_h: int, tile_w: int, *, across: int) -> StripWork:
    """A warp reads a piece of as many rows as it takes to give 32 threads a strip each, ``across`` to a row."""
    rows, columns, itemsize = gather.rows, gather.columns, ITEMSIZE[dtype]
    taps = rows.taps * columns.taps
    loads = len(rows.reads(tile_h)) * len(
        least_vectors(columns.reads(tile_w), source_lanes(gather, tile_w, itemsize=itemsize))
    )
    stores = tile_h * tile_w / aligned_lanes(tile_w, columns.outputs, itemsize=itemsize)
    lines = loads * lines_of_warp(across, columns.origin(tile_w) * itemsize)
    lines += stores * lines_of_warp(across, tile_w * itemsize)
    lines += taps * max(1.0, WARP / across)  # each weight once a plane
    products = products_of(gather, tile_h, tile_w)
    others = strip_code(gather, tile_h, tile_w) - products + taps + STRIP_START
    return StripWork(fma=products, loads=loads, stores=stores, others=others, lines=lines)


def block_work(workload: Workload, config: Config, target: CudaTarget) -> BlockWork:
    """Every block reads the rows that it meets once, in whole sectors."""
    cut = StripCut.of(workload, config)
    gather, itemsize = cut.gather, ITEMSIZE[cut.dtype]
    rows, columns = gather.rows, gather.columns
    alone = thread_work(gather, cut.dtype, cut.tile_h, cut.tile_w, across=cut.threads_w)
    warps = -(-cut.threads // WARP)
    planes = -(-workload.batch * gather.result_planes // cut.planes)
    blocks = planes * cut.blocks_h * cut.blocks_w
    whole = cut.blocks_w == 1
    height, width = rows.spanned(cut.threads_h * cut.tile_h)[1], columns.spanned(cut.threads_w * cut.tile_w)[1]
    row = sector_bytes(min(width, columns.inputs) * itemsize, whole=whole)
    read = blocks * cut.planes * gather.planes * min(height, rows.inputs) * row
    row = sector_bytes(min(cut.threads_w * cut.tile_w, columns.outputs) * itemsize, whole=whole)
    written = planes * cut.planes * rows.outputs * cut.blocks_w * row
    needed = workload.bytes - workload.batch * gather.result_planes * rows.outputs * columns.outputs * itemsize
    loaded = len(rows.reads(cut.tile_h)) * cut.source_span + rows.taps * columns.taps
    registers = strip_registers(gather, cut.tile_h, cut.tile_w, rows_ahead=cut.rows_ahead)
    return BlockWork(
        blocks=blocks,
        threads=cut.threads,
        registers=compiled_registers(registers, target),
        instructions=warps * gather.planes * alone.instructions,
        fma=float(warps * gather.planes * alone.fma),
        lines=warps * gather.planes * alone.lines,
        dram_bytes=float(workload.bytes),
        cache_bytes=float(max(read, needed) + written),
        bytes_in_flight=float(cut.threads * min(loaded, ELEMENTS_AHEAD) * itemsize),
    )


def products_of(gather: Gather, tile_h: int, tile_w: int) -> int:
    rows, columns = gather.rows.reads(tile_h), gather.columns.reads(tile_w)
    return sum(map(len, rows.values())) * sum(map(len, columns.values()))


@cache
def strip_code(gather: Gather, tile_h: int, tile_w: int) -> int:
    read = len(gather.rows.reads(tile_h)) * len(gather.columns.reads(tile_w))
    return products_of(gather, tile_h, tile_w) + read + tile_h * tile_w


@cache
def strip_registers(gather: Gather, tile_h: int, tile_w: int, *, rows_ahead: int) -> int:
    reads = gather.rows.reads(tile_h)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, pairs in reads.items():
        for out, _ in pairs:
            first.setdefault(out, at)
            last[out] = at
    under_way = max(sum(first[out] <= at <= last[out] for out in first) for at in reads)
    sums = (under_way if gather.sums_one_plane else tile_h) * tile_w
    weights, row = gather.rows.taps * gather.columns.taps, len(gather.columns.reads(tile_w))
    return weights + sums + (1 + rows_ahead) * row + STRIP_REGISTERS
