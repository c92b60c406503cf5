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
from dwconv.schedules.cuda.wgrad_nchw_plane.cut import BackwardCut, ImagePlanes

START = 60
"""Instructions that find a thread's place, and store what it summed."""
GRADIENT_REGISTERS, BACKWARD_REGISTERS = 26, 30
"""For addresses and counters."""
GRADIENT_BOOKKEEPING, BACKWARD_BOOKKEEPING = 30, 40
"""Instructions that go to the next image."""
COPY, COPY_OUT = 3.5, 6
"""To find out where a vector comes from, whether it exists, and where it goes: into shared memory, and out of it."""


@dataclass(frozen=True, kw_only=True)
class PlanesWork:
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
    return sum(len(whole_vectors([row * pitch + column for column in columns], lanes)) for row in rows)


@lru_cache(maxsize=4096)
def thread_work(cut: ImagePlanes) -> PlanesWork:
    """Of both gradients a product is two, and a pixel of the tile is read and written."""
    halves, of_both = ITEMSIZE[cut.workload.dtype] == 2, isinstance(cut, BackwardCut)
    rows = cut.rows.tile_reads(cut.tile_h, tiles=cut.tiling.tiles_h)
    columns = cut.columns.tile_reads(cut.tile_w, tiles=cut.tiling.tiles_w)
    products = sum(map(len, rows.values())) * sum(map(len, columns.values())) * cut.thread_planes
    vectors = vectors_of(tuple(rows), tuple(columns), pitch=cut.columns.inputs, lanes=cut.met.lanes)
    pixels, beyond, bookkeeping = cut.tile_h * cut.tile_w, 0, GRADIENT_BOOKKEEPING
    copied = COPY * (cut.copies(cut.met) + cut.copies(cut.tiled))
    registers = cut.thread_planes * cut.sums_of_channel
    if isinstance(cut, BackwardCut):
        vectors += 2 * sum(len(cut.row_pieces(0, row)) for row in range(cut.tile_h))
        beyond = max(0, len(rows) - cut.rows.origin(cut.tile_h))
        copied += COPY_OUT * cut.copies(cut.tiled)
        met, bookkeeping = min(cut.tile_h, max(map(len, rows.values()), default=0)), BACKWARD_BOOKKEEPING
        registers = 2 * (registers + met * cut.tile_w + len(columns)) + BACKWARD_REGISTERS
    else:
        every = tuple(range(cut.tile_h)), tuple(range(cut.tile_w))
        vectors += vectors_of(*every, pitch=cut.columns.outputs, lanes=cut.tiled.lanes)
        beyond = sum(not 0 <= at < cut.tile_h * cut.rows.up for at in rows)
        # The sums, the rows of dy that an x meets, and rows on their way.
        met = min(cut.tile_h, (cut.rows.taps - 1) * cut.rows.step // cut.rows.up + 1)
        registers += met * cut.tile_w + 2 * (len(columns) * (2 if halves else 3) // 2) + GRADIENT_REGISTERS
    zeros = cut.thread_planes * beyond * len(columns) // cut.met.lanes if cut.tiling.tiles_h > 1 else 0
    converted = cut.thread_planes * (len(rows) * len(columns) + (1 + of_both) * pixels) if halves else 0
    products, accesses = (1 + of_both) * products, cut.thread_planes * vectors
    return PlanesWork(
        products=products,
        accesses=accesses,
        instructions_of_image=products + accesses + converted + zeros + copied + bookkeeping,
        instructions_of_sums=instructions_of_sums(cut),
        registers=registers,
    )


def block_works(cut: ImagePlanes, target: CudaTarget) -> tuple[BlockWork, ...]:
    first = _of_sums(cut, target)
    if cut.split_n == 1:
        return (first,)
    return first, adding_work(parts=cut.split_n, results=cut.results, target=target)


def _of_sums(cut: ImagePlanes, target: CudaTarget) -> BlockWork:
    workload, itemsize, work = cut.workload, ITEMSIZE[cut.workload.dtype], thread_work(cut)
    warps = -(-cut.threads // WARP)
    width = min(held.lanes for held in cut.layout.held) * itemsize
    needed = warps * work.accesses * max(1.0, width / BANK_BYTES)
    accessed = needed * cut.layout.turns
    plane = cut.images * cut.planes * itemsize
    read = plane * (cut.met.elements + cut.tiled.elements)
    moved = read + cut.writes * plane * cut.tiled.elements
    written = float(BANK_BYTES * cut.split_n * cut.results if cut.split_n > 1 else 0)
    return BlockWork(
        blocks=cut.channel_blocks * cut.split_n,
        threads=cut.threads,
        registers=registers_left(target, threads=cut.threads, blocks=blocks_at_a_time(cut, target)),
        shared_bytes=cut.shared_bytes,
        instructions=warps * (cut.turns * work.instructions_of_image + work.instructions_of_sums),
        fma=float(warps * cut.turns * work.products),
        lines=cut.turns * moved / LINE_BYTES,
        bank_turns=cut.turns * (accessed + moved / LINE_BYTES) + warps * work.instructions_of_sums / 4,
        conflict_turns=cut.turns * (accessed - needed),
        dram_bytes=workload.bytes + written,
        cache_bytes=workload.bytes + written,
        bytes_in_flight=float(min(cut.pipeline, cut.turns) * read),
        waits=math.ceil(cut.turns / cut.pipeline),  # as many turns as have room load their planes at once
        loads_ahead=cut.pipeline > 1,
    )


def blocks_at_a_time(cut: ImagePlanes, target: CudaTarget) -> int:
    """Blocks on an SM, by its threads, its shared memory, and the registers that a thread should need; at least 1."""
    alone = occupancy(threads=cut.threads, registers=1, shared_bytes=cut.shared_bytes, target=target)
    return next((count for count in range(alone.blocks_per_sm, 0, -1) if holds(cut, target, count)), 1)


def holds(cut: ImagePlanes, target: CudaTarget, count: int) -> bool:
    left = registers_left(target, threads=cut.threads, blocks=count)
    return left >= min(thread_work(cut).registers, target.registers_per_thread)
