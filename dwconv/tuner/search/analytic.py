"""Analytic search: the least computed cost, for a GPU that need not be here."""

from __future__ import annotations

import math
import random

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.records.record import TuningRecord
from dwconv.schedules.estimate import estimated_us
from dwconv.schedules.space import Config
from dwconv.tuner.search import unvisited
from dwconv.tuner.search.config_features import Features
from dwconv.tuner.search.ranking import rank_correlation
from dwconv.tuner.search.regression import Regression
from dwconv.tuner.search.spaces import SpaceUnion
from dwconv.tuner.search.unvisited import Unvisited


class Analytic:
    """The least computed cost; nothing is measured.

    All legal configurations are ranked by an estimate from their knobs. The defaults are tried first, then the most
    promising and, among the first few, some from all over the ranking. Their computed costs correct the estimates of
    the others: a regression learns the ratio of cost to estimate.
    """

    LISTED = 8000
    """Configurations to rank of a space that is too large to list: so many are drawn."""
    SCREENED = 1500
    """How many of the most promising get corrected estimates."""
    WARM_UP = 16
    SPREAD = 8
    """How many of the first are spread evenly over the ranking: the best alone would teach nothing about the rest."""

    def __init__(self, spaces: SpaceUnion, *, workload: Workload, target: CudaTarget, seed: int) -> None:
        self._unseen = Unvisited(spaces, seed=seed)
        self._model = Regression(Features(spaces, workload), seed=seed)
        legal = list(spaces) if spaces.size <= unvisited.ENUMERABLE else self._some(spaces, seed=seed)
        self._estimates = {config: estimated_us(workload, config, target) for config in legal}
        self._order = sorted(self._estimates, key=lambda config: (self._estimates[config], str(config)))
        step = max(1, len(self._order) // self.SPREAD)
        self._spread = self._order[step // 2 :: step][: self.SPREAD]
        self._workload, self._target = workload, target
        self._off: dict[Config, float | None] = {}
        """Computed cost over the estimate; None for candidates that failed."""

    @property
    def ranked(self) -> int:
        """How many configurations were ranked."""
        return len(self._order)

    @property
    def agreement(self) -> float | None:
        """Rank correlation of the estimates with the computed costs so far; None with fewer than three."""
        pairs = [(self._estimate(config), off) for config, off in self._off.items() if off]
        if len(pairs) < 3:
            return None
        return rank_correlation([estimate for estimate, _ in pairs], [estimate * off for estimate, off in pairs])

    def tell(self, record: TuningRecord) -> None:
        if config := self._unseen.mark(record.config):
            time = record.time_us
            estimate = self._estimate(config)
            usable = math.isfinite(time) and math.isfinite(estimate)
            self._off[config] = time / estimate if usable else None

    def ask(self, count: int) -> list[Config]:
        found = self._unseen.defaults(count)
        new = [config for config in self._order if self._unseen.is_new(config)]
        if len(self._off) < self.WARM_UP:
            spread = [config for config in self._spread if self._unseen.is_new(config)][: (count - len(found)) // 2]
            new = list(dict.fromkeys([*spread, *new]))
        else:
            new = self._corrected(new[: self.SCREENED]) + new[self.SCREENED :]
        return found + self._unseen.take(new[: count - len(found)])

    def _estimate(self, config: Config) -> float:
        return self._estimates.get(config) or estimated_us(self._workload, config, self._target)

    def _corrected(self, configs: list[Config]) -> list[Config]:
        self._model.fit(self._off)
        powers = self._model.predict(configs)
        costs = {config: self._estimates[config] * 2 ** float(off) for config, off in zip(configs, powers, strict=True)}
        return sorted(configs, key=lambda config: (costs[config], str(config)))

    def _some(self, spaces: SpaceUnion, *, seed: int) -> list[Config]:
        rng = random.Random(seed)
        drawn = (spaces.sample(rng) for _ in range(self.LISTED))
        return list(dict.fromkeys(config for config in (*spaces.defaults, *drawn) if config is not None))
