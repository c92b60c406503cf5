"""fprop, NCHW, CUDA, whole planes: for small maps, whose rows are too short for vectors of their own.

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
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dwconv.schedules.cuda.plane_space import blocks_at_a_time, plane_misfit, plane_space
from dwconv.schedules.cuda.plane_tile import Planes
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import ScheduleTemplate
from dwconv.target import CudaTarget, Target
from dwconv.workload import Workload

if TYPE_CHECKING:
    from tvm import s_tir

NAME = "cuda.fprop_nchw_plane"


def misfit(workload: Workload, target: Target) -> str | None:
    assert isinstance(target, CudaTarget)
    return plane_misfit(Gather.of_convolution(workload), workload.dtype, target)


def space(workload: Workload, target: Target) -> ConfigSpace:
    assert isinstance(target, CudaTarget)
    return plane_space(NAME, Gather.of_convolution(workload), workload, target)


def schedule(workload: Workload, config: Config, target: Target) -> s_tir.Schedule:
    """Parameters: x (n, C, H, W), w (C, KH, KW), perhaps bias (C), y (n, C, OH, OW)."""
    from dwconv.schedules.cuda.plane import schedule_plane

    assert isinstance(target, CudaTarget)
    tiles = Planes.of(Gather.of_convolution(workload), config, workload.dtype)
    return schedule_plane(tiles, at_a_time=blocks_at_a_time(tiles, target))


TEMPLATE = ScheduleTemplate(
    name=NAME, device="cuda", pass_="fprop", layout="nchw", misfit=misfit, space=space, schedule=schedule
)
