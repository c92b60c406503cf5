"""Evolution: breed configurations from the best so far, guided by a regression."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from dwconv.records.record import TuningRecord
from dwconv.schedules.space import Config
from dwconv.tuner.regression import Regression
from dwconv.tuner.spaces import SpaceUnion
from dwconv.tuner.unseen import Unseen


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
        self._unseen = Unseen(spaces, seed=seed)
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
