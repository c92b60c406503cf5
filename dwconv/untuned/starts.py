"""Starts: the configurations of a workload that are known to be good before anything is measured on this device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dwconv.errors import InvalidConfig
from dwconv.records.record import TuningRecord
from dwconv.schedules.space import Config
from dwconv.schedules.template import templates_for
from dwconv.target import Target
from dwconv.untuned.similar import bests_of_similar
from dwconv.workload import Workload

SIMILAR = 4
"""Workloads whose best configurations are starts."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """A legal configuration of a workload, and why it is likely to be good."""

    config: Config
    reason: str
    """``the default of its template``, ``the best of a similar workload``, …"""


def starts(workload: Workload, target: Target, records: Iterable[TuningRecord]) -> list[Start]:
    """The configurations to start from, the most promising first, all legal and different.

    ``records`` may be of any device; what is not legal on ``target`` is adopted by its nearest legal neighbour. Raises
    NoTemplate if nothing can run the workload."""
    spaces = {template.name: template.space(workload, target) for template in templates_for(workload, target)}
    found: dict[Config, str] = {}
    usable = (record for record in records if record.fast_math == target.fast_math)
    for config in bests_of_similar(workload, usable, count=SIMILAR):
        if config.template in spaces:
            try:
                found.setdefault(spaces[config.template].nearest(config), "the best of a similar workload")
            except InvalidConfig:
                continue
    for space in spaces.values():
        try:
            found.setdefault(space.default, "the default of its template")
        except InvalidConfig:
            continue
    return [Start(config=config, reason=reason) for config, reason in found.items()]
