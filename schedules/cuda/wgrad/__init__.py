"""The weight gradient by pixels, CUDA: x and dy straight from global memory, sums in registers.

wgrad, NCHW

    plane of dy                      a block: threads_c planes        what one thread owns
    ┌──────┬──────┬──────┐       lanes: tiles of a plane          ┌─ tile_h rows × tile_w columns of dy, in one
    │ t0   │ t1   │ t2 … │  ──►  t0 t1 t2 …   plane c         ──► │  channel and one share of the images, one
    ├──────┼──────┼──────┤       t0 t1 t2 …   plane c + 1         │  image at a time;
    │  …   │  …   │  …   │       …            (threads_p items)   └─ group_kh × KW sums in registers

Neighbouring threads read neighbouring vectors of a row; on small maps a warp spans several planes and images.

wgrad, NHWC

    dy and x, C innermost            a block                          what one thread owns
    ┌──────┬──────┬──────┐       lanes: vectors of channels       ┌─ vector_c neighbouring channels of
    │ tile │ tile │  …   │  ──►  t0 t1 … t31  item 0 = tile 0 ──► │  tile_h rows × tile_w columns of dy, in one
    ├──────┼──────┼──────┤       t0 t1 … t31  item 1 = tile 1     │  share of the images, one image at a time;
    │  …   │  …   │  …   │       …            (threads_p items)   └─ group_kh × KW × vector_c sums in registers

Neighbouring threads read neighbouring vectors of a pixel: whole lines of memory. Where the kernel is tall, its rows are
split into groups, side by side in the block: each keeps its sums in registers. The sum of dy alone, where there is a
bias, is one more.

In 3-D each plane of dy counts as an image, and each tap along the depth has groups of kernel rows of its own.
"""

from __future__ import annotations

from typing import Any

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import LAYOUTS, Workload
from dwconv.schedules.cuda.gpu.cost import estimated
from dwconv.schedules.cuda.wgrad.cut import WeightGradientCut
from dwconv.schedules.cuda.wgrad.estimate import block_works
from dwconv.schedules.cuda.wgrad.space import kernel_misfit, weight_gradient_space
from dwconv.schedules.space import Config
from dwconv.schedules.template import family


def schedule(workload: Workload, config: Config, target: CudaTarget) -> Any:
    from dwconv.schedules.cuda.wgrad.kernel import schedule_weight_gradient

    return schedule_weight_gradient(WeightGradientCut.of(workload, config))


TEMPLATES = tuple(
    template
    for layout in LAYOUTS
    for template in family(
        f"cuda.wgrad_{layout}",
        ["wgrad"],
        layout=layout,
        most_axes=3,
        any_size=True,
        any_channels=True,
        misfit=kernel_misfit,
        space=weight_gradient_space,
        **estimated(lambda workload, config, target: block_works(WeightGradientCut.of(workload, config), target)),
        schedule=schedule,
    )
)
