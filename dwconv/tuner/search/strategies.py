"""Strategies: which configurations to try next. Each is asked for some, and told the records of them.

The same seed and the same records give the same configurations, in whatever order the records of one batch arrive.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Protocol

from dwconv.errors import UnknownTarget
from dwconv.problems.target import CudaTarget, Target
from dwconv.problems.workload import Workload
from dwconv.records.record import TuningRecord
from dwconv.schedules.estimate import estimated_us
from dwconv.schedules.space import Config
from dwconv.schedules.template import all_templates
from dwconv.tuner.choices import SEARCHES, Search
from dwconv.tuner.search.analytic import Analytic
from dwconv.tuner.search.config_features import Features
from dwconv.tuner.search.evolve import Evolve
from dwconv.tuner.search.gaussian import GaussianProcess, Prior
from dwconv.tuner.search.spaces import SpaceUnion
from dwconv.tuner.search.unvisited import Unvisited

_SAMPLE = 200
"""Configurations that show how much the features of a space vary."""
_MOST_US = 1e9
"""What does not fit is estimated to take for ever; a number stands for that."""


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
    at_once: int = 1,
) -> Strategy:
    """The strategy of that name. The analytic one needs to know the GPU: raises UnknownTarget without one. ``starts``
    are configurations that were good for other workloads: evolve tries the nearest legal ones after the defaults, and
    ``at_once`` as many as take hardly longer than one; of a GPU, then, those of the least estimates."""
    if search == "analytic":
        return Analytic(spaces, workload=workload, target=_gpu(target), seed=seed)
    if search == "exhaustive":
        return Exhaustive(spaces)
    if search == "random":
        return Random(spaces, seed=seed)
    if search == "evolve":
        rng = random.Random(seed)
        sample = [config for _ in range(_SAMPLE) if (config := spaces.sample(rng))] or spaces.defaults
        prior = _prior(spaces, workload, target)
        model = GaussianProcess(Features(spaces, workload), prior=prior, sample=sample)
        drawn = sample if isinstance(target, CudaTarget) else []
        return Evolve(spaces, model=model, seed=seed, starts=[*starts, *drawn], at_once=at_once)
    raise ValueError(f"search={search} is unknown; use one of {', '.join(SEARCHES)}")


def _gpu(target: Target | None) -> CudaTarget:
    if not isinstance(target, CudaTarget):
        raise UnknownTarget(
            f"search=analytic computes what a kernel costs a GPU, the target is {target}; use --target cuda:sm_90, "
            "or --search evolve"
        )
    return target


def _prior(spaces: SpaceUnion, workload: Workload, target: Target | None) -> Prior:
    """The estimated cost, if all templates have an estimate; else nothing is expected of any configuration.

    On an H200 the order of estimates was that of the measured times but for Spearman's ρ = 0.9 (the median of 30
    workloads in 16 bits, of 15 candidates each), and the fastest was among the five of the least estimates in all."""
    known = all_templates()
    estimated = [name in known and known[name].estimate_us is not None for name in spaces.by_template]
    if target is None or not all(estimated):
        return lambda config: 0.0
    return cache(lambda config: math.log2(min(estimated_us(workload, config, target), _MOST_US)))


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
        self._unseen = Unvisited(spaces, seed=seed)

    def ask(self, count: int) -> list[Config]:
        found = self._unseen.defaults(count)
        return found + self._unseen.draw(count - len(found))

    def tell(self, record: TuningRecord) -> None:
        self._unseen.mark(record.config)
