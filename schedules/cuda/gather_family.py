"""fprop and dgrad of one family, from one description: both are a sum over taps (``schedules/gather.py``)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Layout, Workload
from dwconv.schedules.cuda.gpu.cost import BlockWork, total_us
from dwconv.schedules.gather import GATHERS
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import ScheduleTemplate

if TYPE_CHECKING:
    from tvm import s_tir


def gather_family(
    suffix: str,
    *,
    layout: Layout,
    misfit: Callable[[Workload, CudaTarget], str | None],
    space: Callable[[str, Workload, CudaTarget], ConfigSpace],
    work: Callable[[Workload, Config, CudaTarget], BlockWork],
    schedule: Callable[[Workload, Config, CudaTarget], s_tir.Schedule],
) -> tuple[ScheduleTemplate[CudaTarget], ...]:
    """Templates ``cuda.fprop_SUFFIX`` and ``cuda.dgrad_SUFFIX``; ``space`` takes the template's name first, ``work`` is
    that of the one kernel. The functions see from the workload which pass it is."""
    return tuple(
        ScheduleTemplate(
            name=f"cuda.{pass_}_{suffix}",
            device="cuda",
            pass_=pass_,
            layout=layout,
            misfit=misfit,
            space=partial(space, f"cuda.{pass_}_{suffix}"),
            estimate_us=lambda workload, config, target: total_us([work(workload, config, target)], target),
            schedule=schedule,
        )
        for pass_ in GATHERS
    )
