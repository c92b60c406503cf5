"""dgrad, NCHW, CUDA, at stride 1: fprop from dy to dx, with the kernel turned round and what the padding left.

    plane H × W of dx            block tile, one of ``planes``     what one thread owns
    ┌──────┬──────┬──────┐       vthread 0     vthread 1           ┌─ row r:    column t, column t + threads_w, …
    │ tile │ tile │  …   │  ──►  t0 t1 … t31   t0 t1 … t31    ──►  ├─ row r+1:  …
    └──────┴──────┴──────┘       (neighbours read neighbours)      └─ tile_h rows × vthread_w columns, in registers

        dx[h] = Σ dy[h + P − kh·D] · w[kh] = Σ dy[h + kh′·D − P′] · w[KH − 1 − kh′],   P′ = D·(KH − 1) − P

The patch of dy is staged like the input of fprop: in shared memory, with ``pipeline`` buffers ahead of its use, or with
``stage=registers`` in registers.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from dwconv.schedules.cuda.two_level_space import two_level_misfit, two_level_space
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import ScheduleTemplate
from dwconv.target import CudaTarget, Target
from dwconv.workload import Pair, Workload

if TYPE_CHECKING:
    from tvm import s_tir

NAME = "cuda.dgrad_nchw"


def misfit(workload: Workload, target: Target) -> str | None:
    assert isinstance(target, CudaTarget)
    if workload.stride != (1, 1):
        return f"it is for stride 1, the workload has {workload.stride}"
    if workload.multiplier != 1:
        return f"it is for multiplier 1, the workload has {workload.multiplier}"
    if min(min(_padding(workload, axis)) for axis in (0, 1)) < 0:
        return f"padding={workload.padding} is wider than the kernel"
    return two_level_misfit(as_fprop(workload), target)


def space(workload: Workload, target: Target) -> ConfigSpace:
    assert isinstance(target, CudaTarget)
    return two_level_space(NAME, as_fprop(workload), target)


def schedule(workload: Workload, config: Config, target: Target) -> s_tir.Schedule:
    """Parameters: dy (n, C, OH, OW), w (C, KH, KW), dx (n, C, H, W)."""
    from dwconv.schedules.cuda.two_level_nchw import schedule_two_level

    return schedule_two_level(as_fprop(workload), config, names=("dy", "w", "dx"), flip=True)


def as_fprop(workload: Workload) -> Workload:
    """The convolution that takes dy to dx."""
    return dataclasses.replace(
        workload,
        pass_="fprop",
        input_size=workload.output_size,
        padding=(_padding(workload, 0), _padding(workload, 1)),
    )


def _padding(workload: Workload, axis: int) -> Pair:
    before, after = workload.padding[axis]
    reach = workload.dilation[axis] * (workload.kernel[axis] - 1)
    return reach - before, reach - after


TEMPLATE = ScheduleTemplate(
    name=NAME, device="cuda", pass_="dgrad", layout="nchw", misfit=misfit, space=space, schedule=schedule
)
