"""The work of a thread of whole planes, and so of a block, in plain integers. No TVM here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.fprop_dgrad_nchw_plane.cut import PlanesCut
from dwconv.schedules.cuda.gpu.cost import BlockWork
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, LINE_BYTES, WARP, compiled_registers
from dwconv.schedules.cuda.gpu.memory import whole_vectors
from dwconv.schedules.space import Config

START = 40
"""Instructions with which a thread finds its place, and copies."""
PLANE_REGISTERS = 24
"""For addresses, tests and what is under way."""


@dataclass(frozen=True, kw_only=True)
class ThreadPlane:
    """A thread's work for one plane."""

    products: int
    """Multiply-adds."""
    elements: int
    """Elements of the source that it reads."""
    reads: int
    """In so many vectors."""


@cache
def thread_work(cut: PlanesCut) -> ThreadPlane:
    gather = cut.gather
    rows = gather.rows.tile_reads(cut.tile_h, tiles=cut.tiling.tiles_h)
    columns = gather.columns.tile_reads(cut.tile_w, tiles=cut.tiling.tiles_w)
    lanes, pitch = cut.source.lanes, gather.columns.inputs
    return ThreadPlane(
        products=sum(map(len, rows.values())) * sum(map(len, columns.values())),
        elements=len(rows) * len(columns),
        reads=sum(len(whole_vectors([row * pitch + column for column in columns], lanes)) for row in rows),
    )


@cache
def plane_code(cut: PlanesCut) -> int:
    work = thread_work(cut)
    converted = work.elements if cut.held != "float32" else 0
    of_a_plane = work.products + converted + work.reads + 2 * cut.tile_h * cut.tile_w + cut.kernel_words
    return cut.thread_planes * of_a_plane


@cache
def plane_registers(cut: PlanesCut) -> int:
    """About how many a thread needs: weights, two source rows, sums, and what it keeps while the others finish: its
    results, or what it has read, whichever is less."""
    rows, columns = cut.gather.rows, cut.gather.columns.tile_reads(cut.tile_w, tiles=cut.tiling.tiles_w)
    words = ITEMSIZE[cut.held] / BANK_BYTES
    kept = cut.thread_planes * min(int(cut.tile_h * cut.tile_w * words), thread_work(cut).elements)
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
    work, itemsize = thread_work(cut), ITEMSIZE[cut.held]
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


def block_work(workload: Workload, config: Config, target: CudaTarget) -> BlockWork:
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
