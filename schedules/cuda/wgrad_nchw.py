"""wgrad, NCHW, CUDA.

    plane of dy                      a block: threads_c planes        what one thread owns
    ┌──────┬──────┬──────┐       lanes: tiles of a plane          ┌─ tile_h rows × tile_w columns of dy, in one
    │ t0   │ t1   │ t2 … │  ──►  t0 t1 t2 …   plane c         ──► │  channel and one share of the images, one
    ├──────┼──────┼──────┤       t0 t1 t2 …   plane c + 1         │  image at a time;
    │  …   │  …   │  …   │       …            (threads_p items)   └─ group_kh × KW sums in registers

Neighbouring threads read neighbouring vectors of a row; on small maps a warp spans several planes and images. Where the
kernel is tall, its rows are split into groups, side by side in the block: each keeps its sums in registers. The sum of
dy alone, where there is a bias, is one more.
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

NAME = "cuda.wgrad_nchw"


def space(workload: Workload, target: Target) -> ConfigSpace:
    return correlation_space(NAME, workload, target)


def schedule(workload: Workload, config: Config, target: Target) -> s_tir.Schedule:
    from dwconv.schedules.cuda.correlate import schedule_correlation

    return schedule_correlation(Correlation.of(workload, config))


TEMPLATE = ScheduleTemplate(
    name=NAME,
    device="cuda",
    pass_="wgrad",
    layout="nchw",
    misfit=misfit,
    space=space,
    schedule=schedule,
    estimate=estimate,
)
