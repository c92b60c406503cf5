"""The work of the kernels of a block, in plain integers, guessed where only the compiler knows. No TVM here."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE
from dwconv.schedules.cuda.block_nhwc.cut import ADDING_LANES, AHEAD, Cut, TileAxis, adding_shares
from dwconv.schedules.cuda.block_nhwc.thread_work import (
    APPLIED,
    DIFFERENTIATED,
    START,
    fma_of_tile,
    instructions_of_sums,
    instructions_of_tile,
    patch_reads,
    registers_of,
    staged_vectors,
    weight_reads,
)
from dwconv.schedules.cuda.gpu.cost import LONG_CODE, BlockWork
from dwconv.schedules.cuda.gpu.hardware import (
    BANK_BYTES,
    LINE_BYTES,
    REGISTERS_PER_UNIT,
    SECTOR_BYTES,
    VECTOR_BYTES,
    WARP,
)
from dwconv.schedules.cuda.gpu.occupancy import registers_left
from dwconv.schedules.cuda.gpu.split_sum import ADDED_AT_A_TIME, ADDING_REGISTERS

PIXEL_REGISTERS = 56
"""Of a thread that goes from pixel to pixel, about."""
STRAIGHT_AHEAD = 4
"""Vectors of a patch that the compiler loads at a time where there is no loop over them."""
OF_PIXEL, OF_ROW = 6, 5
"""Instructions for each vector of an image, besides those that compute; and for each row of a part that is added."""


def block_works(cut: Cut, target: CudaTarget) -> tuple[BlockWork, ...]:
    """Those of all kernels, in the order in which they run."""
    return tuple(_forward(cut, target) if cut.is_forward else _backward(cut, target))


def _forward(cut: Cut, target: CudaTarget) -> Iterator[BlockWork]:
    x, y = _pixels(cut)
    if cut.block.norm1:
        yield _of_pixels(cut, target, pixels=x, read=1, written=0, each=3)
        yield _of_parts(cut, target, parts=cut.parts, rows=1, read=cut.pixel_rows)
    yield _of_tiles(cut, target, read=x, written=y)
    if cut.block.norm2:
        yield _of_parts(cut, target, parts=cut.tile_parts, rows=1, read=cut.tile_rows)
        yield _of_pixels(cut, target, pixels=y, read=1, written=1, each=1 + APPLIED[cut.block.act2])


def _backward(cut: Cut, target: CudaTarget) -> Iterator[BlockWork]:
    x, y = _pixels(cut)
    if cut.block.norm2:
        yield _of_pixels(cut, target, pixels=y, read=2, written=0, each=5 + DIFFERENTIATED[cut.block.act2])
        yield _of_parts(cut, target, parts=cut.parts, rows=1, read=cut.pixel_rows)
    yield _of_tiles(cut, target, read=y * cut.images_staged, written=x)
    yield _of_parts(cut, target, parts=cut.tile_parts, rows=cut.tile_rows, read=1)
    if cut.block.norm1:
        yield _of_pixels(cut, target, pixels=x, read=2, written=1, each=2)


def _pixels(cut: Cut) -> tuple[int, int]:
    """Of all images: (of x, of y)."""
    workload = cut.workload
    x, y = (workload.batch * math.prod(size) for size in (workload.input_size, workload.output_size))
    return x, y


def _of_pixels(cut: Cut, target: CudaTarget, *, pixels: int, read: int, written: int, each: int) -> BlockWork:
    """From pixel to pixel; ``each``: instructions for an element."""
    warps = -(-cut.pixel_threads // WARP)
    # The block with the most pixels is the last.
    vectors = math.ceil(pixels / cut.parts) / cut.threads_p
    moved = float(cut.itemsize * pixels * cut.workload.channels * (read + written))
    converted = read + written / 2 if cut.itemsize < 4 else 0
    lines = _lines(cut)
    return BlockWork(
        blocks=cut.parts * cut.channel_blocks,
        threads=cut.pixel_threads,
        registers=PIXEL_REGISTERS,
        shared_bytes=0,
        instructions=warps * (2 * START + vectors * ((read + written) * OF_PIXEL + (each + converted) * cut.vector_c)),
        fma=warps * vectors * each * cut.vector_c,
        lines=warps * vectors * (read + written) * lines,
        bank_turns=0.0,
        dram_bytes=moved,
        again_bytes=moved * (_padded_channels(cut) - 1),
        cache_bytes=moved * _padded_channels(cut),
        bytes_in_flight=float(cut.itemsize * cut.pixel_threads * AHEAD * read * cut.vector_c),
        waits=vectors / AHEAD,
    )


def _of_parts(cut: Cut, target: CudaTarget, *, parts: int, rows: int, read: int) -> BlockWork:
    """Sums of parts: ``rows`` of them, each of ``read`` rows of a part."""
    shares = adding_shares(parts)
    threads = shares * ADDING_LANES
    warps, each = -(-threads // WARP), parts / shares * read
    size = 4.0 * parts * rows * read * cut.workload.channels
    return BlockWork(
        blocks=rows * -(-cut.workload.channels // ADDING_LANES),
        threads=threads,
        registers=ADDING_REGISTERS,
        shared_bytes=0,
        instructions=warps * (START + OF_ROW * each),
        fma=0.0,
        lines=warps * each * WARP / ADDING_LANES,
        bank_turns=0.0,
        dram_bytes=0.0,
        cache_bytes=size,
        bytes_in_flight=4.0 * threads * min(each, ADDED_AT_A_TIME),
        waits=math.ceil(each / ADDED_AT_A_TIME),
    )


def _of_tiles(cut: Cut, target: CudaTarget, *, read: int, written: int) -> BlockWork:
    """The convolution, which reads and writes so many pixels at least."""
    warps = -(-cut.tile_threads // WARP)
    items = math.ceil(cut.workload.batch * cut.rows.tiles / cut.split)
    images, lanes, of_patch = cut.images_staged, cut.vector_c, ITEMSIZE[cut.patch_dtype]
    patch_vectors = patch_reads(cut) + staged_vectors(cut)
    of_pixel = float(cut.itemsize * cut.workload.channels)
    own = cut.tile_h * cut.tile_w
    x = 0 if cut.is_forward else written  # of which a thread reads its own tile
    staged = float(cut.workload.batch * images * _inputs_read(cut.rows) * _inputs_read(cut.columns))
    # A block goes down the columns, so that it finds in the cache what it reads again of rows.
    beside = float(cut.workload.batch * images * cut.rows.axis.inputs) * _inputs_read(cut.columns)
    partial = 4.0 * cut.tile_parts * cut.tile_rows * cut.workload.channels
    touched = staged_vectors(cut) * images + own * (1 if cut.is_forward else 2)
    allowed = registers_left(target, threads=cut.tile_threads, blocks=cut.blocks_per_sm)
    needed = -(-registers_of(cut) // REGISTERS_PER_UNIT) * REGISTERS_PER_UNIT
    instructions = items * instructions_of_tile(cut) + instructions_of_sums(cut)
    turns = math.ceil(staged_vectors(cut))
    rounds = math.ceil(turns / cut.staged_ahead)
    together = rounds > 1 or cut.copies_patch
    ahead = math.ceil(turns / rounds) if together else min(turns, STRAIGHT_AHEAD)
    ahead, x_ahead = ahead * images, 0 if cut.is_forward else own
    # Threads that may have no pixels ask for x in a branch: before the patch, if there is little of that.
    ahead = max(ahead, x_ahead) if cut.copies_patch and cut.ragged else ahead + x_ahead
    return BlockWork(
        blocks=cut.tile_blocks,
        threads=cut.tile_threads,
        registers=min(allowed, needed),
        shared_bytes=cut.shared_bytes,
        instructions=warps * instructions * (1 + fma_of_tile(cut) / LONG_CODE),
        fma=warps * items * fma_of_tile(cut),
        lines=warps * items * touched * _lines(cut),
        bank_turns=warps * items * (weight_reads(cut) * _turns(4 * lanes) + patch_vectors * _turns(of_patch * lanes)),
        dram_bytes=of_pixel * (read + written + x) + partial,
        again_bytes=of_pixel * (max(0.0, beside - read) + (staged + written + x) * (_padded_channels(cut) - 1)),
        cache_bytes=of_pixel * (staged + written + x) * _padded_channels(cut) + partial,
        bytes_in_flight=float(cut.itemsize * cut.tile_threads * lanes * ahead),
        waits=items * rounds,
    )


def _turns(vector_bytes: int) -> float:
    """Of shared memory, for a warp's vectors, which lie side by side. Of two loads for each every other one's banks are
    idle."""
    return vector_bytes / BANK_BYTES * (2 if vector_bytes > VECTOR_BYTES else 1)


def _lines(cut: Cut) -> float:
    """Lines of memory that a warp asks for with one vector of each thread."""
    side_by_side = min(cut.threads_c, WARP)
    return WARP / side_by_side * max(1.0, side_by_side * cut.vector_c * cut.itemsize / LINE_BYTES)


def _padded_channels(cut: Cut) -> float:
    """Bytes of memory that a block's channels move over those that they are: whole sectors, at both ends."""
    size = cut.itemsize * cut.block_channels
    return 1.0 if size % SECTOR_BYTES == 0 else (size + SECTOR_BYTES / 2) / size


def _inputs_read(axis: TileAxis) -> int:
    """Inputs that the tiles along an axis read, each of them its own."""
    first, count = axis.spanned
    return sum(
        max(0, min(axis.axis.inputs, tile * axis.block_step + first + count) - max(0, tile * axis.block_step + first))
        for tile in range(axis.tiles)
    )
