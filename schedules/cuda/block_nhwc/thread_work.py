"""The work of a thread of the convolution inside a block, in plain integers. No TVM here."""

from __future__ import annotations

import math
from functools import lru_cache

from dwconv.problems.block import Activation
from dwconv.problems.workload import ITEMSIZE
from dwconv.schedules.cuda.block_nhwc.cut import STAGED_AHEAD, Cut
from dwconv.schedules.cuda.gpu.hardware import VECTOR_BYTES

APPLIED: dict[Activation, int] = {"identity": 0, "relu": 1, "relu6": 2, "hardswish": 3, "silu": 15, "gelu": 25}
"""Instructions of an activation, about; and, the next, of the activation and its derivative."""
DIFFERENTIATED: dict[Activation, int] = {"identity": 0, "relu": 2, "relu6": 5, "hardswish": 8, "silu": 18, "gelu": 30}
OTHER_REGISTERS = 40
"""For addresses and counters."""
START, STAGED = 60, 16
"""Instructions that find out where a thread is, and where what it stages lies."""


def registers_of(cut: Cut) -> int:
    """About how many a thread needs at least: for its tile, or for what it stages."""
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


def code_size(cut: Cut) -> int:
    """Instructions in straight code, about."""
    tile = fma_of_tile(cut) + shared_loads(cut) + _converted(cut)
    return int(tile) + cut.staged_ahead * int(_instructions_staged(cut))


def fma_of_tile(cut: Cut) -> int:
    """Multiply-adds of a thread for its tile."""
    return cut.rows.products * cut.columns.products * cut.vector_c * (1 if cut.is_forward else 2)


def patch_reads(cut: Cut) -> int:
    """Vectors of channels that a thread reads of the patch for its tile."""
    return len(cut.rows.reads) * len(cut.columns.reads)


def weight_reads(cut: Cut) -> int:
    """Those of the weights."""
    return cut.rows.products * cut.columns.axis.taps


def shared_loads(cut: Cut) -> int:
    """Loads of both."""
    of_patch, of_weights = (-(-cut.vector_c * size // VECTOR_BYTES) for size in (ITEMSIZE[cut.patch_dtype], 4))
    return patch_reads(cut) * of_patch + weight_reads(cut) * of_weights


def _converted(cut: Cut) -> float:
    """Instructions that make float32 of 16 bits that a thread reads for its tile, and the way back for two at once; not
    those for what it stages."""
    if cut.itemsize == 4:
        return 0.0
    own = cut.tile_h * cut.tile_w
    read = (patch_reads(cut) if cut.copies_patch else 0) + (0 if cut.is_forward else own)
    return cut.vector_c * (read + own / 2)


def staged_vectors(cut: Cut) -> float:
    """Vectors of a patch that a thread stages."""
    return cut.patch_pixels / cut.strips


def _instructions_staged(cut: Cut) -> float:
    """Of a vector."""
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
def instructions_of_tile(cut: Cut) -> float:
    """Instructions of a thread for a tile of the block."""
    block, own = cut.block, cut.tile_h * cut.tile_w
    if cut.is_forward:
        given = own * (3 + cut.vector_c * (3 if block.norm2 else 0))
    else:
        each = APPLIED[block.act1] + DIFFERENTIATED[block.act1] + (7 if block.norm1 else 1)
        given = own * (8 + cut.vector_c * each)
    staged = staged_vectors(cut) * _instructions_staged(cut)
    return START + staged + shared_loads(cut) + fma_of_tile(cut) + _converted(cut) + given


def instructions_of_sums(cut: Cut) -> float:
    """Instructions of a thread, once: weights brought to shared memory, and sums on their way to one thread of those
    that share them."""
    words = cut.block_channels * cut.taps / cut.tile_threads
    sums = cut.tile_rows * cut.vector_c
    return 2 * START + 12 * words + sums * (1 + 6 if cut.strips > 1 else 1) + 8 * (cut.strips - 1).bit_length()
