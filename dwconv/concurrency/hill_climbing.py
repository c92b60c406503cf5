"""A task's time by its number of threads, and by which cores these are, found by hill climbing: a few timed runs for
each signature.

threads  1   2   4   8   16   32     doubling, until the time has risen twice in a row; all cores are the last
         └───┴───┴───●───×────×
                   6 ● 12            then halfway to the neighbours that were tried, as long as that is faster
spread             × │ ×             then, where cores differ, to another grouping of as many cores, and from there to
compact          4 ● ●               the neighbours again
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from dwconv.concurrency.operator_groups import work_us
from dwconv.concurrency.task_graph import Grouping, ScalingCurve, Task, TaskGraph
from dwconv.concurrency.topology import ALIKE, Topology


class TimeOnThreads(Protocol):
    """Microseconds of a task with that many threads, measured, on cores of a grouping."""

    def __call__(self, task: Task, threads: int, /, *, grouping: Grouping = "") -> float: ...


_RISES = 2
"""The climb ends after this many counts in a row that are slower than the best."""
_CLEARLY, _KEEPING_US = 0.97, 20.0
"""A grouping is faster than what the system does if it takes less than this share of its time, with the microseconds
that it takes to keep a team of threads somewhere and to let it go."""


class HillClimbing:
    """Curves of tasks, by timing a few counts of each signature."""

    def __init__(self, *, cores: int, topology: Topology = ALIKE) -> None:
        self._cores, self._topology = cores, topology
        self.tried_us: dict[str, dict[int, float]] = {}
        """By signature, the counts that were timed."""
        self._groupings: dict[str, dict[int, Grouping]] = {}

    def curve(self, task: Task, timed: TimeOnThreads) -> ScalingCurve:
        """The time of ``task`` for 1 to all cores. Calls ``timed`` only for a signature that is new."""
        if task.signature not in self.tried_us:
            tried = _climb(lambda threads: timed(task, threads), cores=self._cores)
            self.tried_us[task.signature] = tried
            self._groupings[task.signature] = _grouped(
                lambda threads, grouping: timed(task, threads, grouping=grouping), tried, topology=self._topology
            )
        curve = interpolated(self.tried_us[task.signature], cores=self._cores)
        return replace(curve, groupings=self._groupings[task.signature])


def _climb(timed: Callable[[int], float], *, cores: int) -> dict[int, float]:
    tried = _doubled(timed, cores=cores)
    rises = 0
    while rises < _RISES:
        best = min(sorted(tried), key=tried.__getitem__)
        counts = [count for count in _halfway_to_neighbours(best, tried) if count not in tried]
        if not counts:
            break
        for count in counts:
            tried[count] = timed(count)
            rises = 0 if tried[count] < tried[best] else rises + 1
            if rises == _RISES:
                break
    return tried


def _doubled(timed: Callable[[int], float], *, cores: int) -> dict[int, float]:
    tried: dict[int, float] = {}
    rises, count = 0, 1
    while rises < _RISES:
        tried[count] = timed(count)
        rises = rises + 1 if tried[count] > min(tried.values()) else 0
        if count == cores:
            break
        count = min(2 * count, cores)
    return tried


def _grouped(
    timed: Callable[[int, Grouping], float], tried: dict[int, float], *, topology: Topology
) -> dict[int, Grouping]:
    """Climb on from the best count that was ``tried``, over the groupings of its cores, then over the counts beside it
    in the best of these, until nothing is faster. By count, the grouping that is faster than what the system does;
    ``tried`` then has its time."""
    found: dict[int, Grouping] = {}
    looked: set[tuple[int, Grouping]] = set()

    def look(count: int, grouping: Grouping) -> None:
        if (count, grouping) not in looked and grouping in topology.groupings(count):
            looked.add((count, grouping))
            us = timed(count, grouping) + _KEEPING_US
            if us < tried[count] * (1.0 if count in found else _CLEARLY):
                tried[count], found[count] = us, grouping

    while True:
        best = min(sorted(tried), key=tried.__getitem__)
        for grouping in topology.groupings(best):
            look(best, grouping)
        if best in found:
            for count in _beside(best, tried):
                look(count, found[best])
        if tried[best] == min(tried.values()):
            return found


def _halfway_to_neighbours(best: int, tried: dict[int, float]) -> list[int]:
    """The counts in the middle between the best and the nearest ones tried on either side."""
    below, above = _beside(best, tried)
    return sorted({(below + best) // 2, (best + above + 1) // 2} - {best})


def _beside(best: int, tried: dict[int, float]) -> tuple[int, int]:
    """The nearest counts tried below and above; the best one itself where there is none."""
    below = max((count for count in tried if count < best), default=best)
    return below, min((count for count in tried if count > best), default=best)


# -- a whole curve from the times of a few counts ----------------------------------------------------------------------


def interpolated(tried_us: Mapping[int, float], *, cores: int) -> ScalingCurve:
    """The curve through ``tried_us`` for 1 to ``cores`` threads.

    Between two counts the time is a line over 1/threads, which is exact where a part of the work is serial and the rest
    is divided evenly (Amdahl). Beyond the last count the line through the last two goes on over the threads, but never
    downwards: trying ended there because time did not fall any more."""
    counts = sorted(tried_us)
    last = counts[-1]
    slope_us = 0.0
    if len(counts) > 1:
        slope_us = max(0.0, (tried_us[last] - tried_us[counts[-2]]) / (last - counts[-2]))
    known = [1 / count for count in reversed(counts)]
    within_us = np.interp(
        [1 / count for count in range(1, cores + 1)], known, [tried_us[each] for each in counts[::-1]]
    )
    return ScalingCurve(
        median_us={
            count: float(us) + slope_us * max(0, count - last) for count, us in enumerate(within_us, start=1)
        }
    )  # fmt: skip


# -- from work alone: where nothing is timed, or the time is over ------------------------------------------------------


def estimated_us(task: Task, threads: int) -> float:
    """Microseconds of ``task`` with that many threads, as if its work could be divided at will."""
    return work_us(flops=task.flops, bytes=task.bytes, threads=threads)


def estimated_curves(graph: TaskGraph, *, cores: int) -> dict[int, ScalingCurve]:
    """By task, its time for 1 to all cores."""
    return {
        task.index: ScalingCurve(median_us={count: estimated_us(task, count) for count in range(1, cores + 1)})
        for task in graph.tasks
    }
