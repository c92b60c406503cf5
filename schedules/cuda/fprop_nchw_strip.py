"""fprop, NCHW, CUDA, direct: from global memory through registers to global memory, for kernels up to about 9 × 9.

Level one: a block is `planes` planes × `threads_h` · `tile_h` rows × `threads_w` · `tile_w` columns.
Level two: a thread owns a strip, `tile_h` rows of `tile_w` neighbouring columns: one aligned vector. It reads each row
of its input once, `rows_ahead` rows before it multiplies it into the up to KH rows of sums that it meets.

    plane OH × OW                 block                          what one thread does
    ┌─────────────────┐           ┌────┬────┬────┬────┐          x      ·│· · · ·│·     rows in order: a vector, and the
    │                 │  tile_h   │ t0 │ t1 │ t2 │ t3 │                 │· · · ·│      columns beside it that it meets
    │    `planes` of  │    ──►    │    │    │    │    │    ──►   sums    │a a a a│      KH rows at a time: others are
    │    them         │           ├────┼────┼────┼────┤                 │b b b b│      stored, or not yet begun
    │                 │           │ t4 │ t5 │ t6 │ t7 │          y      [ o o o o ]    one vector store a row
    └─────────────────┘           └────┴────┴────┴────┘
                                   tile_w
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dwconv.schedules.cuda.strip_space import Strip, strip_misfit, strip_space
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import ScheduleTemplate
from dwconv.target import CudaTarget, Target
from dwconv.workload import Workload

if TYPE_CHECKING:
    from tvm import s_tir

NAME = "cuda.fprop_nchw_strip"


def misfit(workload: Workload, target: Target) -> str | None:
    assert isinstance(target, CudaTarget)
    return strip_misfit(Gather.of_convolution(workload), target)


def space(workload: Workload, target: Target) -> ConfigSpace:
    assert isinstance(target, CudaTarget)
    return strip_space(NAME, Gather.of_convolution(workload), workload, target)


def schedule(workload: Workload, config: Config, target: Target) -> s_tir.Schedule:
    """Parameters: x (n, C, H, W), w (C·M, KH, KW), perhaps bias (C·M), y (n, C·M, OH, OW)."""
    from dwconv.schedules.cuda.strip import schedule_strip

    work = Gather.of_convolution(workload)
    return schedule_strip(work, Strip.of(work, config, workload.dtype), dtype=workload.dtype)


TEMPLATE = ScheduleTemplate(
    name=NAME, device="cuda", pass_="fprop", layout="nchw", misfit=misfit, space=space, schedule=schedule
)
