"""fprop, NCHW, CUDA, for wide kernels: one kernel row after the other, from shared memory.

Level one: a block is `planes` planes × `threads_h` rows × `threads_w` · `tile_w` columns. It holds the rows of x that
they read, and their kernels, in shared memory, in float32, fetched in vectors of 16 bytes.
Level two: a thread owns `tile_w` neighbouring columns of a row. It goes down the kernel rows that meet the image, and
adds each to all its sums at once: tile_w · KW products for tile_w + 2 · KW words of shared memory. Where one thread has
a whole row of the map, columns in the padding are not multiplied either.

    shared memory                                    a thread at kernel row kh
    ┌───────────┐ ┌───────────┐                      x row h + kh   [· · · ·│· · · ·│· · · ·│· · · ·]
    │ x plane 0 │ │ x plane 1 │  …                   w row kh       [· · · ·│· · ·]
    ├───────────┤ ├───────────┤           ──►                          ╲ ╲ ╲ ╲
    │  w 0      │ │  w 1      │                      sums           [ a  b  c  d  e  f  g ]     one row of y
    └───────────┘ └───────────┘                                         tile_w
    neighbouring threads have neighbouring planes, which lie in different banks
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

NAME = "cuda.fprop_nchw_wide"


def misfit(workload: Workload, target: Target) -> str | None:
    assert isinstance(target, CudaTarget)
    return wide_misfit(Gather.of_convolution(workload), workload.dtype, target)


def space(workload: Workload, target: Target) -> ConfigSpace:
    assert isinstance(target, CudaTarget)
    return wide_space(NAME, Gather.of_convolution(workload), workload, target)


def schedule(workload: Workload, config: Config, target: Target) -> s_tir.Schedule:
    """Parameters: x (n, C, H, W), w (C·M, KH, KW), perhaps bias (C·M), y (n, C·M, OH, OW)."""
    from dwconv.schedules.cuda.wide import schedule_wide

    work = Gather.of_convolution(workload)
    return schedule_wide(work, Wide.of(work, config, workload.dtype))


TEMPLATE = ScheduleTemplate(
    name=NAME, device="cuda", pass_="fprop", layout="nchw", misfit=misfit, space=space, schedule=schedule
)
