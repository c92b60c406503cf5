"""dgrad, NCHW, CUDA, direct: from global memory through registers to global memory, for kernels up to about 9 × 9.

Level one: a block is `planes` planes of dx × `threads_h` · `tile_h` rows × `threads_w` · `tile_w` columns.
Level two: a thread owns a strip, `tile_h` rows of `tile_w` neighbouring columns, both multiples of the stride: then
which taps a position meets does not depend on the tile. All are decided when compiling, and there are no others.

    dx, stride 2, kernel 3         strip of one thread, 4 × 4      what it meets (tap row, tap column)
    ┌────┬────┬────┬────┐          ┌─────────┐
    │ t0 │ t1 │ t2 │ t3 │          │ a b a b │                   a: (1,1)                one dy, one tap
    ├────┼────┼────┼────┤   ──►    │ c d c d │            ──►    b: (1,0) (1,2)          two
    │ t4 │ t5 │ t6 │ t7 │          │ a b a b │                   c: (0,1) (2,1)          two
    └────┴────┴────┴────┘          │ c d c d │                   d: (0,0) (0,2) (2,0) (2,2)
                                   └─────────┘                   9 products for four dx, not 36
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

NAME = "cuda.dgrad_nchw_strip"


def misfit(workload: Workload, target: Target) -> str | None:
    assert isinstance(target, CudaTarget)
    return strip_misfit(Gather.of_input_gradient(workload), target)


def space(workload: Workload, target: Target) -> ConfigSpace:
    assert isinstance(target, CudaTarget)
    return strip_space(NAME, Gather.of_input_gradient(workload), workload, target)


def schedule(workload: Workload, config: Config, target: Target) -> s_tir.Schedule:
    """Parameters: dy (n, C·M, OH, OW), w (C·M, KH, KW), dx (n, C, H, W)."""
    from dwconv.schedules.cuda.strip import schedule_strip

    work = Gather.of_input_gradient(workload)
    return schedule_strip(work, Strip.of(work, config, workload.dtype), dtype=workload.dtype)


TEMPLATE = ScheduleTemplate(
    name=NAME, device="cuda", pass_="dgrad", layout="nchw", misfit=misfit, space=space, schedule=schedule
)
