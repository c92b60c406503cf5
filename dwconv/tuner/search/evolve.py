"""Evolution: breed configurations from the best so far, guided by a prediction."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from dwconv.records.record import TuningRecord
from dwconv.schedules.space import Config
from dwconv.tuner.search.gaussian import GaussianProcess
from dwconv.tuner.search.spaces import SpaceUnion
from dwconv.tuner.search.unvisited import Unvisited


class Evolve:
    """Evolution guided by a Gaussian process.

    The defaults and the configurations nearest to the first ``starts`` come first. Then a population is bred from the
    best so far by small steps, mutation and crossing, and selected for a few generations by what the process predicts.
    The most promising are tried, the other starts among them; where little is known, a configuration is promising, too.
    Candidates that are tried ``at_once`` take hardly longer than one: then no batch has fewer.
    """

    STARTS = 3
    """Starts that are tried at once; the others must be promising."""
    WARM_UP = 4
    """Configurations tried before the prediction is trusted."""
    FEW, UNTIL = 4, 8
    """So few are tried at a time until so many are: each teaches much."""
    PARENTS = 12
    POPULATION = 192
    GENERATIONS = 3

    def __init__(
        self,
        spaces: SpaceUnion,
        *,
        model: GaussianProcess,
        seed: int,
        starts: Sequence[Config] = (),
        at_once: int = 1,
    ) -> None:
        self._spaces = spaces
        self._few = max(self.FEW, at_once)
        self._model = model
        self._starts = list(dict.fromkeys(legal for config in starts if (legal := spaces.nearest(config))))
        self._unseen = Unvisited(spaces, seed=seed)
        self._rng = random.Random(seed + 1)
        self._times: dict[Config, float | None] = {}

    def tell(self, record: TuningRecord) -> None:
        if config := self._unseen.mark(record.config):
            time = record.time_us if record.relative_time is None else record.relative_time
            self._times[config] = time if math.isfinite(time) else None

    def ask(self, count: int) -> list[Config]:
        if len(self._times) < self.UNTIL:
            count = min(count, self._few)
        found = self._unseen.defaults(count)
        first = [config for config in self._starts[: self.STARTS] if self._unseen.is_new(config)]
        found += self._unseen.take(first[: count - len(found)])
        if len(self._times) >= self.WARM_UP and self._best():
            found += self._bred(count - len(found))
        else:
            others = [config for config in self._starts if self._unseen.is_new(config)]
            found += self._unseen.take(self._model.choose(others, count - len(found)))
        return found + self._unseen.draw(count - len(found))

    def _bred(self, count: int) -> list[Config]:
        if not count:
            return []
        self._model.fit(self._times)
        parents = self._best()
        pool = dict(zip(self._starts, map(float, self._model.predict(self._starts)), strict=True))
        for _ in range(self.GENERATIONS):
            children = [child for child in self._children(parents) if child not in pool]
            self._rng.shuffle(children)  # equal predictions: the order of knobs must not decide
            pool.update(zip(children, map(float, self._model.predict(children)), strict=True))
            parents = sorted(pool, key=lambda config: pool[config])[: self.PARENTS] or parents
        new = [config for config in pool if self._unseen.is_new(config)]
        return self._unseen.take(self._model.choose(new, count))

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
