"""Whole planes, NCHW, CUDA: for small maps, whose rows are too short for vectors of their own.

fprop

Level one: a block is `planes` planes, one piece of memory. It is copied into shared memory in vectors of 16 bytes, by
all threads alike, wherever planes and rows begin; so are the results on their way out.
Level two: a thread owns `tile_h` rows of `tile_w` columns (often a whole plane) of `thread_planes` planes.

    x, as it lies               block, in shared memory            what one thread does
    ┌────────────────┐          ┌─────────┬─────────┬───           x     · · · · · · ·    rows in order, in vectors
    │ planes 0 … p−1 │          │ plane 0 │ plane 1 │ …                  · · · · · · ·
    ├────────────────┤   ──►    │ t0      │ t2      │       ──►    sums  a a a a a a a    KH rows at a time; taps
    │ planes p … 2p−1│          │ t1      │ t3      │                    b b b b b b b    in the padding left out
    └────────────────┘          └─────────┴─────────┴───           y     o o o o o o o    to shared memory, then out as
                                 odd pitch: no bank twice                                 it came: one piece

dgrad

Level one: a block is `planes` planes of dy, one piece of memory, copied into shared memory in vectors of 16 bytes; the
planes of dx go out the same way.
Level two: a thread owns `tile_h` rows of `tile_w` columns, multiples of the stride, of `thread_planes` planes of dx:
which taps a position meets is decided when compiling, and a row of dy is read once for all rows of dx that it meets.

    dy, as it lies              block, in shared memory            what one thread does (stride 2, kernel 3)
    ┌────────────────┐          ┌─────────┬─────────┬───           dy    · · · ·          one row
    │ planes 0 … p−1 │          │ plane 0 │ plane 1 │ …
    ├────────────────┤   ──►    │ t0      │ t2      │       ──►    sums  a b a b a b a    tap row 2, or 0 of the next
    │ planes p … 2p−1│          │ t1      │ t3      │                    c d c d c d c    tap row 1: written at once
    └────────────────┘          └─────────┴─────────┴───           dx    o o o o o o o    to shared memory, then out
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.gpu.cost import one_kernel_us
from dwconv.schedules.cuda.resident_planes.cut import Cut
from dwconv.schedules.cuda.resident_planes.estimate import block_work, blocks_at_a_time
from dwconv.schedules.cuda.resident_planes.space import plane_misfit, plane_space
from dwconv.schedules.gather_family import gather_family
from dwconv.schedules.space import Config

if TYPE_CHECKING:
    from tvm import s_tir


def schedule(workload: Workload, config: Config, target: CudaTarget) -> s_tir.Schedule:
    """Parameters: x (n, C, H, W), w (C, KH, KW), perhaps bias (C), y (n, C, OH, OW); or dy, w, dx."""
    from dwconv.schedules.cuda.resident_planes.kernel import schedule_planes

    cut = Cut.of(workload, config)
    return schedule_planes(cut, at_a_time=blocks_at_a_time(cut, target))


TEMPLATES = gather_family(
    "cuda",
    "nchw_plane",
    layout="nchw",
    misfit=plane_misfit,
    space=plane_space,
    estimate_us=one_kernel_us(block_work),
    schedule=schedule,
)
