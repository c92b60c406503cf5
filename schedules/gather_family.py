"""fprop and dgrad of one family, from one description: both are a sum over taps (``schedules/gather.py``)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

from dwconv.problems.workload import Layout, Workload
from dwconv.schedules.gather import GATHERS
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import AnyTarget, ScheduleTemplate

if TYPE_CHECKING:
    from tvm import s_tir


def gather_family(
    device: Literal["cpu", "cuda"],
    suffix: str,
    *,
    layout: Layout,
    most_axes: int = 2,
    activates: bool = False,
    any_size: bool = False,
    any_channels: bool = False,
    spreads_nan: bool = False,
    misfit: Callable[[Workload, AnyTarget], str | None] = lambda *_: None,
    space: Callable[[str, Workload, AnyTarget], ConfigSpace],
    schedule: Callable[[Workload, Config, AnyTarget], s_tir.Schedule],
    estimate_us: Callable[[Workload, Config, AnyTarget], float],
) -> tuple[ScheduleTemplate[AnyTarget], ...]:
    """Templates ``DEVICE.fprop_SUFFIX`` and ``DEVICE.dgrad_SUFFIX``; ``space`` takes the template's name first. The
    functions see from the workload which pass it is."""
    return tuple(
        ScheduleTemplate(
            name=f"{device}.{pass_}_{suffix}",
            device=device,
            pass_=pass_,
            layout=layout,
            most_axes=most_axes,
            activates=activates and pass_ == "fprop",
            any_size=any_size,
            any_channels=any_channels,
            spreads_nan=spreads_nan,
            misfit=misfit,
            space=partial(space, f"{device}.{pass_}_{suffix}"),
            schedule=schedule,
            estimate_us=estimate_us,
        )
        for pass_ in GATHERS
    )
