"""fprop, NCHW, CUDA.

    plane OH × OW                block tile, one of ``planes``     what one thread owns
    ┌──────┬──────┬──────┐       vthread 0     vthread 1           ┌─ row r:    column t, column t + threads_w, …
    │ tile │ tile │  …   │  ──►  t0 t1 … t31   t0 t1 … t31    ──►  ├─ row r+1:  …
    └──────┴──────┴──────┘       (neighbours read neighbours)      └─ tile_h rows × vthread_w columns, in registers

The block's input patch, halo and padding included, is staged in shared memory, in float32. With ``stage=registers``,
for small kernels, each thread reads the patch of its own tile_h × tile_w neighbouring outputs straight from global
memory. With ``pipeline`` buffers a block goes through several tiles in ``turns``, and copies the patches of the next
ones (cp.async, as they lie) while it computes one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dwconv.schedules.cuda.two_level_space import two_level_misfit, two_level_space
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import ScheduleTemplate
from dwconv.target import CudaTarget, Target
from dwconv.workload import Workload

if TYPE_CHECKING:
    from tvm import s_tir

NAME = "cuda.fprop_nchw"


def space(workload: Workload, target: Target) -> ConfigSpace:
    assert isinstance(target, CudaTarget)
    return two_level_space(NAME, workload, target)


def schedule(workload: Workload, config: Config, target: Target) -> s_tir.Schedule:
    """Parameters: x (n, C, H, W), w (C·M, KH, KW), bias (C·M,) if there is one, y (n, C·M, OH, OW)."""
    from dwconv.schedules.cuda.two_level_nchw import schedule_two_level

    return schedule_two_level(workload, config)


def misfit(workload: Workload, target: Target) -> str | None:
    assert isinstance(target, CudaTarget)
    return two_level_misfit(workload, target)


TEMPLATE = ScheduleTemplate(
    name=NAME, device="cuda", pass_="fprop", layout="nchw", misfit=misfit, space=space, schedule=schedule
)
