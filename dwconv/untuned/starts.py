"""Starts: the configurations of a workload that are known to be good before anything is measured on this device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dwconv.errors import InvalidConfig
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.record import TuningRecord
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import ScheduleTemplate, templates_for
from dwconv.untuned.formula import by_formula
from dwconv.untuned.portfolio_file import Portfolio, shipped
from dwconv.untuned.similar import bests_of_similar

SIMILAR = 4
"""Workloads whose best configurations are starts."""
NEAR = 3.0
"""Powers of two up to which the nearest workload tells more than an estimate."""


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
    return list(_starts(workload, target, records, portfolio))


def first_start(
    workload: Workload, target: Target, records: Iterable[TuningRecord], *, portfolio: Portfolio | None = None
) -> Start | None:
    """The first of ``starts``, sooner: what comes after it is not looked for."""
    return next(_starts(workload, target, records, portfolio), None)


def _starts(
    workload: Workload, target: Target, records: Iterable[TuningRecord], portfolio: Portfolio | None
) -> Iterator[Start]:
    spaces = {template.name: template.space(workload, target) for template in _templates(workload, target)}
    seen: set[Config] = set()
    for wanted, reason in _wanted(workload, target, records, spaces, portfolio):
        if wanted.template in spaces:
            try:
                config = spaces[wanted.template].nearest(wanted)
            except InvalidConfig:
                continue
            if config not in seen:
                seen.add(config)
                yield Start(config=config, reason=reason)


def _wanted(
    workload: Workload,
    target: Target,
    records: Iterable[TuningRecord],
    spaces: dict[str, ConfigSpace],
    portfolio: Portfolio | None,
) -> Iterator[tuple[Config, str]]:
    """In the order of what they reached on another device than the records are from, alone and with those before.

    Share of the speed that 20 s of search find, 93 passes of drawn layers: the best of the nearest workload 0.86, the
    least estimate 0.88, the first of them that is chosen here 0.89, both least estimates and the nearest 0.96, with the
    default 0.97, with three more that are near 0.99."""
    usable = [record for record in records if record.fast_math == target.fast_math]
    similar = bests_of_similar(workload, usable, count=SIMILAR)
    near = [(each.config, "the best of a similar workload") for each in similar]
    is_near = bool(similar) and similar[0].octaves <= NEAR
    yield from near[:1] if is_near else ()
    yield from ((config, "of least estimated cost") for config in by_formula(workload, target))
    yield from near[:1]
    for space in spaces.values():
        try:
            yield space.default, "the default of its template"
        except InvalidConfig:
            continue
    yield from near[1:]
    known = shipped() if portfolio is None else portfolio
    for name in spaces:
        yield from ((config, "of the portfolio") for config in known.configs_for(name, workload))


def _templates(workload: Workload, target: Target) -> list[ScheduleTemplate[Any]]:
    """Those of the workload's own layout, if there are any: others copy the images first."""
    fits = templates_for(workload, target)
    return [template for template in fits if template.layout == workload.layout] or fits
