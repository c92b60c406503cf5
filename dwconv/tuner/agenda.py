"""Agenda: several workloads to tune, which of them comes first, and how long each may take."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

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


class Agenda:
    """Hands ``workloads`` out, in their order, to machines that tune side by side, as each is free. ``seconds``:
    the most for the search of one; None is without end. ``total_s``: for all of them together, on the clock of the
    wall, from now on; each then gets ``LEAST_S``, and of the rest a share in proportion to what there is to win."""

    def __init__(
        self,
        workloads: Sequence[Workload],
        *,
        seconds: float | None,
        total_s: float | None = None,
        expected_gains_us: Mapping[Workload, float] | None = None,
    ) -> None:
        self.workloads = workloads
        self._left = list(workloads)
        self._seconds, self._total_s = seconds, total_s
        self._gains_us = expected_gains_us or {}
        self._started_s = time.monotonic()
        self._free_s: dict[object, float] = {}
        """When each machine is expected to be free; a moment of the past if it has nothing to do."""
        self._given: dict[object, tuple[float, float]] = {}
        """When each machine that searches began, and the seconds for its search."""
        self._ended = 0
        self._overheads_s = 0.0

    def __iter__(self) -> Iterator[tuple[Workload, float | None]]:
        """Each workload with the seconds for its search on one machine, until the time is up."""
        here = "here"
        self.join(here)
        while (given := self.next(here)) is not None:
            yield given
            self.ended(here)

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
        now_s, seconds = time.monotonic(), self._seconds
        if self._total_s is not None:
            until_s = self._started_s + self._total_s
            overhead_s = self._overheads_s / self._ended if self._ended else _USUAL_OVERHEAD_S
            left_s = until_s - now_s
            if left_s < LEAST_S + min(overhead_s, _USUAL_OVERHEAD_S):  # the first few also start the workers
                return None
            all_left_s = sum(max(0.0, until_s - max(now_s, free_s)) for free_s in self._free_s.values())
            seconds = min(self._share_s(left_s=all_left_s, overhead_s=overhead_s), max(LEAST_S, left_s - overhead_s))
            self._free_s[machine] = now_s + seconds + overhead_s
        self._given[machine] = now_s, seconds or 0.0
        return self._left.pop(0), seconds

    def ended(self, machine: object) -> None:
        """The search of ``machine`` has ended."""
        now_s = time.monotonic()
        began_s, seconds = self._given.pop(machine)
        self._ended += 1
        self._overheads_s += max(0.0, now_s - began_s - seconds)
        self._free_s[machine] = now_s

    def _share_s(self, *, left_s: float, overhead_s: float) -> float:
        """The seconds for the search of the next workload, if it and those after it take ``left_s``."""
        gains_us = [self._gains_us.get(workload, 0.0) for workload in self._left]
        share = gains_us[0] / sum(gains_us) if any(gains_us) else 1 / len(gains_us)
        rest_s = max(0.0, left_s - len(gains_us) * (overhead_s + LEAST_S))
        return min(LEAST_S + share * rest_s, self._seconds or math.inf)
