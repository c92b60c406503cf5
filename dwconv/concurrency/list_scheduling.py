"""List scheduling: whenever something ends, start the ready tasks of the longest way to the end, as far as cores go.

    ready, longest way first        cores
    ┌───┐ ┌───┐ ┌───┐               0 ─ c ─────┐┌ b ───      b waits for both cores; d may start meanwhile
    │ c │ │ b │ │ d │     ──►       1 ─ d ───┐  │
    └───┘ └───┘ └───┘                        └──┘

Nothing is interrupted. Where results may take only so much memory, a task waits whose results would take more, unless
nothing runs: then the first one of the graph starts. A worker is chosen for each task: one that need not be handed a
result, then one that ran with as many threads before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dwconv.concurrency.task_graph import Machine, Placement, Room, ScalingCurve, Stored, TaskGraph

Curves = Mapping[int, ScalingCurve]
"""By task, how long it takes."""
Counts = Mapping[int, int]
"""By task, its number of threads."""


def one_after_the_other(graph: TaskGraph, curves: Curves, counts: Counts, *, machine: Machine) -> tuple[Placement, ...]:
    """Every task on the first worker, in the order of the graph: it is the one that memory was planned for."""
    at_us, before = 0.0, None
    placements = []
    for task in graph.tasks:
        threads = counts[task.index]
        end_us = at_us + curves[task.index].median_us[threads] + machine.change_us * (before not in (None, threads))
        placements.append(Placement(task=task.index, worker=0, threads=threads, start_us=at_us, end_us=end_us))
        at_us, before = end_us, threads
    return tuple(placements)


def side_by_side(
    graph: TaskGraph, curves: Curves, counts: Counts, *, machine: Machine, workers: int, room: Room | None = None
) -> tuple[Placement, ...]:
    """Every task, at most ``workers`` at once, in the order of their starts. A task starts with fewer threads than
    ``counts`` says if it then ends no later than with a wait for all. Without ``room`` memory does not count."""
    return _Placing(graph, curves, counts, machine=machine, workers=workers, room=room).placed()


def ways_to_the_end_us(
    graph: TaskGraph, curves: Curves, counts: Counts, *, readers: Mapping[int, Sequence[int]]
) -> dict[int, float]:
    """By task, the time from its start to the end of the longest chain of tasks that wait for it."""
    ways: dict[int, float] = {}
    for task in reversed(graph.tasks):
        after_us = max((ways[reader] for reader in readers[task.index]), default=0.0)
        ways[task.index] = curves[task.index].median_us[counts[task.index]] + after_us
    return ways


def counts_to_try(most: int) -> list[int]:
    """Powers of two, and the most."""
    counts = [1]
    while 2 * counts[-1] < most:
        counts.append(2 * counts[-1])
    return counts + [most] * (most > 1)


@dataclass(frozen=True, kw_only=True)
class _Running:
    task: int
    worker: int
    threads: int
    start_us: float
    end_us: float


class _Memory:
    """What results take while tasks begin and end."""

    def __init__(self, room: Room) -> None:
        self._most, self._live = room.most_bytes, sum(each.bytes for each in room.held if each.made_by is None)
        self._makes: dict[int, int] = {}
        self._read: dict[int, list[tuple[Stored, set[int]]]] = {}
        for each in room.held:
            if each.made_by is not None:
                self._makes[each.made_by] = self._makes.get(each.made_by, 0) + each.bytes
            if not each.returned:
                readers = set(each.read_by)
                for reader in each.read_by:
                    self._read.setdefault(reader, []).append((each, readers))

    def has_room_for(self, task: int) -> bool:
        return self._live + self._makes.get(task, 0) <= self._most

    def begin(self, task: int) -> None:
        self._live += self._makes.get(task, 0)

    def end(self, task: int) -> None:
        for stored, readers in self._read.get(task, ()):
            readers.discard(task)
            self._live -= stored.bytes * (not readers)


class _Placing:
    """One run of the list scheduler."""

    def __init__(
        self, graph: TaskGraph, curves: Curves, counts: Counts, *, machine: Machine, workers: int, room: Room | None
    ) -> None:
        self._curves, self._counts, self._machine, self._workers = curves, counts, machine, workers
        self._memory = _Memory(room) if room else None
        self._tasks = {task.index: task for task in graph.tasks}
        self._readers = graph.readers()
        self._missing = {task.index: len(task.needs) for task in graph.tasks}
        self._way_us = ways_to_the_end_us(graph, curves, counts, readers=self._readers)
        self._now_us = 0.0
        self._free = machine.cores
        self._running: list[_Running] = []
        self._ended: dict[int, _Running] = {}
        self._threads_before: dict[int, int] = {}
        self._ready = [task.index for task in graph.tasks if not task.needs]

    def placed(self) -> tuple[Placement, ...]:
        while self._ready or self._running:
            self._ready.sort(key=lambda task: (-self._way_us[task], task))
            for task in list(self._ready):
                if self._memory is None or self._memory.has_room_for(task):
                    threads = self._threads_now(task)
                    if threads:
                        self._begin(task, threads)
            if not self._running:  # nothing that ends frees memory
                first = min(self._ready)
                self._begin(first, self._threads_now(first))
            self._end_the_next()
        ended = sorted(self._ended.values(), key=lambda run: (run.start_us, run.task))
        return tuple(
            Placement(
                task=run.task, worker=run.worker, threads=run.threads, start_us=run.start_us, end_us=run.end_us
            )
            for run in ended
        )  # fmt: skip

    def _end_the_next(self) -> None:
        self._now_us = min(run.end_us for run in self._running)
        for run in [run for run in self._running if run.end_us <= self._now_us]:
            self._running.remove(run)
            self._ended[run.task] = run
            self._free += run.threads
            if self._memory is not None:
                self._memory.end(run.task)
            for reader in self._readers[run.task]:
                self._missing[reader] -= 1
                if not self._missing[reader]:
                    self._ready.append(reader)

    # -- with how many threads ------------------------------------------------------------------------------------

    def _threads_now(self, task: int) -> int:
        """With how many threads the task starts now; 0 if it waits."""
        if len(self._running) >= self._workers or not self._free:
            return 0
        wanted = self._counts[task]
        if wanted <= self._free:
            return wanted
        threads = min(counts_to_try(self._free), key=lambda count: self._time_us(task, count))
        waited_us = self._free_us(wanted) + self._time_us(task, wanted)
        return threads if self._now_us + self._time_us(task, threads) <= waited_us else 0

    def _free_us(self, threads: int) -> float:
        """When that many cores will be free, if no other task starts."""
        free, at_us = self._free, self._now_us
        for run in sorted(self._running, key=lambda run: run.end_us):
            if free >= threads:
                break
            free, at_us = free + run.threads, run.end_us
        return at_us

    def _time_us(self, task: int, threads: int) -> float:
        return self._curves[task].median_us[threads]

    # -- where ----------------------------------------------------------------------------------------------------

    def _begin(self, task: int, threads: int) -> None:
        busy = {run.worker for run in self._running}
        idle = [worker for worker in range(self._workers) if worker not in busy]
        # The first worker keeps the one large team of threads: with more threads than cores, OpenMP's no longer spin.
        if threads > 1 and 2 * threads > self._machine.cores and 0 in idle:
            idle = [0]
        worker = min(idle, key=lambda each: (self._handed_us(task, each) + self._change_us(threads, each), each))
        start_us = self._handed_us(task, worker)
        end_us = start_us + self._change_us(threads, worker) + self._time_us(task, threads)
        self._threads_before[worker] = threads
        self._free -= threads
        if self._memory is not None:
            self._memory.begin(task)
        self._ready.remove(task)
        run = _Running(task=task, worker=worker, threads=threads, start_us=start_us, end_us=end_us)
        self._running.append(run)

    def _change_us(self, threads: int, worker: int) -> float:
        return self._machine.change_us if self._threads_before.get(worker, threads) != threads else 0.0

    def _handed_us(self, task: int, worker: int) -> float:
        """When the worker can see that the task can start. The first worker begins the step."""
        here_us = 0.0 if worker == 0 or worker in self._threads_before else self._machine.handover_us
        for needed in self._tasks[task].needs:
            run = self._ended[needed]
            here_us = max(here_us, run.end_us + (self._machine.handover_us if run.worker != worker else 0.0))
        return max(self._now_us, here_us)
