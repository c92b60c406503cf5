"""The work of a thread of whole planes that sum over images, and so of a block, in plain integers. No TVM here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE
from dwconv.schedules.cuda.gpu.cost import BlockWork, adding_work, halvings
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, LINE_BYTES, WARP, occupancy, registers_left
from dwconv.schedules.cuda.gpu.memory import whole_vectors
from dwconv.schedules.cuda.image_planes.cut import BackwardCut, GradientCut, ImagePlanes

START = 60
"""Instructions that find a thread's place, and store what it summed."""
GRADIENT_REGISTERS, BACKWARD_REGISTERS = 26, 30
"""For addresses and counters."""
GRADIENT_BOOKKEEPING, BACKWARD_BOOKKEEPING = 30, 40
"""Instructions that go to the next image."""
COPY, COPY_OUT = 3.5, 6
"""To find out where a vector comes from, whether it exists, and where it goes: into shared memory, and out of it."""


@dataclass(frozen=True, kw_only=True)
class ThreadWork:
    """What a thread does."""

    products: int
    """Multiply-adds for one image; so is the next."""
    accesses: int
    """Vectors of shared memory that it reads or writes."""
    instructions_of_image: float
    """About as many as are unrolled."""
    instructions_of_sums: float
    """Those that it executes once."""
    registers: int
    """About how many it needs."""


def instructions_of_sums(cut: ImagePlanes) -> float:
    """To find a thread's place, to add up its sums and to store them: halving, half of the threads pass theirs on and
    the other half add them."""
    sums, count = cut.thread_planes * cut.sums_of_channel, halvings(cut.mates)
    return START + sums + 3 * sums * (2 - 2.0**-count) * (count > 0) + 12 * count


@cache
def vectors_of(rows: tuple[int, ...], columns: tuple[int, ...], *, pitch: int, lanes: int) -> int:
    """Vectors in which a thread reads these rows and columns of a plane."""
    return sum(len(whole_vectors([row * pitch + column for column in columns], lanes)) for row in rows)


@lru_cache(maxsize=4096)
def gradient_work(cut: GradientCut) -> ThreadWork:
    rows = cut.rows.tile_reads(cut.tile_h, tiles=cut.tiling.tiles_h)
    columns = cut.columns.tile_reads(cut.tile_w, tiles=cut.tiling.tiles_w)
    products = sum(map(len, rows.values())) * sum(map(len, columns.values())) * cut.thread_planes
    x = vectors_of(tuple(rows), tuple(columns), pitch=cut.columns.inputs, lanes=cut.met.lanes)
    every = tuple(range(cut.tile_h)), tuple(range(cut.tile_w))
    dy = vectors_of(*every, pitch=cut.columns.outputs, lanes=cut.tiled.lanes)
    accesses = cut.thread_planes * (x + dy)
    converted = zeros = 0
    if ITEMSIZE[cut.workload.dtype] == 2:
        converted = cut.thread_planes * (len(rows) * len(columns) + cut.tile_h * cut.tile_w)
    if cut.tiling.tiles_h > 1:
        beyond = sum(not 0 <= at < cut.tile_h * cut.rows.up for at in rows)
        zeros = cut.thread_planes * beyond * len(columns) // max(1, cut.met.lanes)
    copied = COPY * (cut.copies(cut.met) + cut.copies(cut.tiled))
    # The sums, the rows of dy that an x meets, and rows on their way.
    met = min(cut.tile_h, (cut.rows.taps - 1) * cut.rows.step // cut.rows.up + 1)
    words = 2 if ITEMSIZE[cut.workload.dtype] == 4 else 1
    row = len(columns) * (1 + words) // 2
    registers = cut.thread_planes * cut.sums_of_channel + met * cut.tile_w + 2 * row + GRADIENT_REGISTERS
    return ThreadWork(
        products=products,
        accesses=accesses,
        instructions_of_image=products + accesses + converted + zeros + copied + GRADIENT_BOOKKEEPING,
        instructions_of_sums=instructions_of_sums(cut),
        registers=registers,
    )


@lru_cache(maxsize=4096)
def backward_work(cut: BackwardCut) -> ThreadWork:
    rows = cut.rows.tile_reads(cut.tile_h, tiles=cut.tiling.tiles_h)
    columns = cut.columns.tile_reads(cut.tile_w, tiles=cut.tiling.tiles_w)
    pixels, sums = cut.tile_h * cut.tile_w, cut.taps * cut.thread_planes
    products = 2 * sum(map(len, rows.values())) * sum(map(len, columns.values())) * cut.thread_planes
    dy = vectors_of(tuple(rows), tuple(columns), pitch=cut.columns.inputs, lanes=cut.met.lanes)
    pieces = sum(len(cut.row_pieces(0, row)) for row in range(cut.tile_h))
    accesses = cut.thread_planes * (dy + 2 * pieces)
    converted = zeros = 0
    if ITEMSIZE[cut.workload.dtype] == 2:
        converted = cut.thread_planes * (len(rows) * len(columns) + 2 * pixels)
    if cut.tiling.tiles_h > 1:
        beyond = len(rows) - cut.rows.origin(cut.tile_h)
        zeros = cut.thread_planes * max(0, beyond) * len(columns) // cut.met.lanes
    copied = COPY * (cut.copies(cut.met) + cut.copies(cut.tiled)) + COPY_OUT * cut.copies(cut.tiled)
    met = min(cut.tile_h, max(map(len, rows.values()), default=0))
    return ThreadWork(
        products=products,
        accesses=accesses,
        instructions_of_image=products + accesses + converted + zeros + copied + BACKWARD_BOOKKEEPING,
        instructions_of_sums=instructions_of_sums(cut),
        registers=2 * sums + 2 * met * cut.tile_w + 2 * len(columns) + BACKWARD_REGISTERS,
    )


def block_works(cut: ImagePlanes, work: ThreadWork, target: CudaTarget) -> tuple[BlockWork, ...]:
    """The kernel that reads both tensors, and the one that adds what its blocks wrote, if they are several parts."""
    first = _of_sums(cut, work, target)
    if cut.split_n == 1:
        return (first,)
    return first, adding_work(parts=cut.split_n, results=cut.results, target=target)


def _of_sums(cut: ImagePlanes, work: ThreadWork, target: CudaTarget) -> BlockWork:
    workload, itemsize = cut.workload, ITEMSIZE[cut.workload.dtype]
    warps = -(-cut.threads // WARP)
    width = min(held.lanes for held in cut.layout.held) * itemsize
    accessed = warps * work.accesses * max(1.0, width / BANK_BYTES) * cut.layout.turns
    plane = cut.images * cut.planes * itemsize
    read = plane * (cut.met.elements + cut.tiled.elements)
    moved = read + cut.writes * plane * cut.tiled.elements
    written = float(BANK_BYTES * cut.split_n * cut.results if cut.split_n > 1 else 0)
    return BlockWork(
        blocks=cut.channel_blocks * cut.split_n,
        threads=cut.threads,
        registers=registers_left(target, threads=cut.threads, blocks=blocks_at_a_time(cut, work, target)),
        shared_bytes=cut.shared_bytes,
        instructions=warps * (cut.turns * work.instructions_of_image + work.instructions_of_sums),
        fma=float(warps * cut.turns * work.products),
        lines=cut.turns * moved / LINE_BYTES,
        bank_turns=cut.turns * (accessed + moved / LINE_BYTES) + warps * work.instructions_of_sums / 4,
        dram_bytes=workload.bytes + written,
        cache_bytes=workload.bytes + written,
        bytes_in_flight=float(min(cut.pipeline, cut.turns) * read),
        waits=math.ceil(cut.turns / cut.pipeline),  # as many turns as have room load their planes at once
        loads_ahead=cut.pipeline > 1,
    )


def blocks_at_a_time(cut: ImagePlanes, work: ThreadWork, target: CudaTarget) -> int:
    """Blocks on an SM, by its threads, its shared memory, and the registers that a thread should need; at least 1."""
    alone = occupancy(threads=cut.threads, registers=1, shared_bytes=cut.shared_bytes, target=target)
    return next((count for count in range(alone.blocks_per_sm, 0, -1) if holds(cut, work, target, count)), 1)


def holds(cut: ImagePlanes, work: ThreadWork, target: CudaTarget, count: int) -> bool:
    """Whether so many blocks on an SM leave a thread the registers that it should need."""
    left = registers_left(target, threads=cut.threads, blocks=count)
    return left >= min(work.registers, target.registers_per_thread)
