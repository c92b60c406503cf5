"""The work of a thread of the weight gradient: instructions, loads, registers, in plain integers. No TVM here."""

from __future__ import annotations

from functools import lru_cache

from dwconv.problems.workload import ITEMSIZE
from dwconv.schedules.cuda.gpu.hardware import WARP
from dwconv.schedules.cuda.weight_gradient.cut import Cut

BOOKKEEPING, START = 12, 40
"""Instructions that find out where a tile is, and where a thread is."""
OTHER_REGISTERS, MOST_COMING = 26, 32
"""For addresses and counters, and for a row of x on its way."""


@lru_cache(maxsize=4096)
def products_of(cut: Cut) -> int:
    """Multiply-adds in the straight code."""
    pairs_h, pairs_w = (sum(len(pairs) for pairs in reads.values()) for reads in (cut.row_reads, cut.column_reads))
    return pairs_h * pairs_w * cut.vector_c


def loads_of(cut: Cut) -> int:
    """Loads in the straight code."""
    return len(cut.row_reads) * len(cut.x_loads) + cut.unroll_h * len(cut.dy_loads)


def instructions_of(cut: Cut) -> float:
    """About how many there are for an output: products, loads, and what 16-bit data and padding add."""
    outputs = cut.tile_h * cut.tile_w * cut.vector_c
    return instructions_of_image(cut) / outputs * cut.kernel_rows / cut.group_kh


@lru_cache(maxsize=4096)
def instructions_of_image(cut: Cut) -> float:
    """Instructions of a thread for its tile of one image."""
    rows, itemsize = len(cut.row_reads), ITEMSIZE[cut.workload.dtype]
    # In NCHW neighbouring threads do not read neighbouring words if a tile is wider than a vector.
    turns = 1 if cut.channel_last else min(cut.tile_w // cut.dy_vector, 32 // (itemsize * cut.dy_vector))
    wanted = rows * len(cut.column_reads) * cut.x_channels + cut.unroll_h * cut.tile_w * cut.vector_c
    begin = BOOKKEEPING * (1 + cut.unroll_h / cut.tile_h)  # of the straight code, and of the tile
    straight = products_of(cut) + 2 * turns * loads_of(cut) + _padding(cut) + begin + (wanted if itemsize == 2 else 0)
    return straight * cut.tile_h / cut.unroll_h


def instructions_of_sums(cut: Cut) -> float:
    """Instructions of a thread, once: sums set to zero, and on their way to one thread of those that share them.
    Halving, half of the threads pass theirs on and the other half add them; what some of a warp do takes the time of
    all."""
    sums, halvings = cut.sums_of_channel * cut.vector_c, (cut.threads_p - 1).bit_length()
    across = cut.threads_c if cut.channel_last else 1
    busy = [min(cut.threads_p, -(-(across << halving) // WARP) * WARP / across) for halving in range(halvings)]
    return START + sums + sums * (3 * sum(busy) + busy[0] if busy else 1) / cut.threads_p + 8 * halvings


def _padding(cut: Cut) -> float:
    """Instructions that put zeros where padding is, or that branch around it."""
    ends_h, ends_w = range(cut.unroll_h * cut.rows.up), range(cut.tile_w * cut.columns.up)
    rows = sum(cut.groups > 1 or at not in ends_h for at in cut.row_reads)
    beyond = [load for load in cut.x_loads if cut.tiles_w > 1 and load.column not in ends_w]
    if cut.edge == "skip":
        return 3 * rows + 4 * len(cut.row_reads) * len(beyond)
    zeros = [max(1.0, load.lanes * ITEMSIZE[cut.workload.dtype] / 8) for load in cut.x_loads]
    edge = [max(1.0, load.lanes * ITEMSIZE[cut.workload.dtype] / 8) for load in beyond]
    return rows * sum(zeros) + (len(cut.row_reads) - rows) * sum(edge)


def read_again(cut: Cut) -> float:
    """Rows that the threads read over rows that there are: tiles share their halo, groups of kernel rows all."""
    reach_h = (cut.group_kh - 1) * cut.rows.step + 1
    rows = ((cut.tile_h - 1) * cut.rows.up + reach_h) / (cut.tile_h * cut.rows.up)
    x, dy = cut.rows.up * cut.columns.up, cut.workload.multiplier
    return cut.groups * (x * max(1.0, rows) + dy) / (x + dy)


def registers_of(cut: Cut) -> int:
    """About how many a thread needs at least: the sums, the rows of dy that an x meets, and what is on its way."""
    rows = min(cut.unroll_h, (cut.group_kh - 1) * cut.rows.step // cut.rows.up + 1)
    sums = cut.sums_of_channel * cut.vector_c
    coming = min(MOST_COMING, sum(load.lanes for load in cut.x_loads))
    return sums + rows * cut.tile_w * cut.vector_c + coming + OTHER_REGISTERS
