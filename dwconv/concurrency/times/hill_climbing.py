"""A task's time by its number of threads, found by hill climbing: a few timed runs for each signature.

threads  1   2   4   8   16   32     doubling, until the time has risen twice in a row; all cores are the last
         └───┴───┴───●───×────×
                   6 ● 12            then halfway to the neighbours that were tried, as long as that is faster
"""

from __future__ import annotations

from collections.abc import Callable

from dwconv.concurrency.graph.task_graph import ScalingCurve, Task
from dwconv.concurrency.times.interpolation import interpolated

Timed = Callable[[Task, int], float]
"""Microseconds of a task with so many threads, measured."""

_RISES = 2
"""So many counts in a row that are slower than the best end the climb."""


class HillClimbing:
    """Curves of tasks, by timing a few counts of each signature."""

    def __init__(self, *, cores: int) -> None:
        self._cores = cores
        self.tried_us: dict[str, dict[int, float]] = {}
        """By signature, the counts that were timed."""

    def curve(self, task: Task, timed: Timed) -> ScalingCurve:
        """The time of ``task`` for 1 to all cores. Calls ``timed`` only for a signature that is new."""
        if task.signature not in self.tried_us:
            self.tried_us[task.signature] = _climb(lambda threads: timed(task, threads), cores=self._cores)
        return interpolated(self.tried_us[task.signature], cores=self._cores)

    @property
    def runs(self) -> int:
        """How many times ``timed`` was called."""
        return sum(len(tried) for tried in self.tried_us.values())


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


def _halfway_to_neighbours(best: int, tried: dict[int, float]) -> list[int]:
    """The counts in the middle between the best and the nearest ones tried on either side."""
    below = max((count for count in tried if count < best), default=best)
    above = min((count for count in tried if count > best), default=best)
    return sorted({(below + best) // 2, (best + above + 1) // 2} - {best})
