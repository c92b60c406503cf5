"""A block, NHWC, CPU: act2(norm2(conv(act1(norm1(x))))) and its gradients; norms are BatchNorms with the statistics of
the batch or, in inference and where they are frozen, with those that are given. InstanceNorms have those of each image,
which is a batch of one: images go one after the other, or each thread takes some (`parallel`).

Level one: a task is `block_h` rows, in 3-D planes, of the result of one image in `block_c` channels. It goes down them,
and keeps what the convolution reads, `act1(norm1(x))` or the gradient of y, in a ring of rows with zeros around.
Level two: `tile_w` columns of one vector of channels are summed in registers; channels inside columns or columns inside
channels (`order`). The next row may be prefetched (`prefetch`).

    x                     ring, zeros around          y                    forward: 5 passes over memory
    ┌─────────────────┐   ┌─┬───────────────┬─┐       ┌────────────────┐     x · x y · y z
    │ norm1, act1     │──►│0│ ░░░░░░░       │0│──►    │  ▓▓▓▓▓ tile_w  │   backward: 9
    │ of one more row │   │0│ ░░░░░░░       │0│ taps  └────────────────┘     dz y · dz y x dx · dx x dx
    └─────────────────┘   └─┴───────────────┴─┘                            A statistic is a barrier: ·
                                                                           inference: 2, x z
                                                                           frozen norms: x z, and back dz z x dx
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import BLOCK_PASSES, EVAL_PASSES, Workload
from dwconv.schedules.cpu.block_nhwc.cut import FusedBlockCut
from dwconv.schedules.cpu.block_nhwc.estimate import estimate_us
from dwconv.schedules.cpu.block_nhwc.space import block_space, why_unfit
from dwconv.schedules.space import Config
from dwconv.schedules.template import family

if TYPE_CHECKING:
    from tvm import s_tir


def schedule(workload: Workload, config: Config, target: CpuTarget) -> s_tir.Schedule:
    from dwconv.schedules.any_size import any_axes, channels_of
    from dwconv.schedules.cpu.block_nhwc import backward, forward

    cut = FusedBlockCut(workload, config, target)
    if workload.any_size:
        cut = replace(cut, any_axes=any_axes(cut.gathered))
    if workload.any_channels:
        cut = replace(cut, any_channels=channels_of(workload))
    return backward.schedule(cut) if workload.pass_ == "backward" else forward.schedule(cut)


TEMPLATES = family(
    "cpu.block_{pass_}_nhwc",
    (*BLOCK_PASSES, *EVAL_PASSES),
    layout="nhwc",
    most_axes=3,
    any_size=True,
    any_channels=True,
    misfit=why_unfit,
    space=block_space,
    schedule=schedule,
    estimate_us=estimate_us,
)
