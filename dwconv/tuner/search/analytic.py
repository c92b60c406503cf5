"""Analytic search: the least computed cost, for a GPU that need not be here.

A regression predicts from the candidates so far how fast the others would be. Spearman's ρ judges the order.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.records.record import TuningRecord
from dwconv.schedules.space import Config
from dwconv.schedules.template import estimated_us
from dwconv.tuner.search import spaces as search_spaces
from dwconv.tuner.search.spaces import Features, SpaceUnion, Unvisited


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """1 for the same order, −1 for the reverse; 0 for no relation, or if either measure is constant."""
    first, second = _ranks(one), _ranks(other)
    spread = float(first.std() * second.std())
    return float(((first - first.mean()) * (second - second.mean())).mean()) / spread if spread else 0.0


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Ranks; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse], np.float64)


_FAILED_IS_SLOWER_BY = 1.0  # in powers of two, than the slowest that worked
_TREES = 60
_PARAMETERS: dict[str, Any] = {
    "objective": "reg:squarederror",
    "tree_method": "exact",  # a few hundred rows at most
    "max_depth": 5,
    "eta": 0.2,
    "min_child_weight": 1,
    "lambda": 0.5,
    "nthread": 1,  # the cores belong to the kernel that is timed, and one thread gives the same trees every time
    "verbosity": 0,
}


class Regression:
    """Boosted trees over the features of a configuration, trained on the logarithm of its time.

    A candidate that failed is learnt as slower than all that worked, so that the search moves away from it.
    """

    def __init__(self, features: Features, *, seed: int) -> None:
        self._features = features
        self._parameters = {**_PARAMETERS, "seed": seed}
        self._trees: Any = None

    def fit(self, times: Mapping[Config, float | None]) -> None:
        """Train anew; None is a candidate that failed. The order of ``times`` does not matter."""
        import numpy as np
        import xgboost

        worked = [math.log2(time) for time in times.values() if time is not None]
        if not worked:
            self._trees = None
            return
        configs = sorted(times, key=lambda config: config.to_dict().__repr__())
        worst = max(worked) + _FAILED_IS_SLOWER_BY
        labels = [worst if (time := times[config]) is None else math.log2(time) for config in configs]
        data = xgboost.DMatrix(self._features.rows(configs), label=np.array(labels) - min(worked), nthread=1)
        self._trees = xgboost.train(self._parameters, data, num_boost_round=_TREES)

    def predict(self, configs: Sequence[Config]) -> NDArray[np.float32]:
        """Predicted time of each over the best time, as a power of two; all zeros until a candidate has worked."""
        import numpy as np
        import xgboost

        if self._trees is None or not configs:
            return np.zeros(len(configs), dtype=np.float32)
        predicted: NDArray[np.float32] = self._trees.predict(xgboost.DMatrix(self._features.rows(configs), nthread=1))
        return predicted


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
        legal = list(spaces) if spaces.size <= search_spaces.ENUMERABLE else self._some(spaces, seed=seed)
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
