"""Memory: the most that a graph holds at once by a schedule, and how a schedule is kept within a bound.

A result is there from the start of its task until the last task that reads it has ended; what the graph returns stays.
A schedule takes more than plain order where it runs ahead: where tasks wait whose turn it would be, and with them what
they will read. So it is kept within a bound by letting no task run further ahead, or behind, than so many others.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

from dwconv.concurrency.graph.stored import Stored
from dwconv.concurrency.graph.task_graph import TaskGraph
from dwconv.concurrency.scheduling.schedule import Placement, Schedule


def peak_bytes(held: Sequence[Stored], schedule: Schedule) -> int:
    """The most that is held at once."""
    placed = {each.task: each for each in schedule.placements}
    changes: list[tuple[float, int]] = []
    live = 0
    for each in held:
        if each.made_by is None:
            live += each.bytes
        else:
            changes.append((placed[each.made_by].start_us, each.bytes))
        if not each.returned:
            changes.append((max(placed[reader].end_us for reader in each.read_by), -each.bytes))
    peak = live
    for _, change in sorted(changes):  # of one moment, what is freed comes first
        live += change
        peak = max(peak, live)
    return peak


def within(graph: TaskGraph, held: Sequence[Stored], schedule: Schedule, *, most_bytes: int) -> Schedule | None:
    """``schedule``, or one that runs less far ahead, so that it holds at most ``most_bytes``; None if there is none but
    plain order."""
    if peak_bytes(held, schedule) <= most_bytes:
        return schedule
    ahead = len(graph.tasks)
    while ahead:
        ahead //= 2
        nearer = in_step(graph, schedule, ahead=ahead)
        if peak_bytes(held, nearer) <= most_bytes:
            return nearer
    return None


def in_step(graph: TaskGraph, schedule: Schedule, *, ahead: int) -> Schedule:
    """``schedule`` on the same workers, each of which takes its tasks in an order that differs from the graph's by no
    more than ``ahead`` places. Times are counted anew."""
    placed = {each.task: each for each in schedule.placements}
    by_start = sorted(placed, key=lambda task: (placed[task].start_us, task))
    place = {task: min(max(at, task - ahead), task + ahead) for at, task in enumerate(by_start)}
    readers = graph.readers()
    waiting = {task.index: len(task.needs) for task in graph.tasks}
    ready = [(place[task], task) for task, count in waiting.items() if not count]
    heapq.heapify(ready)
    free_us: dict[int, float] = {}
    done: dict[int, Placement] = {}
    before_us = 0.0
    while ready:
        _, task = heapq.heappop(ready)
        each = placed[task]
        needs_us = [done[needed].end_us for needed in graph.tasks[task].needs]
        # A worker takes tasks by their starts: no start may come before that of a task whose turn was earlier.
        start_us = before_us = max([before_us, free_us.get(each.worker, 0.0), *needs_us])
        done[task] = replace(each, start_us=start_us, end_us=start_us + each.end_us - each.start_us)
        free_us[each.worker] = done[task].end_us
        for reader in readers[task]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, (place[reader], reader))
    return replace(schedule, placements=tuple(done.values()))
