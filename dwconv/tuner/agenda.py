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
        """Each workload with the seconds for its search on one machine, until the time is up. The others get time that
        one leaves."""
        sharing, here = Sharing(self), "here"
        sharing.join(here)
        while (given := sharing.next(here)) is not None:
            yield given
            sharing.ended(here)


class Sharing:
    """Hands the workloads of an agenda out to machines that tune side by side, as each of them is free. The time
    of the agenda is the time of the wall clock, from now on: each machine has that much."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._left = list(agenda.workloads)
        self._started_s = time.monotonic()
        self._free_s: dict[object, float] = {}
        """When each machine is expected to be free; a moment of the past if it has nothing to do."""
        self._given: dict[object, tuple[float, float]] = {}
        """When each machine that searches began, and the seconds for its search."""
        self._ended = 0
        self._overheads_s = 0.0

    @property
    def left(self) -> int:
        """Workloads that are not handed out yet."""
        return len(self._left)

    def join(self, machine: object) -> None:
        """``machine`` takes part from now on; its time counts when time is shared."""
        self._free_s[machine] = time.monotonic()

    def leave(self, machine: object) -> None:
        """``machine`` takes part no more."""
        self._free_s.pop(machine, None)
        self._given.pop(machine, None)

    def back(self, workload: Workload) -> None:
        """``workload`` was given, but not tuned: it is the next one."""
        self._left.insert(0, workload)

    def next(self, machine: object) -> tuple[Workload, float | None] | None:
        """The workload for ``machine``, and the seconds for its search; None if there is nothing left, or no time."""
        if not self._left:
            return None
        seconds = self._agenda.seconds
        if self._agenda.total_s is not None:
            now_s, until_s = time.monotonic(), self._started_s + self._agenda.total_s
            overhead_s = self._overheads_s / self._ended if self._ended else _USUAL_OVERHEAD_S
            left_s = until_s - now_s
            if left_s < LEAST_S + min(overhead_s, _USUAL_OVERHEAD_S):  # the first few also start the workers
                return None
            all_left_s = sum(max(0.0, until_s - max(now_s, free_s)) for free_s in self._free_s.values())
            seconds = min(self._share_s(left_s=all_left_s, overhead_s=overhead_s), max(LEAST_S, left_s - overhead_s))
            self._free_s[machine] = now_s + seconds + overhead_s
        self._given[machine] = time.monotonic(), seconds or 0.0
        return self._left.pop(0), seconds

    def ended(self, machine: object) -> None:
        """The search of ``machine`` has ended."""
        now_s = time.monotonic()
        began_s, seconds = self._given.pop(machine)
        self._ended += 1
        self._overheads_s += now_s - began_s - min(now_s - began_s, seconds)
        self._free_s[machine] = now_s

    def _share_s(self, *, left_s: float, overhead_s: float) -> float:
        """The seconds for the search of the next workload, if it and those after it take ``left_s``."""
        expected_gains = [self._agenda.expected_gains_us.get(workload, 0.0) for workload in self._left]
        return in_proportion(
            expected_gains, total=left_s - len(expected_gains) * overhead_s, least=LEAST_S, most=self._agenda.seconds
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
