"""wgrad, NCHW, CUDA, whole planes: for small maps, whose rows are too short for vectors of their own.

Level one: a block is `planes` channels and its share of the images, `images` of them at a time. An image's planes are
one piece of memory, in x as in dy: it is copied into shared memory as it lies, 16 bytes at a time.
Level two: a thread owns a tile of dy, often a whole plane, of `thread_planes` channels, and KH × KW sums for each.

    an image, as it lies             block, in shared memory            what one thread does, image after image
    ┌────────────────┐             ┌─────────┬─────────┬───
    │ planes 0 … p−1 │ x     image │ plane 0 │ plane 1 │ …            x   · · · · ·   rows in order, each multiplied
    ├────────────────┤   ──►     0 │ t0   t1 │ t2   t3 │      ──►         · · · · ·   by the rows of dy that it meets
    │ planes p … 2p−1│ dy          ├─────────┼─────────┼───           dy  · · · · ·
    └────────────────┘       image │ plane 0 │ plane 1 │ …            dw  s s s       KH × KW sums, in registers;
                                 1 │ t4   t5 │ t6   t7 │                  s s s       at last added over the threads
                                                                          s s s       of a channel, then over parts
The sum of dy alone, where there is a bias, is one more.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.gpu.cost import total_us
from dwconv.schedules.cuda.gpu.image_planes import blocks_at_a_time
from dwconv.schedules.cuda.weight_gradient_planes.cut import Cut
from dwconv.schedules.cuda.weight_gradient_planes.estimate import block_works, thread_work
from dwconv.schedules.cuda.weight_gradient_planes.space import plane_misfit, plane_space
from dwconv.schedules.space import Config
from dwconv.schedules.template import ScheduleTemplate

if TYPE_CHECKING:
    from tvm import s_tir

NAME = "cuda.wgrad_nchw_plane"


def estimate_us(workload: Workload, config: Config, target: CudaTarget) -> float:
    return total_us(block_works(Cut.of(workload, config), target), target)


def schedule(workload: Workload, config: Config, target: CudaTarget) -> s_tir.Schedule:
    """Parameters: x (n, C, H, W), dy (n, C, OH, OW), dw (C, KH, KW), perhaps dbias (C), perhaps a workspace."""
    from dwconv.schedules.cuda.weight_gradient_planes.kernel import schedule_planes

    cut = Cut.of(workload, config)
    return schedule_planes(cut, at_a_time=blocks_at_a_time(cut, thread_work(cut), target))


TEMPLATES = (
    ScheduleTemplate(
        name=NAME,
        device="cuda",
        pass_="wgrad",
        layout="nchw",
        misfit=plane_misfit,
        space=partial(plane_space, NAME),
        estimate_us=estimate_us,
        schedule=schedule,
    ),
)
