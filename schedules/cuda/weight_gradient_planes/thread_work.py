"""The work of a thread of the weight gradient by whole planes, in plain integers. No TVM here."""

from __future__ import annotations

from functools import cache, lru_cache

from dwconv.problems.workload import ITEMSIZE
from dwconv.schedules.cuda.gpu.split_sum import halvings
from dwconv.schedules.cuda.gpu.vectors import whole_vectors
from dwconv.schedules.cuda.weight_gradient_planes.cut import Cut

OTHER_REGISTERS = 26
"""For addresses and counters."""
BOOKKEEPING, START = 30, 60
"""Instructions that go to the next image; and that find a thread's place, and store what it summed."""
COPY = 3.5
"""To find out where a vector comes from, whether it exists, and where it goes."""


@lru_cache(maxsize=4096)
def _reads(cut: Cut) -> tuple[dict[int, list[tuple[int, int]]], dict[int, list[tuple[int, int]]]]:
    tiling = cut.tiling
    rows = cut.rows.tile_reads(cut.tile_h, tiles=tiling.tiles_h)
    return rows, cut.columns.tile_reads(cut.tile_w, tiles=tiling.tiles_w)


@lru_cache(maxsize=4096)
def products_of(cut: Cut) -> int:
    """Multiply-adds for one image."""
    pairs_h, pairs_w = (sum(map(len, reads.values())) for reads in _reads(cut))
    return pairs_h * pairs_w * cut.thread_planes


@lru_cache(maxsize=4096)
def loads_of(cut: Cut) -> int:
    """Vectors of shared memory that it reads for one image."""
    rows, columns = _reads(cut)
    x = _vectors(tuple(rows), tuple(columns), pitch=cut.columns.inputs, lanes=cut.x.lanes)
    every = tuple(range(cut.tile_h)), tuple(range(cut.tile_w))
    dy = _vectors(*every, pitch=cut.columns.outputs, lanes=cut.dy.lanes)
    return cut.thread_planes * (x + dy)


def instructions_of_image(cut: Cut) -> float:
    """About as many as are unrolled."""
    rows, columns = _reads(cut)
    converted = zeros = 0
    elements = len(rows) * len(columns) + cut.tile_h * cut.tile_w
    if ITEMSIZE[cut.workload.dtype] == 2:
        converted = cut.thread_planes * elements
    if cut.tiling.tiles_h > 1:
        beyond = sum(not 0 <= at < cut.tile_h * cut.rows.up for at in rows)
        zeros = cut.thread_planes * beyond * len(columns) // max(1, cut.x.lanes)
    copied = COPY * (cut.copies(cut.x) + cut.copies(cut.dy))
    return products_of(cut) + loads_of(cut) + converted + zeros + copied + BOOKKEEPING


def instructions_of_sums(cut: Cut) -> float:
    """Instructions of a thread, once: halving, half of the threads pass theirs on and the other half add them."""
    sums, count = cut.thread_planes * cut.sums_of_channel, halvings(cut.mates)
    return START + sums + 3 * sums * (2 - 2.0**-count) * (count > 0) + 12 * count


def registers_of(cut: Cut) -> int:
    """About how many a thread needs: the sums, the rows of dy that an x meets, and rows on their way."""
    met = min(cut.tile_h, (cut.rows.taps - 1) * cut.rows.step // cut.rows.up + 1)
    _, columns = _reads(cut)
    words = 2 if ITEMSIZE[cut.workload.dtype] == 4 else 1
    row = len(columns) * (1 + words) // 2
    return cut.thread_planes * cut.sums_of_channel + met * cut.tile_w + 2 * row + OTHER_REGISTERS


@cache
def _vectors(rows: tuple[int, ...], columns: tuple[int, ...], *, pitch: int, lanes: int) -> int:
    return sum(len(whole_vectors([row * pitch + column for column in columns], lanes)) for row in rows)
