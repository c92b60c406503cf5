"""The work of a thread of the convolution inside a block, in plain integers. No TVM here."""

from __future__ import annotations

import math
from functools import lru_cache

from dwconv.problems.block import Activation
from dwconv.schedules.cuda.block_nhwc.cut import STAGED_AHEAD, Cut

APPLIED: dict[Activation, int] = {"identity": 0, "relu": 1, "relu6": 2, "hardswish": 3, "silu": 15, "gelu": 25}
"""Instructions of an activation, about; and, the next, of the activation and its derivative."""
DIFFERENTIATED: dict[Activation, int] = {"identity": 0, "relu": 2, "relu6": 5, "hardswish": 8, "silu": 18, "gelu": 30}
OTHER_REGISTERS = 40
"""For addresses and counters."""
START, STAGED = 60, 16
"""Instructions that find out where a thread is, and where what it stages lies."""


def registers_of(cut: Cut) -> int:
    """About how many a thread needs at least: for its tile, or for what it stages."""
    row = len(cut.columns.reads) + cut.columns.axis.taps
    if cut.is_forward:
        own = cut.tile_h * cut.tile_w
        kept = 4 if cut.block.norm2 else 0
        # Of a row, what has been multiplied makes room for what comes.
        tile, staged = cut.vector_c * (own + math.ceil(row / 2)), STAGED_AHEAD * (cut.vector_c + 3)
        return cut.vector_c * kept + max(tile, staged) + OTHER_REGISTERS
    own = cut.tile_h * cut.tile_w
    return cut.vector_c * (cut.tile_rows + own + max(2 * own + row, STAGED_AHEAD + 4)) + OTHER_REGISTERS


def code_size(cut: Cut) -> int:
    """Instructions in straight code, about."""
    return int(fma_of_tile(cut) + shared_loads(cut)) + cut.staged_ahead * int(_instructions_staged(cut))


def fma_of_tile(cut: Cut) -> int:
    """Multiply-adds of a thread for its tile."""
    return cut.rows.products * cut.columns.products * cut.vector_c * (1 if cut.is_forward else 2)


def shared_loads(cut: Cut) -> int:
    """Vectors that a thread reads of the patch and of the weights for its tile."""
    return len(cut.rows.reads) * len(cut.columns.reads) + cut.rows.products * cut.columns.axis.taps


def staged_vectors(cut: Cut) -> float:
    """Vectors of a patch that a thread stages."""
    return cut.patch_pixels / cut.strips


def _instructions_staged(cut: Cut) -> float:
    """Of a vector."""
    images, block = cut.images_staged, cut.block
    if cut.is_forward:
        each = APPLIED[block.act1] + (1 if block.norm1 else 0)
    else:
        each = DIFFERENTIATED[block.act2] + 4 if block.norm2 else 0
    return STAGED + 3 * images + cut.vector_c * (each + 1) + 1


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
    return START + staged + shared_loads(cut) + fma_of_tile(cut) + given


def instructions_of_sums(cut: Cut) -> float:
    """Instructions of a thread, once: weights brought to shared memory, and sums on their way to one thread of those
    that share them."""
    words = cut.block_channels * cut.taps / cut.tile_threads
    sums = cut.tile_rows * cut.vector_c
    return 2 * START + 12 * words + sums * (1 + 6 if cut.strips > 1 else 1) + 8 * (cut.strips - 1).bit_length()
