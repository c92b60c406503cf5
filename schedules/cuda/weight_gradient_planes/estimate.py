"""The work of the weight gradient by whole planes, in plain integers. No TVM here."""

from __future__ import annotations

from functools import lru_cache

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE
from dwconv.schedules.cuda.gpu import image_planes
from dwconv.schedules.cuda.gpu.cost import BlockWork
from dwconv.schedules.cuda.gpu.image_planes import ThreadWork, instructions_of_sums, vectors_of
from dwconv.schedules.cuda.weight_gradient_planes.cut import Cut

OTHER_REGISTERS = 26
"""For addresses and counters."""
BOOKKEEPING = 30
"""Instructions that go to the next image."""
COPY = 3.5
"""To find out where a vector comes from, whether it exists, and where it goes."""


def block_works(cut: Cut, target: CudaTarget) -> tuple[BlockWork, ...]:
    return image_planes.block_works(cut, thread_work(cut), target)


@lru_cache(maxsize=4096)
def thread_work(cut: Cut) -> ThreadWork:
    return ThreadWork(
        products=_products(cut),
        accesses=_loads(cut),
        instructions_of_image=_instructions_of_image(cut),
        instructions_of_sums=instructions_of_sums(cut),
        registers=_registers(cut),
    )


@lru_cache(maxsize=4096)
def _reads(cut: Cut) -> tuple[dict[int, list[tuple[int, int]]], dict[int, list[tuple[int, int]]]]:
    tiling = cut.tiling
    rows = cut.rows.tile_reads(cut.tile_h, tiles=tiling.tiles_h)
    return rows, cut.columns.tile_reads(cut.tile_w, tiles=tiling.tiles_w)


def _products(cut: Cut) -> int:
    pairs_h, pairs_w = (sum(map(len, reads.values())) for reads in _reads(cut))
    return pairs_h * pairs_w * cut.thread_planes


def _loads(cut: Cut) -> int:
    rows, columns = _reads(cut)
    x = vectors_of(tuple(rows), tuple(columns), pitch=cut.columns.inputs, lanes=cut.met.lanes)
    every = tuple(range(cut.tile_h)), tuple(range(cut.tile_w))
    dy = vectors_of(*every, pitch=cut.columns.outputs, lanes=cut.tiled.lanes)
    return cut.thread_planes * (x + dy)


def _instructions_of_image(cut: Cut) -> float:
    rows, columns = _reads(cut)
    converted = zeros = 0
    elements = len(rows) * len(columns) + cut.tile_h * cut.tile_w
    if ITEMSIZE[cut.workload.dtype] == 2:
        converted = cut.thread_planes * elements
    if cut.tiling.tiles_h > 1:
        beyond = sum(not 0 <= at < cut.tile_h * cut.rows.up for at in rows)
        zeros = cut.thread_planes * beyond * len(columns) // max(1, cut.met.lanes)
    copied = COPY * (cut.copies(cut.met) + cut.copies(cut.tiled))
    return _products(cut) + _loads(cut) + converted + zeros + copied + BOOKKEEPING


def _registers(cut: Cut) -> int:
    """The sums, the rows of dy that an x meets, and rows on their way."""
    met = min(cut.tile_h, (cut.rows.taps - 1) * cut.rows.step // cut.rows.up + 1)
    _, columns = _reads(cut)
    words = 2 if ITEMSIZE[cut.workload.dtype] == 4 else 1
    row = len(columns) * (1 + words) // 2
    return cut.thread_planes * cut.sums_of_channel + met * cut.tile_w + 2 * row + OTHER_REGISTERS
