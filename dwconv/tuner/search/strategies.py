"""Strategies: which configurations to try next. Each proposes some, and learns from their records.

The same seed and the same records give the same configurations, in whatever order the records of one batch arrive.
WarmStart begins with what was good with other versions of PyTorch, TVM or a template.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import islice
from typing import Protocol

from dwconv.dispatch.knowledge import is_current
from dwconv.problems.target import CudaTarget, Target
from dwconv.problems.workload import Workload
from dwconv.records.record import Status, TuningRecord
from dwconv.schedules.space import Config
from dwconv.schedules.template import all_templates, estimated_us
from dwconv.tuner.search.evolve import Evolve, GaussianProcess, Prior
from dwconv.tuner.search.search_result import SEARCHES, Search
from dwconv.tuner.search.spaces import Features, SpaceUnion, Unvisited

_SAMPLE = 200
"""Configurations that show how much the features of a space vary."""
_MOST_US = 1e9
"""What does not fit is estimated to take for ever; a number stands for that."""


class Strategy(Protocol):
    def ask(self, count: int) -> list[Config]:
        """Up to ``count`` configurations, neither proposed nor measured yet; none when the space is exhausted."""
        ...

    def tell(self, record: TuningRecord) -> None:
        """Learn the record of a configuration, proposed or not."""
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
    """The strategy of that name; the analytic one needs a GPU as its target. ``starts`` are configurations that were
    good for other workloads: evolve tries the nearest legal ones after the defaults, and ``at_once`` as many as take
    hardly longer than one; of a GPU, then, those of the least estimates."""
    if search == "analytic":
        return Listed(spaces, by_estimate(spaces, workload, target, seed=seed))
    if search == "exhaustive":
        return Listed(spaces, spaces)
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


def _prior(spaces: SpaceUnion, workload: Workload, target: Target | None) -> Prior:
    """The estimated cost, if all templates have an estimate; else nothing is expected of any configuration.

    On an H200 the order of estimates was that of the measured times but for Spearman's ρ = 0.9 (the median of 30
    workloads in 16 bits, of 15 candidates each), and the fastest was among the five of the least estimates in all."""
    known = all_templates()
    estimated = [name in known and known[name].estimate_us is not None for name in spaces.by_template]
    if target is None or not all(estimated):
        return lambda config: 0.0
    return cache(lambda config: math.log2(min(estimated_us(workload, config, target), _MOST_US)))


LISTED = 8000
"""Configurations to rank of a space that is too large to list: so many are drawn."""


def by_estimate(spaces: SpaceUnion, workload: Workload, target: Target | None, *, seed: int) -> list[Config]:
    """The legal configurations in the order of the cost that is estimated from their knobs. The most promising are
    built: what they cost with the registers that the compiler gives them decides."""
    assert isinstance(target, CudaTarget), "others have no computed cost"
    legal: Iterable[Config] = spaces
    if not spaces.can_be_listed:
        rng = random.Random(seed)
        drawn = (spaces.sample(rng) for _ in range(LISTED))
        legal = [*spaces.defaults, *(config for config in drawn if config is not None)]
    estimates = {config: estimated_us(workload, config, target) for config in legal}
    return sorted(estimates, key=lambda config: (estimates[config], str(config)))


class Listed:
    """The defaults, then the configurations of a list in its order, each once."""

    def __init__(self, spaces: SpaceUnion, order: Iterable[Config]) -> None:
        self._unseen = Unvisited(spaces, seed=0)
        self._order = iter(order)

    def ask(self, count: int) -> list[Config]:
        found = self._unseen.defaults(count)
        new = (config for config in self._order if self._unseen.is_new(config))
        return found + self._unseen.take(list(islice(new, count - len(found))))

    def tell(self, record: TuningRecord) -> None:
        self._unseen.mark(record.config)


class Random:
    """The defaults, then configurations drawn evenly, each once."""

    def __init__(self, spaces: SpaceUnion, *, seed: int) -> None:
        self._unseen = Unvisited(spaces, seed=seed)

    def ask(self, count: int) -> list[Config]:
        found = self._unseen.defaults(count)
        return found + self._unseen.draw(count - len(found))

    def tell(self, record: TuningRecord) -> None:
        self._unseen.mark(record.config)


MOST_WARM_STARTS = 4
"""Configurations of a workload to try again."""


def bests_of_other_versions(workload: Workload, records: Iterable[TuningRecord], spaces: SpaceUnion) -> list[Config]:
    """The best few configurations of ``workload`` that were measured, or computed, with other versions, the best first;
    where one is not legal any more, the legal one that is nearest. ``records`` are of one device."""
    known = [record for record in records if record.workload == workload and record.status is Status.OK]
    stale = [record for record in known if not is_current(record)]
    ranked = sorted(stale, key=lambda record: (not record.measured, record.rank))
    legal = [config for record in ranked if (config := spaces.nearest(record.config))]
    return list(dict.fromkeys(legal))[:MOST_WARM_STARTS]


class WarmStart:
    """Some configurations first, then those of another strategy."""

    def __init__(self, spaces: SpaceUnion, configs: Sequence[Config], *, then: Strategy) -> None:
        self._spaces = spaces
        self._first = list(configs)
        self._then = then

    def ask(self, count: int) -> list[Config]:
        """The other strategy proposes once it has learnt the first ones, so that it does not try them too."""
        if self._first:
            found, self._first = self._first[:count], self._first[count:]
            return found
        return self._then.ask(count)

    def tell(self, record: TuningRecord) -> None:
        config = self._spaces.adopt(record.config)
        self._first = [first for first in self._first if first != config]
        self._then.tell(record)
