"""fprop and dgrad, NCHW, CUDA: whole planes in shared memory, for small maps, whose rows are too short for vectors of
their own.

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

dgrad: tiles are multiples of the stride: which taps a position meets is decided when compiling, and a row of dy is read
once for all rows of dx that it meets.
"""

from __future__ import annotations

from typing import Any

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.fprop_dgrad_nchw_plane.cut import PlanesCut
from dwconv.schedules.cuda.fprop_dgrad_nchw_plane.estimate import block_work, plane_registers
from dwconv.schedules.cuda.fprop_dgrad_nchw_plane.space import plane_misfit, plane_space
from dwconv.schedules.cuda.gpu.cost import estimated, one_kernel
from dwconv.schedules.cuda.gpu.hardware import blocks_at_a_time
from dwconv.schedules.gather import GATHERS
from dwconv.schedules.space import Config
from dwconv.schedules.template import family

# Parameters: x (n, C, H, W), w (C, KH, KW), perhaps bias (C), y (n, C, OH, OW); or dy, w, dx.


def schedule(workload: Workload, config: Config, target: CudaTarget) -> Any:
    from dwconv.schedules.cuda.fprop_dgrad_nchw_plane.kernel import schedule_planes

    cut = PlanesCut.of(workload, config)
    return schedule_planes(cut, at_a_time=blocks_at_a_time(cut, plane_registers(cut), target))


TEMPLATES = family(
    "cuda.{pass_}_nchw_plane",
    GATHERS,
    layout="nchw",
    misfit=plane_misfit,
    space=plane_space,
    **estimated(one_kernel(block_work)),
    schedule=schedule,
)
