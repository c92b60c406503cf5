"""Agenda: several workloads to tune, which of them comes first, and how long each may take."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dwconv.records.record import TuningRecord
from dwconv.target import Target
from dwconv.tuner.again import current
from dwconv.workload import Workload

LEAST_S = 2.0
"""A search with less time is not worth its start."""
_USUAL_OVERHEAD_S = 3.0
"""Time that a pass takes beside its search on a quiet machine: preparing, and confirming the finalists."""


def without_confirmed(workloads: Iterable[Workload], records: Iterable[TuningRecord], target: Target) -> list[Workload]:
    """The workloads whose search has not ended yet: at its end finalists are confirmed. What was confirmed with other
    versions of PyTorch, TVM or the template is to be tuned again."""
    here = [record for record in records if record.confirmed and record.device == target.device]
    done = {record.workload for record in current(here)}
    return [workload for workload in workloads if workload not in done]


@dataclass(frozen=True, kw_only=True)
class Agenda:
    """Workloads in the order in which they are tuned."""

    workloads: list[Workload]
    seconds: float | None
    """Limit for the search of one workload; None is without end."""
    total_s: float | None = None
    """Limit for all workloads together; each then gets an even share of the time left, ``seconds`` at most."""

    def __iter__(self) -> Iterator[tuple[Workload, float | None]]:
        """Each workload with the seconds for its search, until the time is up. The others get time that one leaves."""
        started = time.monotonic()
        searched_s = 0.0
        for position, workload in enumerate(self.workloads):
            seconds = self.seconds
            if self.total_s is not None:
                taken_s = time.monotonic() - started
                left_s = self.total_s - taken_s
                overhead_s = (taken_s - searched_s) / position if position else _USUAL_OVERHEAD_S
                if left_s < LEAST_S + min(overhead_s, _USUAL_OVERHEAD_S):  # the first few also start the workers
                    return
                share_s = max(LEAST_S, left_s / (len(self.workloads) - position) - overhead_s)
                seconds = min(share_s, self.seconds or share_s)
            before_s = time.monotonic()
            yield workload, seconds
            searched_s += min(time.monotonic() - before_s, seconds or 0.0)
