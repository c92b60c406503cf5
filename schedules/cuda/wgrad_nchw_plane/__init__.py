"""Whole planes, NCHW, CUDA, summed over images: for small maps, whose rows are too short for vectors of their own.

Level one: a block is `planes` channels and its share of the images, `images` of them at a time. An image's planes are
one piece of memory, in x as in dy: it is copied into shared memory as it lies, 16 bytes at a time.
Level two, wgrad: a thread owns a tile of dy, often a whole plane, of `thread_planes` channels, and KH × KW sums for
each. The sum of dy alone, where there is a bias, is one more.
Both gradients in one kernel: x, dy and w are read once. A thread owns a tile of x, multiples of the stride; rows of dy
are multiplied by weights, and by rows of x. dx takes the place of x, and leaves as x came: one piece.

    an image, as it lies             block, in shared memory            what one thread does, image after image
    ┌────────────────┐             ┌─────────┬─────────┬───
    │ planes 0 … p−1 │ x     image │ plane 0 │ plane 1 │ …            x   · · · · ·   rows in order, each multiplied
    ├────────────────┤   ──►     0 │ t0   t1 │ t2   t3 │      ──►         · · · · ·   by the rows of dy that it meets
    │ planes p … 2p−1│ dy          ├─────────┼─────────┼───           dy  · · · · ·
    └────────────────┘       image │ plane 0 │ plane 1 │ …            dw  s s s       KH × KW sums, in registers;
                                 1 │ t4   t5 │ t6   t7 │                  s s s       at last added over the threads
                                                                          s s s       of a channel, then over parts
"""

from __future__ import annotations

from typing import Any

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.gpu.cost import estimated
from dwconv.schedules.cuda.wgrad_nchw_plane.cut import cut_of
from dwconv.schedules.cuda.wgrad_nchw_plane.estimate import block_works, blocks_at_a_time
from dwconv.schedules.cuda.wgrad_nchw_plane.space import image_space, misfit
from dwconv.schedules.space import Config
from dwconv.schedules.template import family


def schedule(workload: Workload, config: Config, target: CudaTarget) -> Any:
    from dwconv.schedules.cuda.wgrad_nchw_plane.kernel import schedule_images

    cut = cut_of(workload, config)
    return schedule_images(cut, at_a_time=blocks_at_a_time(cut, target))


TEMPLATES = family(
    "cuda.{pass_}_nchw_plane",
    ("wgrad", "backward"),
    layout="nchw",
    misfit=misfit,
    space=image_space,
    **estimated(lambda workload, config, target: block_works(cut_of(workload, config), target)),
    schedule=schedule,
)
