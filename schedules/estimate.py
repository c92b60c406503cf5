"""The estimated cost of a configuration, from plain integers. Building a candidate takes a second: the estimate picks
those that are worth building, and the machine code, or a measurement, decides."""

from __future__ import annotations

from dwconv.errors import InvalidConfig
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config
from dwconv.schedules.template import template


def estimated_us(workload: Workload, config: Config, target: Target) -> float:
    """Microseconds of all kernels of a legal configuration; only the order of several configurations means something.
    Infinite where a block does not fit on an SM. Raises InvalidConfig if the template has no estimate."""
    estimate_us = template(config.template).estimate_us
    if estimate_us is None:
        raise InvalidConfig(f"template={config.template} has no estimate; measure its configurations instead")
    return estimate_us(workload, config, target)
