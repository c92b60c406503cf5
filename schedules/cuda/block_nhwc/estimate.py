"""The work of a thread of the convolution inside a block, and so of every kernel of a pass. No TVM here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from dwconv.problems.block import Activation
from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE
from dwconv.schedules.cuda.block_nhwc.cut import ADDING_LANES, AHEAD, STAGED_AHEAD, BlockCut, TileAxis, adding_shares
from dwconv.schedules.cuda.gpu import hardware
from dwconv.schedules.cuda.gpu.cost import ADDED_AT_A_TIME, ADDING_REGISTERS, LONG_CODE, BlockWork

APPLIED: dict[Activation, int] = {"identity": 0, "relu": 1, "relu6": 2, "hardswish": 3, "silu": 15, "gelu": 25}
"""Instructions of an activation, about; and, the next, of the activation and its derivative."""
DIFFERENTIATED: dict[Activation, int] = {"identity": 0, "relu": 2, "relu6": 5, "hardswish": 8, "silu": 18, "gelu": 30}
OTHER_REGISTERS = 40
"""For addresses and counters."""
START, STAGED = 60, 16
"""Instructions that find out where a thread is, and where what it stages lies."""


def registers_of(cut: BlockCut) -> int:
    row, own = len(cut.columns.reads) + cut.columns.axis.taps, cut.tile_h * cut.tile_w
    of_lane = cut.itemsize / 4  # of what is on its way, and of x
    if cut.is_forward:
        kept = 4 if cut.block.norm2 else 0
        # Of a row, what has been multiplied makes room for what comes.
        summed, staged = cut.vector_c * (own + math.ceil(row / 2)), STAGED_AHEAD * (cut.vector_c * of_lane + 3)
        return cut.vector_c * kept + math.ceil(max(summed, staged)) + OTHER_REGISTERS
    results = 2 * own
    if cut.itemsize < 4 and cut.block.act1 == "identity" and not (cut.block.norm1 or cut.ragged):
        results = own  # of x the compiler makes float32 where it is multiplied
    tile = cut.tile_rows + own * of_lane + max(results + row, cut.images_staged * cut.staged_ahead * of_lane + 4)
    return math.ceil(cut.vector_c * tile) + OTHER_REGISTERS


def code_size(cut: BlockCut) -> int:
    tile = fma_of_tile(cut) + shared_loads(cut) + _converted(cut)
    return int(tile) + cut.staged_ahead * int(_instructions_staged(cut))


def fma_of_tile(cut: BlockCut) -> int:
    return cut.rows.products * cut.columns.products * cut.vector_c * (1 if cut.is_forward else 2)


def patch_reads(cut: BlockCut) -> int:
    return len(cut.rows.reads) * len(cut.columns.reads)


def weight_reads(cut: BlockCut) -> int:
    return cut.rows.products * cut.columns.axis.taps


def shared_loads(cut: BlockCut) -> int:
    of_patch, of_weights = (-(-cut.vector_c * size // hardware.VECTOR_BYTES) for size in (ITEMSIZE[cut.patch_dtype], 4))
    return patch_reads(cut) * of_patch + weight_reads(cut) * of_weights


def _converted(cut: BlockCut) -> float:
    """Instructions that make float32 of 16 bits that a thread reads for its tile, and the way back for two at once; not
    those for what it stages."""
    if cut.itemsize == 4:
        return 0.0
    own = cut.tile_h * cut.tile_w
    read = (patch_reads(cut) if cut.copies_patch else 0) + (0 if cut.is_forward else own)
    return cut.vector_c * (read + own / 2)


def staged_vectors(cut: BlockCut) -> float:
    return cut.patch_pixels / cut.strips


def _instructions_staged(cut: BlockCut) -> float:
    images, block = cut.images_staged, cut.block
    if cut.copies_patch:
        return STAGED + 3 + cut.vector_c * cut.itemsize / 4 + 1
    if cut.is_forward:
        each = APPLIED[block.act1] + (1 if block.norm1 else 0)
    else:
        each = DIFFERENTIATED[block.act2] + 4 if block.norm2 else 0
    converted = images if cut.itemsize < 4 else 0
    return STAGED + 3 * images + cut.vector_c * (each + 1 + converted) + 1


@lru_cache(maxsize=4096)
def instructions_of_tile(cut: BlockCut) -> float:
    block, own = cut.block, cut.tile_h * cut.tile_w
    if cut.is_forward:
        given = own * (3 + cut.vector_c * (3 if block.norm2 else 0))
    else:
        each = APPLIED[block.act1] + DIFFERENTIATED[block.act1] + (7 if block.norm1 else 1)
        given = own * (8 + cut.vector_c * each)
    staged = staged_vectors(cut) * _instructions_staged(cut)
    return START + staged + shared_loads(cut) + fma_of_tile(cut) + _converted(cut) + given


def instructions_of_sums(cut: BlockCut) -> float:
    words = cut.block_channels * cut.taps / cut.tile_threads
    sums = cut.tile_rows * cut.vector_c
    return 2 * START + 12 * words + sums * (1 + 6 if cut.strips > 1 else 1) + 8 * (cut.strips - 1).bit_length()


# -- the work of a block -------------------------------------------------------------------------------------------

PIXEL_REGISTERS = 56
"""Of a thread that goes from pixel to pixel, about."""
STRAIGHT_AHEAD = 4
"""Vectors of a patch that the compiler loads at a time where there is no loop over them."""
OF_PIXEL, OF_ROW = 6, 5
"""Instructions for each vector of an image, besides those that compute; and for each row of a part that is added."""


def block_works(cut: BlockCut, target: CudaTarget) -> tuple[BlockWork, ...]:
    return tuple(_forward(cut, target) if cut.is_forward else _backward(cut, target))


def _forward(cut: BlockCut, target: CudaTarget) -> Iterator[BlockWork]:
    x, y = _pixels(cut)
    if cut.block.norm1:
        yield _of_pixels(cut, target, pixels=x, read=1, written=0, each=3)
        yield _of_parts(cut, target, parts=cut.parts, rows=1, read=cut.pixel_rows)
    yield _of_tiles(cut, target, read=x, written=y)
    if cut.block.norm2:
        yield _of_parts(cut, target, parts=cut.tile_parts, rows=1, read=cut.tile_rows)
        yield _of_pixels(cut, target, pixels=y, read=1, written=1, each=1 + APPLIED[cut.block.act2])


def _backward(cut: BlockCut, target: CudaTarget) -> Iterator[BlockWork]:
    x, y = _pixels(cut)
    if cut.block.norm2:
        yield _of_pixels(cut, target, pixels=y, read=2, written=0, each=5 + DIFFERENTIATED[cut.block.act2])
        yield _of_parts(cut, target, parts=cut.parts, rows=1, read=cut.pixel_rows)
    yield _of_tiles(cut, target, read=y * cut.images_staged, written=x)
    yield _of_parts(cut, target, parts=cut.tile_parts, rows=cut.tile_rows, read=1)
    if cut.block.norm1:
        yield _of_pixels(cut, target, pixels=x, read=2, written=1, each=2)


def _pixels(cut: BlockCut) -> tuple[int, int]:
    workload = cut.workload
    x, y = (workload.batch * math.prod(size) for size in (workload.input_size, workload.output_size))
    return x, y


def _of_pixels(cut: BlockCut, target: CudaTarget, *, pixels: int, read: int, written: int, each: int) -> BlockWork:
    """From pixel to pixel; ``each``: instructions for an element."""
    warps = -(-cut.pixel_threads // hardware.WARP)
    # The block with the most pixels is the last.
    vectors = math.ceil(pixels / cut.parts) / cut.threads_p
    moved = float(cut.itemsize * pixels * cut.workload.channels * (read + written))
    converted = read + written / 2 if cut.itemsize < 4 else 0
    lines = _lines(cut)
    return BlockWork(
        blocks=cut.parts * cut.channel_blocks,
        threads=cut.pixel_threads,
        registers=PIXEL_REGISTERS,
        instructions=warps * (2 * START + vectors * ((read + written) * OF_PIXEL + (each + converted) * cut.vector_c)),
        fma=warps * vectors * each * cut.vector_c,
        lines=warps * vectors * (read + written) * lines,
        dram_bytes=moved,
        again_bytes=moved * (_padded_channels(cut) - 1),
        cache_bytes=moved * _padded_channels(cut),
        bytes_in_flight=float(cut.itemsize * cut.pixel_threads * AHEAD * read * cut.vector_c),
        waits=vectors / AHEAD,
    )


def _of_parts(cut: BlockCut, target: CudaTarget, *, parts: int, rows: int, read: int) -> BlockWork:
    shares = adding_shares(parts)
    threads = shares * ADDING_LANES
    warps, each = -(-threads // hardware.WARP), parts / shares * read
    size = 4.0 * parts * rows * read * cut.workload.channels
    return BlockWork(
        blocks=rows * -(-cut.workload.channels // ADDING_LANES),
        threads=threads,
        registers=ADDING_REGISTERS,
        instructions=warps * (START + OF_ROW * each),
        lines=warps * each * hardware.WARP / ADDING_LANES,
        dram_bytes=0.0,
        cache_bytes=size,
        bytes_in_flight=4.0 * threads * min(each, ADDED_AT_A_TIME),
        waits=math.ceil(each / ADDED_AT_A_TIME),
    )


def _of_tiles(cut: BlockCut, target: CudaTarget, *, read: int, written: int) -> BlockWork:
    """The convolution, which reads and writes so many pixels at least."""
    warps = -(-cut.tile_threads // hardware.WARP)
    items = math.ceil(cut.workload.batch * cut.rows.tiles / cut.split)
    images, lanes, of_patch = cut.images_staged, cut.vector_c, ITEMSIZE[cut.patch_dtype]
    accesses = (weight_reads(cut), 4 * lanes), (patch_reads(cut) + staged_vectors(cut), of_patch * lanes)
    of_pixel = float(cut.itemsize * cut.workload.channels)
    own = cut.tile_h * cut.tile_w
    x = 0 if cut.is_forward else written  # of which a thread reads its own tile
    staged = float(cut.workload.batch * images * _inputs_read(cut.rows) * _inputs_read(cut.columns))
    # A block goes down the columns, so that it finds in the cache what it reads again of rows.
    beside = float(cut.workload.batch * images * cut.rows.axis.inputs) * _inputs_read(cut.columns)
    partial = 4.0 * cut.tile_parts * cut.tile_rows * cut.workload.channels
    touched = staged_vectors(cut) * images + own * (1 if cut.is_forward else 2)
    allowed = hardware.registers_left(target, threads=cut.tile_threads, blocks=cut.blocks_per_sm)
    needed = -(-registers_of(cut) // hardware.REGISTERS_PER_UNIT) * hardware.REGISTERS_PER_UNIT
    instructions = items * instructions_of_tile(cut) + instructions_of_sums(cut)
    turns = math.ceil(staged_vectors(cut))
    rounds = math.ceil(turns / cut.staged_ahead)
    together = rounds > 1 or cut.copies_patch
    ahead = math.ceil(turns / rounds) if together else min(turns, STRAIGHT_AHEAD)
    ahead, x_ahead = ahead * images, 0 if cut.is_forward else own
    # Threads that may have no pixels load x in a branch: before the patch, if there is little of that.
    ahead = max(ahead, x_ahead) if cut.copies_patch and cut.ragged else ahead + x_ahead
    return BlockWork(
        blocks=cut.tile_blocks,
        threads=cut.tile_threads,
        registers=min(allowed, needed),
        shared_bytes=cut.shared_bytes,
        instructions=warps * instructions * (1 + fma_of_tile(cut) / LONG_CODE),
        fma=warps * items * fma_of_tile(cut),
        lines=warps * items * touched * _lines(cut),
        bank_turns=warps * items * sum(count * _turns(vector_bytes) for count, vector_bytes in accesses),
        conflict_turns=warps * items * sum(count * _conflict_turns(vector_bytes) for count, vector_bytes in accesses),
        dram_bytes=of_pixel * (read + written + x) + partial,
        again_bytes=of_pixel * (max(0.0, beside - read) + (staged + written + x) * (_padded_channels(cut) - 1)),
        cache_bytes=of_pixel * (staged + written + x) * _padded_channels(cut) + partial,
        bytes_in_flight=float(cut.itemsize * cut.tile_threads * lanes * ahead),
        waits=items * rounds,
    )


def _turns(vector_bytes: int) -> float:
    """Of shared memory, for a warp's vectors, which lie side by side. Of two loads for each every other one's banks are
    idle."""
    return vector_bytes / hardware.BANK_BYTES * (2 if vector_bytes > hardware.VECTOR_BYTES else 1)


def _conflict_turns(vector_bytes: int) -> float:
    return _turns(vector_bytes) - vector_bytes / hardware.BANK_BYTES


def _lines(cut: BlockCut) -> float:
    side_by_side = min(cut.threads_c, hardware.WARP)
    return hardware.WARP / side_by_side * max(1.0, side_by_side * cut.vector_c * cut.itemsize / hardware.LINE_BYTES)


def _padded_channels(cut: BlockCut) -> float:
    """Bytes of memory that a block's channels move over those that they are: whole sectors, at both ends."""
    size = cut.itemsize * cut.block_channels
    return 1.0 if size % hardware.SECTOR_BYTES == 0 else (size + hardware.SECTOR_BYTES / 2) / size


def _inputs_read(axis: TileAxis) -> int:
    first, count = axis.spanned
    return sum(
        max(0, min(axis.axis.inputs, tile * axis.block_step + first + count) - max(0, tile * axis.block_step + first))
        for tile in range(axis.tiles)
    )
