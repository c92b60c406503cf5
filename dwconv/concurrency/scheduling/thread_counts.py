"""How many threads each task gets when tasks run one after the other: strategies S1 and S2.

A change of the count from one task to the next costs time, so the counts of a whole step are chosen together.
"""

from __future__ import annotations

from collections.abc import Mapping

from dwconv.concurrency.graph.task_graph import TaskGraph
from dwconv.concurrency.scheduling.list_scheduling import Curves


def own_best(graph: TaskGraph, curves: Curves, *, change_us: float) -> dict[int, int]:
    """S1: each task its own best count, where what that wins pays for the change from the task before and to the one
    after. Exact for tasks in the order of the graph, by dynamic programming over their counts."""
    if not graph.tasks:
        return {}
    by_count: dict[int, float] = {}
    before: list[dict[int, int]] = []
    for task in graph.tasks:
        least = min(sorted(by_count), key=by_count.__getitem__) if by_count else None
        total_us, came_from = {}, {}
        for count, us in sorted(curves[task.index].median_us.items()):
            stayed_us = by_count.get(count, 0.0 if least is None else float("inf"))
            changed_us = float("inf") if least is None else by_count[least] + change_us
            came_from[count] = count if least is None or stayed_us <= changed_us else least
            total_us[count] = us + min(stayed_us, changed_us)
        by_count = total_us
        before.append(came_from)
    count = min(sorted(by_count), key=by_count.__getitem__)
    counts: dict[int, int] = {}
    for task, came_from in zip(reversed(graph.tasks), reversed(before), strict=True):
        counts[task.index] = count
        count = came_from[count]
    return counts


def shared_by_kind(graph: TaskGraph, curves: Curves) -> dict[int, int]:
    """S2: the best count of the largest instance of each kind, the one that takes longest on one thread."""
    largest: dict[str, int] = {}
    for task in graph.tasks:
        known = largest.setdefault(task.kind, task.index)
        if curves[task.index].median_us[1] > curves[known].median_us[1]:
            largest[task.kind] = task.index
    return {task.index: curves[largest[task.kind]].best_threads() for task in graph.tasks}


def own_or_shared(graph: TaskGraph, curves: Curves, *, change_us: float) -> dict[int, int]:
    """S1 and S2: kinds share a count, except those whose tasks, each with its own best, make the step shorter."""
    own, counts = own_best(graph, curves, change_us=change_us), shared_by_kind(graph, curves)
    by_kind: dict[str, list[int]] = {}
    for task in graph.tasks:
        by_kind.setdefault(task.kind, []).append(task.index)
    least_us = one_after_the_other_us(graph, curves, counts, change_us=change_us)
    for tasks in by_kind.values():
        tried = {**counts, **{task: own[task] for task in tasks}}
        tried_us = one_after_the_other_us(graph, curves, tried, change_us=change_us)
        if tried_us < least_us:
            counts, least_us = tried, tried_us
    own_us = one_after_the_other_us(graph, curves, own, change_us=change_us)
    return own if own_us < least_us else counts


def one_after_the_other_us(graph: TaskGraph, curves: Curves, counts: Mapping[int, int], *, change_us: float) -> float:
    """The time of all tasks in the order of the graph, with ``change_us`` wherever the count changes."""
    total_us, before = 0.0, None
    for task in graph.tasks:
        count = counts[task.index]
        total_us += curves[task.index].median_us[count] + (change_us if before not in (None, count) else 0.0)
        before = count
    return total_us
