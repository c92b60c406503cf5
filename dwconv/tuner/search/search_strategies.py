"""Strategies: which configurations to try next. Each proposes some, and learns from their records.

The same seed and the same records give the same configurations, in whatever order the records of one batch arrive.
WarmStart begins with what was good with other versions of PyTorch, TVM or a template.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Protocol

from dwconv.dispatch.knowledge import is_current
from dwconv.problems.target import CudaTarget, Target
from dwconv.problems.workload import Workload
from dwconv.records.record import Status, TuningRecord
from dwconv.schedules.cuda.gpu.cost import BlockWork, least_us
from dwconv.schedules.space import Config
from dwconv.schedules.template import all_templates, estimated_us
from dwconv.tuner.search.evolve import Evolve, GaussianProcess, Prior
from dwconv.tuner.search.search_result import SEARCHES, Search, Stop
from dwconv.tuner.search.space_union import Features, SpaceUnion, Unvisited

Works = tuple[BlockWork, ...]

_SAMPLE = 200
"""Configurations that show how much the features of a space vary."""
_MOST_US = 1e9
"""What does not fit is estimated to take for ever; a number stands for that."""


class Strategy(Protocol):
    stop: Stop
    """Why it has nothing more to propose."""

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
        return Analytic(spaces, by_estimate(spaces, workload, target, seed=seed), workload=workload, target=target)
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


CLIMBED = 4
"""Configurations of each template, and of those with each value of a knob, whose neighbours are looked at, while these
are better: some knobs pay only together."""


def by_estimate(spaces: SpaceUnion, workload: Workload, target: Target | None, *, seed: int) -> list[Config]:
    """The legal configurations in the order of ``estimates``. The most promising are built: what they cost with the
    registers that the compiler gives them decides."""
    return in_order(estimates(spaces, workload, target, seed=seed))


def estimates(
    spaces: SpaceUnion,
    workload: Workload,
    target: Target | None,
    *,
    seed: int,
    drawn: int | None = None,
    known: Mapping[Config, float] | None = None,
) -> dict[Config, float]:
    """Legal configurations with the cost that is estimated from their knobs, in microseconds: all of a small space; of
    a large one ``drawn`` at random (LISTED by default), and step by step the neighbours of the best of each template.
    Where legal ones are ``known`` with their estimates, these, and the neighbours of the best."""
    assert isinstance(target, CudaTarget), "others have no computed cost"

    def estimate(config: Config) -> float:
        return estimated_us(workload, config, target)

    if known:
        return _climbed(spaces, dict(known), estimate, best_of_choices=False)
    if spaces.can_be_listed and (drawn is None or spaces.size <= drawn):
        return {config: estimate(config) for config in spaces}
    rng = random.Random(seed)
    draws = (spaces.sample(rng) for _ in range(LISTED if drawn is None else drawn))
    legal = [*spaces.defaults, *(config for config in draws if config is not None)]
    found = {config: estimate(config) for config in legal}
    for name in spaces.by_template:
        own = {config: taken_us for config, taken_us in found.items() if config.template == name}
        found |= _climbed(spaces, own, estimate)
    return found


def in_order(found: Mapping[Config, float]) -> list[Config]:
    """The least estimate first."""
    return sorted(found, key=lambda config: (found[config], str(config)))


def _climbed(
    spaces: SpaceUnion,
    found: dict[Config, float],
    estimate: Callable[[Config], float],
    *,
    best_of_choices: bool = True,
) -> dict[Config, float]:
    """Estimates of one template and of the neighbours of the best, until none of these is among the best, nor what
    differs from the best in two knobs. With ``best_of_choices`` also of the best with each value of each knob."""
    looked_at: set[Config] = set()
    left: set[Config] = set()
    while True:
        ranked = in_order(found)
        best = {choice: config for config in reversed(ranked) for choice in config.values} if best_of_choices else {}
        new = [config for config in dict.fromkeys([*ranked[:CLIMBED], *best.values()]) if config not in looked_at]
        if new:
            looked_at.update(new)
            near = dict.fromkeys(config for each in new for config in spaces.neighbours(each))
        elif ranked[0] not in left:
            left.add(ranked[0])
            near = dict.fromkeys(spaces.two_apart(ranked[0]))
        else:
            return found
        found |= {config: estimate(config) for config in near if config not in found}


class Listed:
    """The defaults, then the configurations of a list in its order, each once."""

    stop = Stop.EXHAUSTED

    def __init__(self, spaces: SpaceUnion, order: Iterable[Config]) -> None:
        self._unseen = Unvisited(spaces, seed=0)
        self._order = iter(order)

    def ask(self, count: int) -> list[Config]:
        found = self._unseen.defaults(count)
        new = (config for config in self._order if self._unseen.is_new(config))
        return found + self._unseen.take(list(islice(new, count - len(found))))

    def tell(self, record: TuningRecord) -> None:
        self._unseen.mark(record.config)


WORTH_BUILDING = 0.97
"""A candidate is built if its cost may be at most this share of the least so far."""


class Analytic:
    """The defaults, then the others in the order of their estimates, for costs that are computed.

    What a candidate costs, once it is built, follows from the work of its kernels and from their registers. So of
    candidates of the same work one is built, and none whose work takes too long with the fewest registers: the search
    ends when nothing left can win."""

    stop = Stop.BOUND

    def __init__(
        self, spaces: SpaceUnion, order: Iterable[Config], *, workload: Workload, target: Target | None
    ) -> None:
        self._unseen = Unvisited(spaces, seed=0)
        self._spaces = spaces
        self._order = deque(order)
        self._workload, self._target = workload, target
        self._alike: dict[Works, list[Config]] = {}
        """By their works those that are left out, since one of them is proposed."""
        self._least_us = math.inf

    def ask(self, count: int) -> list[Config]:
        found = self._unseen.defaults(count)
        for config in found:
            self._alike.setdefault(self._works(config), [])
        while self._order and len(found) < count:
            config = self._order.popleft()
            if not self._unseen.is_new(config):
                continue
            works = self._works(config)
            if not self._may_win(works):
                continue
            if works and works in self._alike:
                self._alike[works].append(config)
            else:
                self._alike[works] = []
                found += self._unseen.take([config])
        return found

    def tell(self, record: TuningRecord) -> None:
        config = self._unseen.mark(record.config)
        if record.status is not Status.OK and config is not None:
            self._order.extendleft(reversed(self._alike.pop(self._works(config), [])))
        if record.status is Status.OK and record.measurement and record.measurement.computed and not record.doubtful:
            self._least_us = min(self._least_us, record.measurement.median_us)

    def _works(self, config: Config) -> Works:
        """Empty where nothing is known of them."""
        works = all_templates()[config.template].works if config.template in all_templates() else None
        return tuple(works(self._workload, config, self._target)) if works else ()

    def _may_win(self, works: Works) -> bool:
        if not works or not isinstance(self._target, CudaTarget):
            return True
        return least_us(works, self._target) < WORTH_BUILDING * self._least_us


class Random:
    """The defaults, then configurations drawn evenly, each once."""

    stop = Stop.EXHAUSTED

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

    @property
    def stop(self) -> Stop:
        return self._then.stop

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
