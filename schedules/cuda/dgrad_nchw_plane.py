"""dgrad, NCHW, CUDA, whole planes: for small maps, whose rows are too short for vectors of their own.

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

from dwconv.schedules.cuda.plane_space import blocks_at_a_time, plane_misfit, plane_space
from dwconv.schedules.cuda.plane_tile import Planes
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import ScheduleTemplate
from dwconv.target import CudaTarget, Target
from dwconv.workload import Workload

if TYPE_CHECKING:
    from tvm import s_tir

NAME = "cuda.dgrad_nchw_plane"


def misfit(workload: Workload, target: Target) -> str | None:
    assert isinstance(target, CudaTarget)
    return plane_misfit(Gather.of_input_gradient(workload), workload.dtype, target)


def space(workload: Workload, target: Target) -> ConfigSpace:
    assert isinstance(target, CudaTarget)
    return plane_space(NAME, Gather.of_input_gradient(workload), workload, target)


def schedule(workload: Workload, config: Config, target: Target) -> s_tir.Schedule:
    """Parameters: dy (n, C, OH, OW), w (C, KH, KW), dx (n, C, H, W)."""
    from dwconv.schedules.cuda.plane import schedule_plane

    assert isinstance(target, CudaTarget)
    tiles = Planes.of(Gather.of_input_gradient(workload), config, workload.dtype)
    return schedule_plane(tiles, at_a_time=blocks_at_a_time(tiles, target))


TEMPLATE = ScheduleTemplate(
    name=NAME, device="cuda", pass_="dgrad", layout="nchw", misfit=misfit, space=space, schedule=schedule
)
