"""dgrad, NHWC, CUDA.

Level one: a block owns `threads_h` × `threads_w` × `vthread_w` strips of one image of dx, in `threads_c` vectors of
channels; what it needs of dy is read straight from memory, or staged in shared memory with its halo (`stage`).
Level two: a thread owns a strip of `tile_h` rows × `tile_w` columns × `vector_c` channels, its sums in registers.
Strips are multiples of the stride: each of their positions has its own taps, the same in every strip, and no others.

    dx, stride 2, kernel 3          strip, tile_h = tile_w = 2
    ┌────┬────┬────┬────┐           ┌──────────────┬──────────────┐
    │ a b│ a b│ a b│ a b│           │ a: tap 1,1   │ b: taps 1,0  │      dy meets each tap of each position in its
    │ c d│ c d│ c d│ c d│    ──►    │              │     and 1,2  │      phase: 1 + 2 + 2 + 4 = 9 products for four
    ├────┼────┼────┼────┤           ├──────────────┼──────────────┤      dx, decided when compiling: no modulo, no
    │ a b│ a b│ a b│ a b│           │ c: taps 0,1  │ d: taps 0,0  │      atomics, no tap that meets nothing
    │ c d│ c d│ c d│ c d│           │     and 2,1  │ 0,2 2,0 2,2  │
    └────┴────┴────┴────┘           └──────────────┴──────────────┘
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dwconv.schedules.cuda import gather_nhwc_estimate, gather_nhwc_space
from dwconv.schedules.cuda.gather_nhwc_cut import Cut
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import ScheduleTemplate
from dwconv.target import CudaTarget, Target
from dwconv.workload import Workload

if TYPE_CHECKING:
    from tvm import s_tir

NAME = "cuda.dgrad_nhwc"


def misfit(workload: Workload, target: Target) -> str | None:
    return gather_nhwc_space.misfit(Gather.of_input_gradient(workload))


def space(workload: Workload, target: Target) -> ConfigSpace:
    assert isinstance(target, CudaTarget)
    return gather_nhwc_space.gather_space(NAME, Gather.of_input_gradient(workload), workload, target)


def estimate(workload: Workload, config: Config, target: Target) -> float:
    assert isinstance(target, CudaTarget)
    cut = Cut.of(Gather.of_input_gradient(workload), config, workload.dtype)
    return gather_nhwc_estimate.estimate(cut, workload, target).microseconds


def schedule(workload: Workload, config: Config, target: Target) -> s_tir.Schedule:
    """Parameters: dy (n, OH, OW, C·M), w (C·M, KH, KW), dx (n, H, W, C)."""
    from dwconv.schedules.cuda.gather_nhwc import schedule_gather

    return schedule_gather(Cut.of(Gather.of_input_gradient(workload), config, workload.dtype))


TEMPLATE = ScheduleTemplate(
    name=NAME,
    device="cuda",
    pass_="dgrad",
    layout="nhwc",
    misfit=misfit,
    space=space,
    schedule=schedule,
    estimate=estimate,
)
