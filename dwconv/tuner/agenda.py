"""Agenda: several workloads to tune, which of them comes first, and how long each may take."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dwconv.dispatch.knowledge import measured_here
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.database import Database

LEAST_S = 2.0
"""A search with less time is not worth its start."""
_USUAL_OVERHEAD_S = 3.0
"""Time that a pass takes beside its search on a quiet machine: preparing, and confirming the finalists."""


def without_searched(workloads: Iterable[Workload], known: Database, target: Target) -> list[Workload]:
    """The workloads whose search has not ended yet: at its end finalists are confirmed. What was only raced is still to
    be searched; what was confirmed with other versions of PyTorch, TVM or the template is to be tuned again."""

    def is_searched(workload: Workload) -> bool:
        found = measured_here(workload, target, current=True, known=known)
        return any(each.workload == workload and each.ends_search for each in found)

    return [workload for workload in workloads if not is_searched(workload)]


@dataclass(frozen=True, kw_only=True)
class Agenda:
    """Workloads in the order in which they are tuned."""

    workloads: list[Workload]
    seconds: float | None
    """Limit for the search of one workload; None is without end."""
    total_s: float | None = None
    """Limit for all workloads together. Each then gets a share of the time left, ``LEAST_S`` at least and ``seconds``
    at most."""
    expected_gains_us: Mapping[Workload, float] = field(default_factory=dict)
    """What there is to win in each workload: its share of the time is in proportion. Even shares where there is
    nothing."""

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
                seconds = self._share_s(position, left_s=left_s, overhead_s=overhead_s)
            before_s = time.monotonic()
            yield workload, seconds
            searched_s += min(time.monotonic() - before_s, seconds or 0.0)

    def _share_s(self, position: int, *, left_s: float, overhead_s: float) -> float:
        """The seconds for the search of a workload, if it and those after it take ``left_s``."""
        expected_gains = [self.expected_gains_us.get(workload, 0.0) for workload in self.workloads[position:]]
        return in_proportion(
            expected_gains, total=left_s - len(expected_gains) * overhead_s, least=LEAST_S, most=self.seconds
        )[0]


def in_proportion(weights: Sequence[float], *, total: float, least: float, most: float | None) -> list[float]:
    """``total`` cut in proportion to ``weights``, but into parts of at least ``least`` and at most ``most``; what these
    take from the others, or leave to them, is shared in proportion too. Even parts if nothing has weight.

    The parts are more than ``total`` if that is too little for all, and less if it is too much."""
    if not any(weights):
        weights = [1.0] * len(weights)

    def parts(rate: float) -> list[float]:
        return [min(max(least, rate * weight), most or math.inf) for weight in weights]

    low, high = 0.0, total / min(weight for weight in weights if weight)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(parts(middle)) < total else (low, middle)
    return parts(high)


_BISECTIONS = 100
