"""The work of both gradients by whole planes, in plain integers. No TVM here."""

from __future__ import annotations

from functools import lru_cache

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE
from dwconv.schedules.cuda.backward_planes.cut import Cut
from dwconv.schedules.cuda.gpu import image_planes
from dwconv.schedules.cuda.gpu.cost import BlockWork
from dwconv.schedules.cuda.gpu.image_planes import ThreadWork, instructions_of_sums, vectors_of

OTHER_REGISTERS = 30
"""For addresses and counters."""
BOOKKEEPING = 40
"""Instructions that go to the next image."""
COPY, COPY_OUT = 3.5, 6
"""To find out where a vector comes from, whether it exists, and where it goes: into shared memory, and out of it."""


def block_works(cut: Cut, target: CudaTarget) -> tuple[BlockWork, ...]:
    return image_planes.block_works(cut, thread_work(cut), target)


@lru_cache(maxsize=4096)
def thread_work(cut: Cut) -> ThreadWork:
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
        instructions_of_image=products + accesses + converted + zeros + copied + BOOKKEEPING,
        instructions_of_sums=instructions_of_sums(cut),
        registers=2 * sums + 2 * met * cut.tile_w + 2 * len(columns) + OTHER_REGISTERS,
    )
