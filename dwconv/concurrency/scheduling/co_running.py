"""Strategies S3 and S4: which tasks run beside others, and with how many threads.

List scheduling from several sets of thread counts, the best of which is then improved task by task. Running one task
at a time is among them, so that nothing co-runs where the predicted times say that it does not pay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dwconv.concurrency.graph.task_graph import TaskGraph
from dwconv.concurrency.scheduling.list_scheduling import (
    Counts,
    Curves,
    Rules,
    counts_to_try,
    makespan_us,
    place,
    ways_to_the_end_us,
)
from dwconv.concurrency.scheduling.machine import Machine
from dwconv.concurrency.scheduling.schedule import Placement

_LOOKS = 200
"""Schedules computed to improve the best of the first ones; many for small graphs, few for large ones."""
_MOST_PLACED = 40_000
"""Tasks times cores placed for that in all, so that large graphs and machines take little longer."""
_WORTH_IT = 1e-9
"""A shorter makespan by less than this share is rounding."""


def co_run(
    graph: TaskGraph, curves: Curves, counts: Counts, *, machine: Machine, workers: int, slots: bool
) -> tuple[Placement, ...]:
    """The shortest schedule found in which a task has at most ``counts`` threads and at most ``workers`` tasks run at
    once, besides those on extra slots."""
    found = _Search(graph, curves, counts, machine=machine, workers=workers, slots=slots)
    best = min((found.improved(start) for start in found.starts()), key=lambda tried: tried.us)
    return best.placements


@dataclass(frozen=True, kw_only=True)
class _Tried:
    counts: Counts
    rules: Rules
    placements: tuple[Placement, ...]

    @property
    def us(self) -> float:
        return makespan_us(self.placements)


class _Search:
    def __init__(
        self, graph: TaskGraph, curves: Curves, counts: Counts, *, machine: Machine, workers: int, slots: bool
    ) -> None:
        self._graph, self._curves, self._most = graph, curves, counts
        self._machine, self._workers, self._slots = machine, workers, slots
        self._looks = min(_LOOKS, _MOST_PLACED // max(1, len(graph.tasks) * machine.cores))
        self._readers = graph.readers()

    def starts(self) -> list[_Tried]:
        """One task at a time; and each set of counts to begin with under each rule of starting tasks. The shortest
        first."""
        tried = [self._tried(self._most, Rules()), self._tried(self._most, Rules(slots=self._slots))]
        for counts in (self._most, dict.fromkeys(self._most, 1), self._balanced()):
            for narrow, share in ((False, False), (True, False), (True, True)):
                rules = Rules(workers=self._workers, narrow=narrow, share=share, slots=self._slots)
                tried.append(self._tried(counts, rules))
        return sorted(tried, key=lambda each: each.us)

    def improved(self, best: _Tried) -> _Tried:
        """Give one task another count as long as that makes the step shorter, the longest tasks first. All calls
        together take a bounded number of looks."""
        improving = best.rules.workers > 1
        while improving:
            improving = False
            for task, count in self._moves(best):
                if self._looks <= 0:
                    return best
                self._looks -= 1
                tried = self._tried({**best.counts, task: count}, best.rules)
                if tried.us < best.us * (1 - _WORTH_IT):
                    best, improving = tried, True
        return best

    def _moves(self, best: _Tried) -> Iterator[tuple[int, int]]:
        """A task, and another count for it."""
        took_us = {placement.task: placement.end_us - placement.start_us for placement in best.placements}
        for task in sorted(took_us, key=lambda task: (-took_us[task], task)):
            for count in counts_to_try(self._most[task]):
                if count != best.counts[task]:
                    yield task, count

    def _balanced(self) -> Counts:
        """Counts with which the longest chain takes about as long as all tasks, spread evenly over the cores. Tasks of
        the longest chain are widened one by one, those first that gain most (Radulescu and van Gemund's CPA)."""
        cores = self._machine.cores
        counts = dict.fromkeys(self._most, 1)
        while True:
            ways = ways_to_the_end_us(self._graph, self._curves, counts, readers=self._readers)
            area_us = sum(count * self._us(task, count) for task, count in counts.items()) / cores
            if not ways or max(ways.values()) <= area_us:
                return counts
            wider = {task: self._next_count(task, counts[task]) for task in self._longest_chain(ways)}
            gains = {
                task: self._us(task, counts[task]) / counts[task] - self._us(task, count) / count
                for task, count in wider.items()
                if count and self._us(task, count) < self._us(task, counts[task])
            }
            if not gains:
                return counts
            widened = max(gains, key=lambda task: (gains[task], -task))
            counts[widened] = wider[widened] or 1

    def _longest_chain(self, ways: dict[int, float]) -> list[int]:
        chain: list[int] = []
        following = [task.index for task in self._graph.tasks if not task.needs]
        while following:
            chain.append(max(following, key=lambda task: (ways[task], -task)))
            following = self._readers[chain[-1]]
        return chain

    def _next_count(self, task: int, count: int) -> int | None:
        return next((wider for wider in counts_to_try(self._most[task]) if wider > count), None)

    def _us(self, task: int, count: int) -> float:
        return self._curves[task].median_us[count]

    def _tried(self, counts: Counts, rules: Rules) -> _Tried:
        placed = place(self._graph, self._curves, counts, machine=self._machine, rules=rules)
        return _Tried(counts=counts, rules=rules, placements=placed)
