"""Planned times: when workers and cores are free while tasks are placed in a given order; and a schedule with the times
that it has by other curves."""

from __future__ import annotations

from dataclasses import replace

from dwconv.concurrency.list_scheduling import Curves
from dwconv.concurrency.task_graph import Machine, Placement, Schedule, Task, TaskGraph


class PlannedTimes:
    """When workers and cores are free, while a plan is gone through in its order."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.placed: dict[int, Placement] = {}
        self.free_us: dict[int, float] = {}
        self._threads: dict[int, int] = {}
        self._running: list[tuple[float, int]] = []
        self._last_us = 0.0

    def ready_us(self, task: Task, worker: int) -> float | None:
        """When ``worker`` is free and can see that the task can start; None if something that it needs comes later."""
        handover_us = self._machine.handover_us
        at_us = self.free_us.get(worker, 0.0 if worker == 0 else handover_us)
        for needed in task.needs:
            if needed not in self.placed:
                return None
            before = self.placed[needed]
            at_us = max(at_us, before.end_us + (handover_us if before.worker != worker else 0.0))
        return at_us

    def with_cores_us(self, threads: int, from_us: float) -> float:
        """When so many cores are free, from that moment on. Tasks on the cores start in the order of the plan."""
        self._last_us = from_us = max(self._last_us, from_us)
        self._running = sorted(run for run in self._running if run[0] > from_us)
        free = self._machine.cores - sum(count for _, count in self._running)
        for end_us, count in self._running:
            if free >= threads:
                break
            free, self._last_us = free + count, end_us
        return self._last_us

    def change_us(self, worker: int, threads: int) -> float:
        return self._machine.change_us if self._threads.get(worker, threads) != threads else 0.0

    def place(self, task: int, worker: int, threads: int, start_us: float, end_us: float) -> None:
        self.placed[task] = Placement(task=task, worker=worker, threads=threads, start_us=start_us, end_us=end_us)
        self.free_us[worker] = max(self.free_us.get(worker, 0.0), end_us)
        self._threads[worker] = threads
        if worker < self._machine.cores:
            self._running.append((end_us, threads))


def retimed(schedule: Schedule, graph: TaskGraph, *, before: Curves, now: Curves, machine: Machine) -> Schedule:
    """``schedule``, whose times are by the curves ``before``, with those by the curves ``now``: each task on its
    worker, as soon as that, its cores and what it needs are there, and by as much longer as its curve is."""
    times = PlannedTimes(machine)
    for each in schedule.in_order:
        ready_us = times.ready_us(graph.tasks[each.task], each.worker)
        assert ready_us is not None, "schedules place a task after what it needs"
        is_on_cores = each.worker < machine.cores
        start_us = times.with_cores_us(each.threads, ready_us) if is_on_cores else ready_us
        longer = now[each.task].median_us[each.threads] / before[each.task].median_us[each.threads]
        took_us = (each.end_us - each.start_us) * longer
        times.place(each.task, each.worker, each.threads, start_us, start_us + took_us)
    return replace(schedule, placements=tuple(times.placed.values()))
