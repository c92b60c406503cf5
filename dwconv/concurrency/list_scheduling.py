"""List scheduling: whenever something ends, start the ready tasks of the longest way to the end, as far as cores go.

    ready, longest way first        cores
    ┌───┐ ┌───┐ ┌───┐               0 ─ c ─────┐┌ b ───┐      a waits for both cores: until then, what is behind it may
    │ a │ │ b │ │ c │     ──►       1 ─ d ──┐   │      │      start only if it is gone by then, or needs cores that a
    └───┘ └───┘ └───┘               slot    └ e ┘              leaves (backfilling)

Nothing is interrupted. A single worker takes the tasks in the order of the graph. A worker is chosen for each task:
one that need not be handed a result, then one that ran with as many threads before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dwconv.concurrency.schedule import Machine, Placement, ScalingCurve, Task, TaskGraph

Curves = Mapping[int, ScalingCurve]
"""By task, how long it takes."""
Counts = Mapping[int, int]
"""By task, its number of threads."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Which tasks may run beside others."""

    workers: int = 1
    """The most tasks at once, not counting those on extra slots."""
    narrow: bool = False
    """A task may start with fewer threads than requested if it then ends no later than with a wait for all."""
    share: bool = False
    """Ready tasks divide the idle cores among them where all of them so end sooner than one after the other."""
    slots: bool = False
    """Small tasks may run on extra slots, beside one that lasts longer."""


def place(graph: TaskGraph, curves: Curves, wanted: Counts, *, machine: Machine, rules: Rules) -> tuple[Placement, ...]:
    """Every task of ``graph``, in the order of their starts. ``wanted``: threads of each, at most the cores."""
    return _Placing(graph, curves, wanted, machine=machine, rules=rules).placed()


def ways_to_the_end_us(
    graph: TaskGraph, curves: Curves, counts: Counts, *, readers: Mapping[int, Sequence[int]] | None = None
) -> dict[int, float]:
    """By task, the time from its start to the end of the longest chain of tasks that wait for it. ``readers`` saves
    reading them from the graph again."""
    readers = readers or graph.readers()
    ways: dict[int, float] = {}
    for task in reversed(graph.tasks):
        after_us = max((ways[reader] for reader in readers[task.index]), default=0.0)
        ways[task.index] = curves[task.index].median_us[counts[task.index]] + after_us
    return ways


@dataclass(kw_only=True)
class _Running:
    task: int
    worker: int
    threads: int
    start_us: float
    end_us: float
    on_slot: bool = False


@dataclass(kw_only=True)
class _Reservation:
    """What the first task that has to wait will have."""

    start_us: float
    spare: int
    """Cores that it leaves."""


class _Placing:
    """One run of the list scheduler."""

    def __init__(self, graph: TaskGraph, curves: Curves, wanted: Counts, *, machine: Machine, rules: Rules) -> None:
        self._curves, self._wanted = curves, wanted
        self._machine, self._rules = machine, rules
        self._tasks = {task.index: task for task in graph.tasks}
        self._readers = graph.readers()
        self._missing = {task.index: len(set(task.needs)) for task in graph.tasks}
        # One worker keeps the order of the graph: it is the one that memory was planned for.
        self._way_us = (
            ways_to_the_end_us(graph, curves, wanted) if rules.workers > 1 else dict.fromkeys(self._tasks, 0.0)
        )
        self._now_us = 0.0
        self._free = machine.cores
        self._running: list[_Running] = []
        self._ended: dict[int, _Running] = {}
        self._threads_before: dict[int, int] = {}
        self._ready = [task.index for task in graph.tasks if not task.needs]

    def placed(self) -> tuple[Placement, ...]:
        while self._ready or self._running:
            self._start_what_fits()
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
            if not run.on_slot:
                self._free += run.threads
            for reader in set(self._readers[run.task]):
                self._missing[reader] -= 1
                if not self._missing[reader]:
                    self._ready.append(reader)

    def _start_what_fits(self) -> None:
        self._ready.sort(key=lambda task: (-self._way_us[task], task))
        at_most = self._shares() if self._rules.share else {}
        reserved: _Reservation | None = None
        for task in list(self._ready):
            if not self._a_place_is_free():
                break
            threads = self._threads_now(task, reserved, at_most=at_most.get(task, self._machine.cores))
            if threads:
                if reserved and self._now_us + self._time_us(task, threads) > reserved.start_us:
                    reserved.spare -= threads
                self._begin(task, threads)
            elif not self._begin_on_slot(task) and reserved is None:
                reserved = self._reservation(min(self._wanted[task], at_most.get(task, self._machine.cores)))

    def _a_place_is_free(self) -> bool:
        on_cores = sum(not run.on_slot for run in self._running)
        on_slots = len(self._running) - on_cores
        core = self._free > 0 and on_cores < self._rules.workers
        return core or (self._rules.slots and on_slots < self._machine.slots.count)

    # -- with how many threads ------------------------------------------------------------------------------------

    def _shares(self) -> dict[int, int]:
        """The most threads of each ready task, if dividing the idle cores pays; else empty."""
        free, cores = self._free, self._machine.cores
        room = min(len(self._ready), free, self._rules.workers - sum(not run.on_slot for run in self._running))
        best_us, best = 0.0, 1
        for together in range(2, room + 1):
            tasks = self._ready[:together]
            counts = [min(self._wanted[task], free // together) for task in tasks]
            times = [self._time_us(task, count) for task, count in zip(tasks, counts, strict=True)]
            area_us = sum(count * us for count, us in zip(counts, times, strict=True)) / free
            alone_us = sum(self._time_us(task, min(self._wanted[task], cores)) for task in tasks)
            won_us = alone_us - max(area_us, *times) - self._machine.handover_us
            if won_us > best_us:
                best_us, best = won_us, together
        return dict.fromkeys(self._ready[:best], free // best) if best > 1 else {}

    def _threads_now(self, task: int, reserved: _Reservation | None, *, at_most: int) -> int:
        """With how many threads the task starts on the cores now; 0 if it waits."""
        on_cores = sum(not run.on_slot for run in self._running)
        if on_cores >= self._rules.workers or not self._free:
            return 0
        threads = wanted = min(self._wanted[task], at_most)
        if wanted > self._free:
            if not self._rules.narrow:
                return 0
            threads = min(counts_to_try(self._free), key=lambda count: self._time_us(task, count))
            waited_us = self._reservation(wanted).start_us + self._time_us(task, wanted)
            if self._now_us + self._time_us(task, threads) > waited_us:
                return 0
        if reserved is None or threads <= reserved.spare:
            return threads
        ends_us = self._now_us + self._machine.handover_us + self._machine.change_us + self._time_us(task, threads)
        return threads if ends_us <= reserved.start_us else 0

    def _reservation(self, threads: int) -> _Reservation:
        """When that many cores will be free for one more task, if no other starts."""
        free, busy, start_us = self._free, sum(not run.on_slot for run in self._running), self._now_us
        for run in sorted((run for run in self._running if not run.on_slot), key=lambda run: run.end_us):
            if free >= threads and busy < self._rules.workers:
                break
            free, busy, start_us = free + run.threads, busy - 1, run.end_us
        return _Reservation(start_us=start_us, spare=max(0, free - threads))

    def _time_us(self, task: int, threads: int) -> float:
        return self._curves[task].median_us[threads]

    # -- where ----------------------------------------------------------------------------------------------------

    def _begin(self, task: int, threads: int) -> None:
        busy = {run.worker for run in self._running}
        idle = [worker for worker in range(self._rules.workers) if worker not in busy]
        # The first worker keeps the one large team of threads: with more threads than cores, OpenMP's no longer spin.
        is_large = threads > 1 and 2 * threads > self._machine.cores
        if is_large and 0 in idle:
            worker = 0
        else:
            worker = min(
                idle,
                key=lambda each: (
                    self._handed_over_us(self._tasks[task], each) + self._change_us(threads, each), each
                ),
            )  # fmt: skip
        start_us = self._handed_over_us(self._tasks[task], worker)
        took_us = self._change_us(threads, worker) + self._time_us(task, threads)
        self._threads_before[worker] = threads
        self._free -= threads
        self._ready.remove(task)
        self._running.append(
            _Running(task=task, worker=worker, threads=threads, start_us=start_us, end_us=start_us + took_us)
        )

    def _change_us(self, threads: int, worker: int) -> float:
        return self._machine.change_us if self._threads_before.get(worker, threads) != threads else 0.0

    def _handed_over_us(self, task: Task, worker: int) -> float:
        """When the worker can see that the task can start. The first worker begins the step."""
        here_us = 0.0 if worker == 0 or worker in self._threads_before else self._machine.handover_us
        for needed in task.needs:
            run = self._ended[needed]
            here_us = max(here_us, run.end_us + (self._machine.handover_us if run.worker != worker else 0.0))
        return max(self._now_us, here_us)

    def _begin_on_slot(self, task: int) -> bool:
        """Start the task beside the one that lasts longest, if it is small: gone by then, and sooner than it would
        hold that one up."""
        slots = self._machine.slots
        taken = {run.worker for run in self._running if run.on_slot}
        workers = (self._machine.cores + slot for slot in range(slots.count))
        worker = next((worker for worker in workers if worker not in taken), None)
        beside = max((run for run in self._running if not run.on_slot), key=lambda run: run.end_us, default=None)
        if not self._rules.slots or worker is None or beside is None:
            return False
        alone_us = self._time_us(task, 1)
        took_us = alone_us * slots.slowdown
        held_up_us = took_us * (1 - 1 / slots.neighbour_slowdown)
        start_us = self._handed_over_us(self._tasks[task], worker)
        best_us = min(self._curves[task].median_us.values())
        if start_us + took_us > beside.end_us or held_up_us >= best_us:
            return False
        beside.end_us += held_up_us
        self._threads_before[worker] = 1
        self._ready.remove(task)
        self._running.append(
            _Running(task=task, worker=worker, threads=1, start_us=start_us, end_us=start_us + took_us, on_slot=True)
        )
        return True


def always(graph: TaskGraph, threads: int) -> dict[int, int]:
    """The same count for every task."""
    return {task.index: threads for task in graph.tasks}


def counts_to_try(most: int) -> list[int]:
    """Powers of two, and the most."""
    counts = [1]
    while 2 * counts[-1] < most:
        counts.append(2 * counts[-1])
    return counts + [most] * (most > 1)
