"""Both gradients in one kernel, NCHW, CUDA, whole planes: x, dy and w are read once.

Level one: a block is `planes` channels and its share of the images, `images` of them at a time. An image's planes are
one piece of memory, in x as in dy: it is copied into shared memory as it lies, 16 bytes at a time.
Level two: a thread owns a tile of x, multiples of the stride, of `thread_planes` channels, and KH × KW sums for each.

    an image, as it lies             block, in shared memory            what one thread does, image after image
    ┌────────────────┐             ┌─────────┬─────────┬───
    │ planes 0 … p−1 │ x     image │ plane 0 │ plane 1 │ …            dy  · · · · ·   rows in order, each multiplied
    ├────────────────┤   ──►     0 │ t0   t1 │ t2   t3 │      ──►         · · · · ·   by weights, and by rows of x
    │ planes p … 2p−1│ dy          ├─────────┼─────────┼───           dx  o o o o o   in the place of x, then out as
    └────────────────┘       image │ plane 0 │ plane 1 │ …                            x came: one piece
                                 1 │ t4   t5 │ t6   t7 │              dw  s s s s s   KH × KW sums, in registers;
                                                                                      at last over threads, parts
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.backward_planes.cut import Cut
from dwconv.schedules.cuda.backward_planes.estimate import block_works, thread_work
from dwconv.schedules.cuda.backward_planes.space import plane_misfit, plane_space
from dwconv.schedules.cuda.gpu.cost import total_us
from dwconv.schedules.cuda.gpu.image_planes import blocks_at_a_time
from dwconv.schedules.space import Config
from dwconv.schedules.template import ScheduleTemplate

if TYPE_CHECKING:
    from tvm import s_tir

NAME = "cuda.backward_nchw_plane"


def estimate_us(workload: Workload, config: Config, target: CudaTarget) -> float:
    return total_us(block_works(Cut.of(workload, config), target), target)


def schedule(workload: Workload, config: Config, target: CudaTarget) -> s_tir.Schedule:
    """Parameters: dy (n, C, OH, OW), x (n, C, H, W), w (C, KH, KW), dx as x, dw as w, perhaps a workspace."""
    from dwconv.schedules.cuda.backward_planes.kernel import schedule_planes

    cut = Cut.of(workload, config)
    return schedule_planes(cut, at_a_time=blocks_at_a_time(cut, thread_work(cut), target))


TEMPLATES = (
    ScheduleTemplate(
        name=NAME,
        device="cuda",
        pass_="backward",
        layout="nchw",
        misfit=plane_misfit,
        space=partial(plane_space, NAME),
        estimate_us=estimate_us,
        schedule=schedule,
    ),
)
