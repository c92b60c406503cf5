"""Starts: the configurations of a workload that are known to be good before anything is measured on this device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dwconv.errors import InvalidConfig
from dwconv.records.record import TuningRecord
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import templates_for
from dwconv.target import Target
from dwconv.untuned.portfolio import Portfolio, shipped
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


def starts(
    workload: Workload, target: Target, records: Iterable[TuningRecord], *, portfolio: Portfolio | None = None
) -> list[Start]:
    """The configurations to start from, the most promising first, all legal and different.

    ``records`` may be of any device; what is not legal on ``target`` is adopted by its nearest legal neighbour.
    ``portfolio`` is the shipped one unless given. Raises NoTemplate if nothing can run the workload."""
    spaces = {template.name: template.space(workload, target) for template in templates_for(workload, target)}
    usable = [record for record in records if record.fast_math == target.fast_math]
    similar = bests_of_similar(workload, usable, count=SIMILAR)
    known = shipped() if portfolio is None else portfolio
    wanted = [(config, "the best of a similar workload") for config in similar[:1]]
    for name in spaces:
        wanted += [(config, "of the portfolio") for config in known.configs_for(name, workload)]
    wanted += [(config, "the best of a similar workload") for config in similar[1:]]
    found: dict[Config, str] = {}
    for config, reason in (*wanted, *_defaults(spaces)):
        if config.template in spaces:
            try:
                found.setdefault(spaces[config.template].nearest(config), reason)
            except InvalidConfig:
                continue
    return [Start(config=config, reason=reason) for config, reason in found.items()]


def _defaults(spaces: dict[str, ConfigSpace]) -> Iterator[tuple[Config, str]]:
    for space in spaces.values():
        try:
            yield space.default, "the default of its template"
        except InvalidConfig:
            continue
