"""What a stage of ``bench cuda`` will build, as far as it is known before, where there is no GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from bench.gpu.run import say
from bench.models import Network
from dwconv.errors import DwconvError, NoTemplate
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.records.record import TuningRecord
from dwconv.schedules.template import Candidate, can_run
from dwconv.system import versions
from dwconv.tuner.expected_gain import MOST_STARTS
from dwconv.tuner.race import first_comparisons
from dwconv.untuned.starts import starts

Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class GpuPlan:
    """The input of a run that is to come."""

    target: Target
    """The GPU that it is to use."""
    known: Database
    """The records that it starts from."""
    workloads: list[Workload]
    """As in ``Run``."""
    odd: list[Workload]

    def raced(self, workloads: Iterable[Workload]) -> Iterator[Candidate]:
        """What ``race_untuned`` builds of them now; then what it may build instead once more is known: what the stages
        before have measured changes which of a workload's configurations are likely."""
        counts = dict.fromkeys((each for each in workloads if can_run(each, self.target)), 1)
        compared = list(first_comparisons(counts, self.target, known=self.known))
        yield from (candidate for comparison in compared for candidate in comparison)
        for workload in dict.fromkeys(comparison[0].workload for comparison in compared):
            yield from self.starts(workload, most=MOST_STARTS)

    def starts(self, workload: Workload, *, most: int | None = None) -> list[Candidate]:
        """What a search of it begins with, or the first ones of that."""
        try:
            found = starts(workload, self.target, self.known.bests_of_kind(workload), most=most)
        except NoTemplate:
            return []
        return [Candidate(workload, start.config) for start in found]

    def best(self, workloads: Iterable[Workload]) -> Iterator[Candidate]:
        """The fastest that is known of each that is tuned."""
        for workload in workloads:
            if record := self.known.best(workload, self.target.device):
                yield Candidate(record.workload, record.config)


def found_in(networks: Iterable[Network], find: Callable[[Network], Found], *, stage: str) -> Iterator[Found]:
    """What ``find`` gives for each network. One that cannot be made here is left out, with a line."""
    for network in networks:
        try:
            found = find(network)
        except DwconvError as error:
            say(stage, f"{network.name} is left out: {error}")
        else:
            yield found


def as_if_made_here(records: Iterable[TuningRecord], *, torch: str) -> Iterator[TuningRecord]:
    """Records as they count where PyTorch ``torch`` is installed, not that of this machine."""
    here = versions.installed().get("torch", torch)
    for record in records:
        of_torch = {"torch": here} if record.versions.get("torch") == torch else {}
        yield dataclasses.replace(record, versions={**record.versions, **of_torch})
