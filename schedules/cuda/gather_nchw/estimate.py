"""The work of a thread of strips, and so of a block, in plain integers. No TVM here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, DType, Workload
from dwconv.schedules.cuda.gather_nchw.cut import PlanesCut, RowsCut, StripCut, source_lanes
from dwconv.schedules.cuda.gpu.cost import BlockWork
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, LINE_BYTES, SHARED_LANES, WARP, compiled_registers
from dwconv.schedules.cuda.gpu.memory import aligned_lanes, least_vectors, lines_of_warp, sector_bytes, whole_vectors
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config

STRIP_START, START = 30, 40
"""Instructions with which a thread finds its place, and copies."""
STRIP_REGISTERS, ROW_REGISTERS, PLANE_REGISTERS = 20, 32, 24
"""For addresses, tests and what is under way."""

# -- from global memory --------------------------------------------------------------------------------------------

ELEMENTS_AHEAD = 36
"""Elements of source and weights that the compiler loads ahead of their use in straight code."""


@dataclass(frozen=True, kw_only=True)
class StripWork:
    """Instructions of a thread for its strip and one plane of the source, and lines of memory that a warp of them asks
    for."""

    fma: int
    loads: float
    stores: float
    others: float
    lines: float

    @property
    def instructions(self) -> float:
        return self.fma + self.loads + self.stores + self.others


@cache
def strip_work(gather: Gather, dtype: DType, tile_h: int, tile_w: int, *, across: int) -> StripWork:
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


def strips_work(workload: Workload, config: Config, target: CudaTarget) -> BlockWork:
    """Every block reads the rows that it meets once, in whole sectors."""
    cut = StripCut.of(workload, config)
    gather, itemsize = cut.gather, ITEMSIZE[cut.dtype]
    rows, columns = gather.rows, gather.columns
    alone = strip_work(gather, cut.dtype, cut.tile_h, cut.tile_w, across=cut.threads_w)
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


# -- from rows in shared memory ------------------------------------------------------------------------------------

FETCH_INSTRUCTIONS = 10
"""To find out where a staged vector comes from, whether it exists, and to convert and store it."""
ROW_INSTRUCTIONS = 8
"""To go on to the next kernel row."""
LOADS_IN_FLIGHT = 9
"""Loads of one thread while it stages; of 16-bit elements twice as many."""


def rows_work(workload: Workload, config: Config, target: CudaTarget) -> BlockWork:
    """Kernel rows that meet padding are left out: of ``rows.taps`` an output row meets those inside."""
    cut = RowsCut.of(workload, config)
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


# -- from whole planes in shared memory ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PlaneWork:
    """A thread's work for one plane."""

    products: int
    """Multiply-adds."""
    elements: int
    """Elements of the source that it reads."""
    reads: int
    """In so many vectors."""


@cache
def plane_work(cut: PlanesCut) -> PlaneWork:
    gather = cut.gather
    rows = gather.rows.tile_reads(cut.tile_h, tiles=cut.tiling.tiles_h)
    columns = gather.columns.tile_reads(cut.tile_w, tiles=cut.tiling.tiles_w)
    lanes, pitch = cut.source.lanes, gather.columns.inputs
    return PlaneWork(
        products=sum(map(len, rows.values())) * sum(map(len, columns.values())),
        elements=len(rows) * len(columns),
        reads=sum(len(whole_vectors([row * pitch + column for column in columns], lanes)) for row in rows),
    )


@cache
def plane_code(cut: PlanesCut) -> int:
    work = plane_work(cut)
    converted = work.elements if cut.held != "float32" else 0
    of_a_plane = work.products + converted + work.reads + 2 * cut.tile_h * cut.tile_w + cut.kernel_words
    return cut.thread_planes * of_a_plane


@cache
def plane_registers(cut: PlanesCut) -> int:
    """About how many a thread needs: weights, two source rows, sums, and what it keeps while the others finish: its
    results, or what it has read, whichever is less."""
    rows, columns = cut.gather.rows, cut.gather.columns.tile_reads(cut.tile_w, tiles=cut.tiling.tiles_w)
    words = ITEMSIZE[cut.held] / BANK_BYTES
    kept = cut.thread_planes * min(int(cut.tile_h * cut.tile_w * words), plane_work(cut).elements)
    under_way = cut.tile_w * -(-rows.taps // rows.up) if cut.held != "float32" else 0
    return cut.kernel_words + kept + under_way + 2 * len(columns) + PLANE_REGISTERS


@dataclass(frozen=True, kw_only=True)
class Issued:
    """Instructions of a thread, and turns of shared memory and lines of memory that its warp takes for them."""

    instructions: float
    fma: int
    bank_turns: float
    conflict_turns: float
    """Of them, by bank conflicts."""
    lines: float


def issued(cut: PlanesCut) -> Issued:
    work, itemsize = plane_work(cut), ITEMSIZE[cut.held]
    outputs, writes = cut.tile_h * cut.tile_w, len(cut.result_pieces(0))

    def turns(width: int) -> float:
        return max(1.0, width * itemsize / BANK_BYTES)

    share = cut.thread_planes / cut.tiling.plane_threads  # planes a thread stands for
    copied = share * (cut.source.elements + cut.result.elements)
    converted = (work.elements if cut.held != "float32" else 0) * cut.thread_planes
    if cut.held != cut.dtype:
        converted += int(copied)
    elif cut.held != "float32":
        converted += cut.thread_planes * outputs // 2
    vectors = copied / cut.source.copied_lanes * (1 + itemsize / ITEMSIZE[cut.dtype])
    of_a_plane = work.products + work.reads + writes + cut.kernel_words
    turns_read = work.reads * turns(cut.source.lanes)
    turns_written = writes * turns(cut.result.lanes) * outputs / max(1, writes * cut.result.lanes)
    conflicts = turns_read * (cut.source.turns - 1) + turns_written * (cut.result.turns - 1)
    turns_of_a_plane = turns_read + turns_written + conflicts + cut.kernel_words
    return Issued(
        instructions=cut.thread_planes * of_a_plane + converted + vectors + START,
        fma=cut.thread_planes * work.products,
        bank_turns=cut.thread_planes * turns_of_a_plane + copied * itemsize / BANK_BYTES,
        conflict_turns=cut.thread_planes * conflicts,
        lines=copied * ITEMSIZE[cut.dtype] * WARP / LINE_BYTES,
    )


def planes_work(workload: Workload, config: Config, target: CudaTarget) -> BlockWork:
    cut = PlanesCut.of(workload, config)
    warps, thread = -(-cut.threads // WARP), issued(cut)
    copied_bytes = cut.source.copied_lanes * ITEMSIZE[cut.dtype]
    return BlockWork(
        blocks=-(-workload.batch * cut.gather.channels // cut.planes),
        threads=cut.threads,
        registers=compiled_registers(plane_registers(cut), target),
        shared_bytes=cut.shared_bytes,
        instructions=warps * thread.instructions,
        fma=float(warps * thread.fma),
        lines=warps * thread.lines,
        bank_turns=warps * thread.bank_turns,
        conflict_turns=warps * thread.conflict_turns,
        dram_bytes=float(workload.bytes),
        cache_bytes=float(workload.bytes),
        bytes_in_flight=float(cut.threads * cut.loads_under_way * copied_bytes),
    )
