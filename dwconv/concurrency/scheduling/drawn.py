"""Schedules drawn by chance, to show that any of them gives the same results."""

from __future__ import annotations

import random

from dwconv.concurrency.graph.task_graph import TaskGraph
from dwconv.concurrency.scheduling.schedule import Placement, Schedule

_FEWEST_US, _MOST_US = 1.0, 100.0


def drawn(graph: TaskGraph, *, cores: int, workers: int, seed: str) -> Schedule:
    """Every task on any of ``workers`` workers with any number of threads, as soon as that worker and what the task
    needs are ready, in any order in which the tasks can run. The same seed draws the same."""
    draw = random.Random(seed)
    readers = graph.readers()
    missing = {task.index: len(set(task.needs)) for task in graph.tasks}
    ready = [task for task, count in missing.items() if not count]
    free_us = [0.0] * workers
    ended_us: dict[int, float] = {}
    placements = []
    while ready:
        task = graph.tasks[ready.pop(draw.randrange(len(ready)))]
        worker = draw.randrange(workers)
        start_us = max([free_us[worker], *(ended_us[needed] for needed in task.needs)])
        end_us = start_us + draw.uniform(_FEWEST_US, _MOST_US)
        free_us[worker] = ended_us[task.index] = end_us
        placements.append(
            Placement(
                task=task.index, worker=worker, threads=draw.randint(1, cores), start_us=start_us, end_us=end_us
            )
        )  # fmt: skip
        for reader in set(readers[task.index]):
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    return Schedule(strategies=(), cores=cores, placements=tuple(placements))
