"""fprop and dgrad of one family, from one description: both are a sum over taps (``schedules/gather.py``)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Layout, Workload
from dwconv.schedules.gather import GATHERS
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import ScheduleTemplate

if TYPE_CHECKING:
    from tvm import s_tir


def gather_family(
    layout: Layout,
    *,
    misfit: Callable[[Workload, CpuTarget], str | None],
    space: Callable[[str, Workload, CpuTarget], ConfigSpace],
    schedule: Callable[[Workload, Config, CpuTarget], s_tir.Schedule],
    estimate_us: Callable[[Workload, Config, CpuTarget], float],
) -> tuple[ScheduleTemplate[CpuTarget], ...]:
    """Templates ``cpu.fprop_LAYOUT`` and ``cpu.dgrad_LAYOUT``; ``space`` takes the template's name first. The functions
    see from the workload which pass it is."""
    return tuple(
        ScheduleTemplate(
            name=f"cpu.{pass_}_{layout}",
            device="cpu",
            pass_=pass_,
            layout=layout,
            misfit=misfit,
            space=partial(space, f"cpu.{pass_}_{layout}"),
            schedule=schedule,
            estimate_us=estimate_us,
        )
        for pass_ in GATHERS
    )
