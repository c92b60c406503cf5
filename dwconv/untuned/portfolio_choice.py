"""Choose: the configurations of a portfolio, from records.

For each regime, those that were among the best for one of its workloads are tried on all of its workloads: the first is
the one that is best on average, the next the one that helps most where those before are slow, and so on. What a
configuration costs a workload it was never measured on is predicted by trees grown from all that was measured.
"""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from dwconv.errors import InvalidConfig, NoTemplate
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import fitting
from dwconv.untuned.evidence import Measured
from dwconv.untuned.regimes import regimes
from dwconv.untuned.trees import Growth, Trees, grow
from dwconv.untuned.workload_features import of_candidate

MOST = 4
"""Configurations of a regime."""
_LEAST_WORKLOADS = 5
"""A regime with fewer is not known: the wider one counts."""
_WINNERS = 3
"""Configurations of a workload that are candidates for all others."""
_LEAST_HELP = 0.005
"""A further configuration that makes workloads only this much faster on average is left out."""
_GROWTH = Growth(trees=200, depth=6)
_MOST_LOSS = 3.0
"""Losses beyond this are no different: such a configuration never wins."""


def choose(measured: Sequence[Measured]) -> dict[str, tuple[Config, ...]]:
    """The configurations of each regime, the most useful first."""
    chosen: dict[str, tuple[Config, ...]] = {}
    by_template: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for one in measured:
        *_, whole = regimes(one.best.template, one.workload)
        by_template[whole, one.best.template].append(one)
    for (whole, template), workloads in sorted(by_template.items()):
        losses = _Losses(template, workloads)
        for name, members in _by_regime(template, losses.workloads).items():
            if len({one.workload.batchless_key for one in members}) >= _LEAST_WORKLOADS or name == whole:
                chosen[name] = tuple(_cover(losses, members, pool=_pool(template, members, chosen)))
    return chosen


def _by_regime(template: str, workloads: Sequence[Measured]) -> dict[str, list[Measured]]:
    """The workloads of each regime, the narrowest regimes first."""
    found: dict[tuple[int, str], list[Measured]] = defaultdict(list)
    for one in workloads:
        for width, name in enumerate(regimes(template, one.workload)):
            found[width, name].append(one)
    return {name: found[width, name] for width, name in sorted(found)}


def _pool(template: str, members: Sequence[Measured], chosen: Mapping[str, Sequence[Config]]) -> list[Config]:
    """The candidates of a regime: what was chosen for the narrower regimes of its workloads; where there are none, the
    best of the workloads themselves."""
    pool: dict[Config, None] = {}
    for one in members:
        narrower = next((chosen[name] for name in regimes(template, one.workload) if name in chosen), None)
        own = sorted((config for config in one.costs if config.template == template), key=one.costs.__getitem__)
        pool.update(dict.fromkeys(own[:_WINNERS] if narrower is None else narrower))
    return list(pool)


def _cover(losses: _Losses, workloads: Sequence[Measured], *, pool: list[Config]) -> list[Config]:
    """Up to ``MOST`` of the pool, greedily."""
    rows = [losses.of(one, pool) for one in workloads]
    reached = [_MOST_LOSS] * len(rows)
    found: list[Config] = []
    left = list(range(len(pool)))
    while left and len(found) < MOST:
        sums = {at: sum(math.log(min(most, row[at])) for most, row in zip(reached, rows, strict=True)) for at in left}
        best = min(left, key=lambda at: (sums[at], at))
        if sum(map(math.log, reached)) - sums[best] < _LEAST_HELP * len(rows):
            break
        found.append(pool[best])
        left.remove(best)
        reached = [min(most, row[best]) for most, row in zip(reached, rows, strict=True)]
    return found


class _Losses:
    """How many times as long as the best a configuration takes, of one template and many workloads: as measured, or as
    trees predict it."""

    def __init__(self, template: str, measured: Sequence[Measured]) -> None:
        self._spaces: dict[int, ConfigSpace] = {}
        for one in measured:
            with contextlib.suppress(NoTemplate, InvalidConfig):  # what ran on another device may not run here
                space = fitting(template, one.workload, one.target).space(one.workload, one.target)
                self._spaces[id(one)] = space
        self.workloads = [one for one in measured if id(one) in self._spaces]
        names = {name for one in self.workloads for config in one.costs for name, _ in config.values}
        self._knobs = tuple(sorted(names))
        self._trees = self._grown(template)

    def of(self, one: Measured, configs: Sequence[Config]) -> list[float]:
        """Of each configuration, as the space of the workload adopts it."""
        import numpy as np

        adopted = [_adopted(config, self._spaces[id(one)]) for config in configs]
        rows = [of_candidate(one.workload, config or one.best, knobs=self._knobs) for config in adopted]
        predicted = np.exp(self._trees.predict_all(np.array(rows, dtype=np.float32)))
        losses = []
        for config, guess in zip(adopted, map(float, predicted), strict=True):
            known = one.loss(config) if config else _MOST_LOSS
            losses.append(min(max(guess if known is None else known, 1.0), _MOST_LOSS))
        return losses

    def _grown(self, template: str) -> Trees:
        rows, labels = [], []
        for one in self.workloads:
            for config in one.costs:
                if config.template == template:
                    rows.append(of_candidate(one.workload, config, knobs=self._knobs))
                    labels.append(math.log(min(one.loss(config) or 1.0, _MOST_LOSS)))
        return grow(rows, labels, growth=_GROWTH)


def _adopted(config: Config, space: ConfigSpace) -> Config | None:
    try:
        return space.nearest(config)
    except InvalidConfig:
        return None
