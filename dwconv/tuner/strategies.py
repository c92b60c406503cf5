"""Strategies: which configurations to try next. Each is asked for some, and told the records of them.

The same seed and the same records give the same configurations, in whatever order the records of one batch arrive.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import Protocol

from dwconv.errors import UnknownTarget
from dwconv.records.record import TuningRecord
from dwconv.schedules.space import Config
from dwconv.target import CudaTarget, Target
from dwconv.tuner.choices import SEARCHES, Search
from dwconv.tuner.estimate import estimated_us
from dwconv.tuner.features import Features
from dwconv.tuner.ranking import rank_correlation
from dwconv.tuner.regression import Regression
from dwconv.tuner.spaces import SpaceUnion
from dwconv.workload import Workload

_ENUMERABLE = 50_000
"""Spaces up to this size are listed when random draws find nothing new any more."""


class Strategy(Protocol):
    def ask(self, count: int) -> list[Config]:
        """Up to ``count`` configurations that were never asked or told before; none when the space is exhausted."""
        ...

    def tell(self, record: TuningRecord) -> None:
        """Learn the record of a configuration, asked for or not."""
        ...


def make_strategy(
    search: Search,
    *,
    spaces: SpaceUnion,
    workload: Workload,
    seed: int,
    target: Target | None = None,
    starts: Sequence[Config] = (),
) -> Strategy:
    """The strategy of that name. The analytic one needs to know the GPU: raises UnknownTarget without one. ``starts``
    are configurations that were good for other workloads: evolve tries the nearest legal ones after the defaults."""
    if search == "analytic":
        return Analytic(spaces, workload=workload, target=_gpu(target), seed=seed)
    if search == "exhaustive":
        return Exhaustive(spaces)
    if search == "random":
        return Random(spaces, seed=seed)
    if search == "evolve":
        model = Regression(Features(spaces, workload), seed=seed)
        return Evolve(spaces, model=model, seed=seed, starts=starts)
    raise ValueError(f"search={search} is unknown; use one of {', '.join(SEARCHES)}")


def _gpu(target: Target | None) -> CudaTarget:
    if not isinstance(target, CudaTarget):
        raise UnknownTarget(
            f"search=analytic computes what a kernel costs a GPU, the target is {target}; use --target cuda:sm_90, "
            "or --search evolve"
        )
    return target


class Exhaustive:
    """Every legal configuration: the defaults first, then in order of the knobs."""

    def __init__(self, spaces: SpaceUnion) -> None:
        self._spaces = spaces
        self._seen: set[Config] = set()
        self._rest: Iterator[Config] = iter([*spaces.defaults])
        self._listed = False

    def ask(self, count: int) -> list[Config]:
        found: list[Config] = []
        while len(found) < count:
            config = next(self._rest, None)
            if config is None and self._listed:
                break
            if config is None:
                self._rest, self._listed = iter(self._spaces), True
            elif config not in self._seen:
                self._seen.add(config)
                found.append(config)
        return found

    def tell(self, record: TuningRecord) -> None:
        if config := self._spaces.adopt(record.config):
            self._seen.add(config)


class Random:
    """The defaults, then configurations drawn evenly, each once."""

    def __init__(self, spaces: SpaceUnion, *, seed: int) -> None:
        self._unseen = _Unseen(spaces, seed=seed)

    def ask(self, count: int) -> list[Config]:
        found = self._unseen.defaults(count)
        return found + self._unseen.draw(count - len(found))

    def tell(self, record: TuningRecord) -> None:
        self._unseen.mark(record.config)


class Evolve:
    """Evolution guided by a regression.

    The defaults, the configurations nearest to ``starts`` and random ones come first. Then a population is bred from
    the best so far by small steps, mutation and crossing, and selected for a few generations by the regression's
    prediction. Most of a batch are the best predicted; the rest is drawn at random, so that no corner stays unknown.
    """

    WARM_UP = 8
    """Configurations tried before the regression is trusted."""
    EXPLORE = 0.2
    """Share of a batch that is drawn at random."""
    PARENTS = 12
    POPULATION = 192
    GENERATIONS = 3

    def __init__(self, spaces: SpaceUnion, *, model: Regression, seed: int, starts: Sequence[Config] = ()) -> None:
        self._spaces = spaces
        self._model = model
        self._starts = list(dict.fromkeys(legal for config in starts if (legal := spaces.nearest(config))))
        self._unseen = _Unseen(spaces, seed=seed)
        self._rng = random.Random(seed + 1)
        self._times: dict[Config, float | None] = {}

    def tell(self, record: TuningRecord) -> None:
        if config := self._unseen.mark(record.config):
            time = record.cost
            self._times[config] = time if math.isfinite(time) else None

    def ask(self, count: int) -> list[Config]:
        found = self._unseen.defaults(count)
        started = [config for config in self._starts if self._unseen.is_new(config)]
        found += self._unseen.take(started[: count - len(found)])
        if len(self._times) < self.WARM_UP or not self._best():
            return found + self._unseen.draw(count - len(found))
        explored = sum(self._rng.random() < self.EXPLORE for _ in range(count - len(found)))
        found += self._bred(count - len(found) - explored)
        return found + self._unseen.draw(count - len(found))

    def _bred(self, count: int) -> list[Config]:
        self._model.fit(self._times)
        parents = self._best()
        pool: dict[Config, float] = {}
        for _ in range(self.GENERATIONS):
            children = [child for child in self._children(parents) if child not in pool]
            self._rng.shuffle(children)  # trees predict the same time for many: the order of knobs must not decide
            predictions = self._model.predict(children)
            pool.update(zip(children, map(float, predictions), strict=True))
            parents = sorted(pool, key=lambda config: pool[config])[: self.PARENTS] or parents
        new = [config for config in sorted(pool, key=lambda config: pool[config]) if self._unseen.is_new(config)]
        return self._unseen.take(new[:count])

    def _best(self) -> list[Config]:
        """The fastest configurations told, fastest first."""
        worked = [(time, str(config), config) for config, time in self._times.items() if time is not None]
        return [config for _, _, config in sorted(worked, key=lambda item: item[:2])[: self.PARENTS]]

    def _children(self, parents: list[Config]) -> list[Config]:
        rng, spaces = self._rng, self._spaces
        steps = [near for parent in parents for near in spaces.neighbours(parent)]
        born: list[Config | None] = list(steps)
        for _ in range(self.POPULATION):
            kind = rng.random()
            if kind < 0.4:
                born.append(spaces.mutate(rng.choice(parents), rng))
            elif kind < 0.8:
                born.append(spaces.cross(rng.choice(parents), rng.choice(parents), rng))
            else:
                born.append(spaces.sample(rng))
        return list(dict.fromkeys(config for config in born if config is not None))


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
        self._unseen = _Unseen(spaces, seed=seed)
        self._model = Regression(Features(spaces, workload), seed=seed)
        legal = list(spaces) if spaces.size <= _ENUMERABLE else self._some(spaces, seed=seed)
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
            time = record.cost
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


class _Unseen:
    """Draws configurations that were never asked or told before."""

    def __init__(self, spaces: SpaceUnion, *, seed: int) -> None:
        self._spaces = spaces
        self._rng = random.Random(seed)
        self._seen: set[Config] = set()

    def mark(self, config: Config) -> Config | None:
        """Remember ``config`` as seen. Returns it as its space writes it; None if it is not in the space."""
        adopted = self._spaces.adopt(config)
        if adopted is not None:
            self._seen.add(adopted)
        return adopted

    def is_new(self, config: Config) -> bool:
        return config not in self._seen

    def take(self, configs: list[Config]) -> list[Config]:
        self._seen.update(configs)
        return configs

    def defaults(self, count: int) -> list[Config]:
        return self.take([config for config in self._spaces.defaults if self.is_new(config)][:count])

    def draw(self, count: int) -> list[Config]:
        """Up to ``count``, drawn evenly."""
        found = self._drawn(count)
        if len(found) < count and self._spaces.size <= _ENUMERABLE:
            rest = [config for config in self._spaces if self.is_new(config) and config not in found]
            found += self._rng.sample(rest, k=min(len(rest), count - len(found)))
        return self.take(found)

    def _drawn(self, count: int) -> list[Config]:
        found: dict[Config, None] = {}
        for _ in range(20 * count):
            if len(found) == count:
                break
            config = self._spaces.sample(self._rng)
            if config is not None and self.is_new(config):
                found[config] = None
        return list(found)
