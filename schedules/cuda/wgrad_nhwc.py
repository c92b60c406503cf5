"""wgrad, NHWC, CUDA.

    dy and x, C innermost            a block                          what one thread owns
    ┌──────┬──────┬──────┐       lanes: vectors of channels       ┌─ vector_c neighbouring channels of
    │ tile │ tile │  …   │  ──►  t0 t1 … t31  item 0 = tile 0 ──► │  tile_h rows × tile_w columns of dy, in one
    ├──────┼──────┼──────┤       t0 t1 … t31  item 1 = tile 1     │  share of the images, one image at a time;
    │  …   │  …   │  …   │       …            (threads_p items)   └─ group_kh × KW × vector_c sums in registers

Neighbouring threads read neighbouring vectors of a pixel: whole lines of memory. Where the kernel is tall, its rows are
split into groups, side by side in the block: each keeps its sums in registers. The sum of dy alone, where there is a
bias, is one more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dwconv.schedules.cuda.correlation import Correlation
from dwconv.schedules.cuda.correlation_estimate import estimate
from dwconv.schedules.cuda.correlation_space import correlation_space, misfit
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import ScheduleTemplate
from dwconv.target import Target
from dwconv.workload import Workload

if TYPE_CHECKING:
    from tvm import s_tir

NAME = "cuda.wgrad_nhwc"


def space(workload: Workload, target: Target) -> ConfigSpace:
    return correlation_space(NAME, workload, target)


def schedule(workload: Workload, config: Config, target: Target) -> s_tir.Schedule:
    from dwconv.schedules.cuda.correlate import schedule_correlation

    return schedule_correlation(Correlation.of(workload, config))


TEMPLATE = ScheduleTemplate(
    name=NAME,
    device="cuda",
    pass_="wgrad",
    layout="nhwc",
    misfit=misfit,
    space=space,
    schedule=schedule,
    estimate=estimate,
)
