"""fprop, NHWC, CUDA.

Level one: a block owns `threads_h` × `threads_w` × `vthread_w` strips of one image, in `threads_c` vectors of channels;
their input is read straight from memory, or staged in shared memory with its halo (`stage`).
Level two: virtual thread by virtual thread, a thread owns a strip of `tile_h` rows × `tile_w` columns × `vector_c`
channels, its sums in registers.
`weights`: in registers, or in shared memory for all threads. `unroll`: all taps, or those of a kernel row ("kw").

    image             block tile                      strip: what one thread owns
    ┌───────┬───┐     ┌──────┬──────┬─ threads_w      ┌────┬────┬────┬────┐
    │ block │   │     │ t 0  │ t 32 │        tile_h   │ vv │ vv │ vv │ vv │  vv: a vector of channels, 16 bytes of
    ├───────┼───┤ ──► ├──────┼──────┤   ──►           ├────┼────┼────┼────┤  memory; each x is loaded once, and added
    │       │   │     │ t 64 │ t 96 │ × threads_c     │ vv │ vv │ vv │ vv │  to all sums that it meets
    └───────┴───┘     └─ threads_h ─┘   neighbours    └────┴────┴────┴────┘
                                                              tile_w
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

NAME = "cuda.fprop_nhwc"


def misfit(workload: Workload, target: Target) -> str | None:
    return gather_nhwc_space.misfit(Gather.of_convolution(workload))


def space(workload: Workload, target: Target) -> ConfigSpace:
    assert isinstance(target, CudaTarget)
    return gather_nhwc_space.gather_space(NAME, Gather.of_convolution(workload), workload, target)


def estimate(workload: Workload, config: Config, target: Target) -> float:
    assert isinstance(target, CudaTarget)
    cut = Cut.of(Gather.of_convolution(workload), config, workload.dtype)
    return gather_nhwc_estimate.estimate(cut, workload, target).microseconds


def schedule(workload: Workload, config: Config, target: Target) -> s_tir.Schedule:
    """Parameters: x (n, H, W, C), w (C·M, KH, KW), perhaps bias (C·M), y (n, OH, OW, C·M)."""
    from dwconv.schedules.cuda.gather_nhwc import schedule_gather

    return schedule_gather(Cut.of(Gather.of_convolution(workload), config, workload.dtype))


TEMPLATE = ScheduleTemplate(
    name=NAME,
    device="cuda",
    pass_="fprop",
    layout="nhwc",
    misfit=misfit,
    space=space,
    schedule=schedule,
    estimate=estimate,
)
