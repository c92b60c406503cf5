"""The work of a thread of whole planes, and so of a block, in plain integers. No TVM here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.gpu.cost import BlockWork
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, LINE_BYTES, WARP, compiled_registers, occupancy
from dwconv.schedules.cuda.gpu.vectors import whole_vectors
from dwconv.schedules.cuda.resident_planes.cut import Cut
from dwconv.schedules.space import Config

OTHER_REGISTERS = 24
"""For addresses, tests and vectors under way."""
START = 40
"""Instructions with which a thread finds its place, and copies."""


@dataclass(frozen=True, kw_only=True)
class ThreadWork:
    """A thread's work for one plane."""

    products: int
    """Multiply-adds."""
    elements: int
    """Elements of the source that it reads."""
    reads: int
    """In so many vectors."""


@cache
def thread_work(cut: Cut) -> ThreadWork:
    gather = cut.gather
    rows = gather.rows.tile_reads(cut.tile_h, tiles=cut.tiles_h)
    columns = gather.columns.tile_reads(cut.tile_w, tiles=cut.tiles_w)
    lanes, pitch = cut.source.lanes, gather.columns.inputs
    return ThreadWork(
        products=sum(map(len, rows.values())) * sum(map(len, columns.values())),
        elements=len(rows) * len(columns),
        reads=sum(len(whole_vectors([row * pitch + column for column in columns], lanes)) for row in rows),
    )


@cache
def code_size(cut: Cut) -> int:
    """About how many instructions a thread has, none of them in a loop."""
    work = thread_work(cut)
    converted = work.elements if cut.held != "float32" else 0
    of_a_plane = work.products + converted + work.reads + 2 * cut.tile_h * cut.tile_w + cut.kernel_words
    return cut.thread_planes * of_a_plane


@cache
def registers_of(cut: Cut) -> int:
    """About how many a thread needs: weights, two source rows, sums, and what it keeps while the others finish: its
    results, or what it has read, whichever is less."""
    rows, columns = cut.gather.rows, cut.gather.columns.tile_reads(cut.tile_w, tiles=cut.tiles_w)
    words = ITEMSIZE[cut.held] / BANK_BYTES
    kept = cut.thread_planes * min(int(cut.tile_h * cut.tile_w * words), thread_work(cut).elements)
    under_way = cut.tile_w * -(-rows.taps // rows.up) if cut.held != "float32" else 0
    return cut.kernel_words + kept + under_way + 2 * len(columns) + OTHER_REGISTERS


def blocks_at_a_time(cut: Cut, target: CudaTarget) -> int:
    """Blocks on an SM by its threads, its shared memory, and the registers that a thread should need; at least 1."""
    held = occupancy(threads=cut.threads, registers=registers_of(cut), shared_bytes=cut.shared_bytes, target=target)
    return max(1, held.blocks_per_sm)


@dataclass(frozen=True, kw_only=True)
class Issued:
    """Instructions of a thread, and turns of shared memory and lines of memory that its warp takes for them."""

    instructions: float
    fma: int
    bank_turns: float
    lines: float


def issued(cut: Cut) -> Issued:
    work, itemsize = thread_work(cut), ITEMSIZE[cut.held]
    outputs, writes = cut.tile_h * cut.tile_w, len(cut.result_pieces(0))

    def turns(width: int, conflicts: float) -> float:
        return max(1.0, width * itemsize / BANK_BYTES) * conflicts

    share = cut.thread_planes / cut.plane_threads  # planes a thread stands for
    copied = share * (cut.source.elements + cut.result.elements)
    converted = (work.elements if cut.held != "float32" else 0) * cut.thread_planes
    if cut.held != cut.dtype:
        converted += int(copied)
    elif cut.held != "float32":
        converted += cut.thread_planes * outputs // 2
    vectors = copied / cut.source.copied_lanes * (1 + itemsize / ITEMSIZE[cut.dtype])
    of_a_plane = work.products + work.reads + writes + cut.kernel_words
    turns_of_a_plane = (
        work.reads * turns(cut.source.lanes, cut.source.turns)
        + writes * turns(cut.result.lanes, cut.result.turns) * outputs / max(1, writes * cut.result.lanes)
        + cut.kernel_words
    )
    return Issued(
        instructions=cut.thread_planes * of_a_plane + converted + vectors + START,
        fma=cut.thread_planes * work.products,
        bank_turns=cut.thread_planes * turns_of_a_plane + copied * itemsize / BANK_BYTES,
        lines=copied * ITEMSIZE[cut.dtype] * WARP / LINE_BYTES,
    )


def block_work(workload: Workload, config: Config, target: CudaTarget) -> BlockWork:
    """Every plane is read and written once."""
    cut = Cut.of(workload, config)
    warps, thread = -(-cut.threads // WARP), issued(cut)
    copied_bytes = cut.source.copied_lanes * ITEMSIZE[cut.dtype]
    return BlockWork(
        blocks=-(-workload.batch * cut.gather.channels // cut.planes),
        threads=cut.threads,
        registers=compiled_registers(registers_of(cut), target),
        shared_bytes=cut.shared_bytes,
        instructions=warps * thread.instructions,
        fma=float(warps * thread.fma),
        lines=warps * thread.lines,
        bank_turns=warps * thread.bank_turns,
        dram_bytes=float(workload.bytes),
        cache_bytes=float(workload.bytes),
        bytes_in_flight=float(cut.threads * cut.loads_under_way * copied_bytes),
    )
