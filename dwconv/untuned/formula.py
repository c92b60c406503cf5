"""The configurations of least estimated cost: computed, for a workload that was never measured anywhere."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator

from dwconv.errors import InvalidConfig
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.schedules.estimate import estimated_us
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import templates_for

CHOSEN = 2
"""Configurations that are chosen. The best of two is 3 % faster than the first alone, on average."""
LISTED = 256
"""Up to this size, before the rules, a space is looked through from end to end."""
DRAWN = 150
"""Configurations that are drawn from a larger space, legal or not; the best of them is climbed from, too."""
STEPS = 12
"""Steps of a climb, each to the neighbour of least estimate: few climbs take half as many."""
APART = 2
"""Knobs in which the chosen ones differ, at least: what misjudges the first misjudges those next to it as well."""


def by_formula(workload: Workload, target: Target, *, count: int = CHOSEN) -> list[Config]:
    """Up to ``count`` legal configurations of least estimated cost among all templates that fit, the least first, no
    two of them alike. Nothing is built or measured: it takes some 30 ms. The same ones every time.

    Raises NoTemplate if nothing can run the workload."""
    estimate = functools.cache(functools.partial(_estimate, workload, target))
    found: list[Config] = []
    for template in templates_for(workload, target):
        if template.estimate_us is not None:
            found += _promising(template.space(workload, target), estimate)
    chosen: list[Config] = []
    for config in sorted(dict.fromkeys(found), key=lambda config: (estimate(config), str(config))):
        if len(chosen) < count and all(_are_apart(config, other) for other in chosen):
            chosen.append(config)
    return chosen


def _estimate(workload: Workload, target: Target, config: Config) -> float:
    return estimated_us(workload, config, target)


def _promising(space: ConfigSpace, estimate: Callable[[Config], float]) -> list[Config]:
    """All of a small space. Of a large one what is looked at on the way from its default, and from the best of some
    that are drawn, down to where no neighbour has a smaller estimate."""
    if space.size <= LISTED:
        return list(space)
    try:
        starts = [space.default]
    except InvalidConfig:
        return []
    drawn = list(_drawn(space))
    if drawn:
        starts.append(min(drawn, key=estimate))
    return [*drawn, *(config for start in starts for config in _climb(space, start, estimate))]


def _drawn(space: ConfigSpace) -> Iterator[Config]:
    rng = random.Random(0)
    for _ in range(DRAWN):
        values = {knob.name: rng.choice(knob.values) for knob in space.knobs}
        config = Config.of(space.template, **values)
        if space.why_illegal(config) is None:
            yield config


def _climb(space: ConfigSpace, start: Config, estimate: Callable[[Config], float]) -> Iterator[Config]:
    """Every configuration that is looked at."""
    at = start
    yield at
    for _ in range(STEPS):
        near = space.neighbours(at)
        yield from near
        best = min(near, key=estimate, default=at)
        if estimate(best) >= estimate(at):
            return
        at = best


def _are_apart(one: Config, other: Config) -> bool:
    return one.template != other.template or (
        sum(value != others for value, others in zip(one.values, other.values, strict=True)) >= APART
    )
