"""Roughly how long tasks take, from their work alone: where nothing is to be timed, or the time for that is over."""

from __future__ import annotations

from dwconv.concurrency.graph.cutting import work_us
from dwconv.concurrency.graph.task_graph import ScalingCurve, Task, TaskGraph


def estimated_us(task: Task, threads: int) -> float:
    """Microseconds of ``task`` with so many threads, as if its work could be divided at will."""
    return work_us(flops=task.flops, bytes=task.bytes, threads=threads)


def estimated_curves(graph: TaskGraph, *, cores: int) -> dict[int, ScalingCurve]:
    """By task, its time for 1 to all cores."""
    return {
        task.index: ScalingCurve(median_us={count: estimated_us(task, count) for count in range(1, cores + 1)})
        for task in graph.tasks
    }
