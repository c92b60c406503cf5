"""Memory: what the results of tasks take at most while a schedule runs, and how a schedule is kept within a bound.

A task's results are there from its start until the last task that reads them has ended. What the graph is given and
what it returns is the same for every schedule, and not counted.
"""

from __future__ import annotations

from dataclasses import replace

from dwconv.concurrency.schedule import Placement, Schedule
from dwconv.concurrency.task_graph import TaskGraph


def peak_bytes(graph: TaskGraph, schedule: Schedule) -> int:
    """The most that results take at once."""
    return _peak(graph, {each.task: each for each in schedule.placements})[0]


def within(graph: TaskGraph, schedule: Schedule, *, most_bytes: int) -> Schedule | None:
    """``schedule``, or one that runs fewer tasks side by side, so that its peak is at most ``most_bytes``; None if only
    one task at a time, in the order of the graph, needs so little."""
    while True:
        placed = {each.task: each for each in schedule.placements}
        peak, at_us = _peak(graph, placed)
        if peak <= most_bytes:
            return schedule
        beside = [
            each for each in schedule.placements if each.worker and each.start_us <= at_us and not _over(each, at_us)
        ] or [each for each in schedule.placements if each.worker and each.start_us <= at_us][-1:]
        if not beside:
            return None
        moved = {each.task for each in beside}
        schedule = _one_after_the_other(graph, schedule, moved)


def _over(each: Placement, at_us: float) -> bool:
    return each.end_us <= at_us


def _peak(graph: TaskGraph, placed: dict[int, Placement]) -> tuple[int, float]:
    """The most bytes at once, and when."""
    readers = graph.readers()
    changes: list[tuple[float, int]] = []
    for task in graph.tasks:
        if task.result_bytes:
            freed_us = max((placed[reader].end_us for reader in readers[task.index]), default=placed[task.index].end_us)
            changes += [(placed[task.index].start_us, task.result_bytes), (freed_us, -task.result_bytes)]
    live = peak = 0
    at_us = 0.0
    for us, change in sorted(changes):  # of one moment, what is freed comes first
        live += change
        if live > peak:
            peak, at_us = live, us
    return peak, at_us


def _one_after_the_other(graph: TaskGraph, schedule: Schedule, moved: set[int]) -> Schedule:
    """``schedule`` with some tasks moved to the first worker. Times are counted anew: every worker runs its tasks in
    the order of their starts so far, those that were moved as early as the graph has them."""
    starts = {each.task: each.start_us for each in schedule.placements}
    placements = [replace(each, worker=0) if each.task in moved else each for each in schedule.placements]
    order = sorted(placements, key=lambda each: (starts[each.task], each.task))
    free_us: dict[int, float] = {}
    ended_us: dict[int, float] = {}
    placed = []
    for each in order:
        needs_us = [ended_us[needed] for needed in graph.tasks[each.task].needs]
        start_us = max([free_us.get(each.worker, 0.0), *needs_us])
        end_us = start_us + each.end_us - each.start_us
        free_us[each.worker] = ended_us[each.task] = end_us
        placed.append(replace(each, start_us=start_us, end_us=end_us))
    return replace(schedule, placements=tuple(placed))
