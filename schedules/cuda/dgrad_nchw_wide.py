"""dgrad, NCHW, CUDA, for wide kernels and large strides: one kernel row after the other, from shared memory.

Level one: a block is `planes` planes × `threads_h` tiles of rows × `threads_w` · `tile_w` columns of dx. It holds the
rows of dy that they read, and their kernels, in shared memory, in float32, fetched in vectors of 16 bytes.
Level two: a thread owns as many rows as the stride, of `tile_w` neighbouring columns, a multiple of the stride: which
taps a position meets is decided when compiling. Of every row it goes through its own kernel rows that meet dy, and adds
each to all its sums at once.

    dx, stride 2                 what row a meets              what row b meets
    ┌─────────┐                  kernel rows 1, 3, 5, …        kernel rows 0, 2, 4, …
    │ a a a a │  one thread,     ┌──────────────────┐          ┌──────────────────┐
    │ b b b b │  tile_w = 4      │ dy row (a+P−kh)/2│          │ dy row (b+P−kh)/2│      with columns in the same way:
    └─────────┘                  └──────────────────┘          └──────────────────┘      half of the taps each
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dwconv.schedules.cuda.wide_space import Wide, wide_misfit, wide_space
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import ScheduleTemplate
from dwconv.target import CudaTarget, Target
from dwconv.workload import Workload

if TYPE_CHECKING:
    from tvm import s_tir

NAME = "cuda.dgrad_nchw_wide"


def misfit(workload: Workload, target: Target) -> str | None:
    assert isinstance(target, CudaTarget)
    return wide_misfit(Gather.of_input_gradient(workload), workload.dtype, target)


def space(workload: Workload, target: Target) -> ConfigSpace:
    assert isinstance(target, CudaTarget)
    return wide_space(NAME, Gather.of_input_gradient(workload), workload, target)


def schedule(workload: Workload, config: Config, target: Target) -> s_tir.Schedule:
    """Parameters: dy (n, C·M, OH, OW), w (C·M, KH, KW), dx (n, C, H, W)."""
    from dwconv.schedules.cuda.wide import schedule_wide

    work = Gather.of_input_gradient(workload)
    return schedule_wide(work, Wide.of(work, config, workload.dtype))


TEMPLATE = ScheduleTemplate(
    name=NAME, device="cuda", pass_="dgrad", layout="nchw", misfit=misfit, space=space, schedule=schedule
)
