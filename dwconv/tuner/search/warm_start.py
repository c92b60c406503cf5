"""WarmStart: what was good with other versions of PyTorch, TVM or a template is tried again before anything else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dwconv.dispatch.knowledge import is_current, measured_here
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.records.record import Status, TuningRecord
from dwconv.schedules.space import Config
from dwconv.tuner.search.spaces import SpaceUnion
from dwconv.tuner.search.strategies import Strategy

MOST = 4
"""Configurations of a workload to try again."""


def bests_of_other_versions(workload: Workload, records: Iterable[TuningRecord], spaces: SpaceUnion) -> list[Config]:
    """The best few configurations of ``workload`` that were measured, or computed, with other versions, the best first;
    where one is not legal any more, the legal one that is nearest. ``records`` are of one device."""
    known = [record for record in records if record.workload == workload and record.status is Status.OK]
    stale = [record for record in known if not is_current(record)]
    ranked = sorted(stale, key=lambda record: (not record.measured, record.rank))
    legal = [config for record in ranked if (config := spaces.nearest(record.config))]
    return list(dict.fromkeys(legal))[:MOST]


def to_race_again(workloads: Iterable[Workload], known: Database, target: Target) -> list[Workload]:
    """The workloads that were measured on the target's device, but of which nothing is confirmed with the versions
    installed."""

    def is_stale(workload: Workload) -> bool:
        here = (each for each in known.records(workload, target.device) if each.fast_math == target.fast_math)
        return any(each.measured and not is_current(each) for each in here)

    def is_confirmed(workload: Workload) -> bool:
        here = measured_here(workload, target, current=True, known=known)
        return any(each.workload == workload and each.confirmed for each in here)

    return [each for each in workloads if is_stale(each) and not is_confirmed(each)]


class WarmStart:
    """Some configurations first, then those of another strategy, if there is one."""

    def __init__(self, spaces: SpaceUnion, configs: Sequence[Config], *, then: Strategy | None) -> None:
        self._spaces = spaces
        self._first = list(configs)
        self._then = then

    def ask(self, count: int) -> list[Config]:
        """The other strategy is asked once it was told of the first ones, so that it does not try them too."""
        if self._first:
            found, self._first = self._first[:count], self._first[count:]
            return found
        return self._then.ask(count) if self._then else []

    def tell(self, record: TuningRecord) -> None:
        config = self._spaces.adopt(record.config)
        self._first = [first for first in self._first if first != config]
        if self._then:
            self._then.tell(record)
