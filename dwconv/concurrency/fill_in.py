"""Fill-in (S4): small tasks move beside large ones, onto what those leave of the cores.

    cores  ├──────── conv ────────┤├ add ┤├─ mm ─┤    ──►    cores  ├───────── conv ────────┤├─ mm ─┤
    extra                                                    extra      ├─ add ─┤

- With extra slots (second hardware threads, one more stream), a small task runs there on one thread, beside a task that
  ends no earlier. Both take longer, as was measured.
- Without them a task bound by memory leaves a core idle, if it is hardly slower for that. A small task that moves
  little memory runs on that core.

A move is kept if the step becomes shorter by the predicted times. All are dropped if that wins less than the times can
be trusted to show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dwconv.concurrency.list_scheduling import Curves
from dwconv.concurrency.operator_groups import bound_by_memory
from dwconv.concurrency.planned_times import PlannedTimes
from dwconv.concurrency.task_graph import Machine, Placement, TaskGraph, makespan_us

_HARDLY_SLOWER = 1.1
"""A task bound by memory may take so many times as long with a core less."""
_LIGHT = 0.5
"""A task beside it moves at most this share of what it moves in the same time."""
_NEIGHBOURS = 4
"""Places tried for a small task, the longest ones first."""
_MOST_TIMED = 30_000
"""Tasks times tries, so that large graphs take little longer."""
_WORTH_IT = 1e-9
_LEAST_GAIN = 0.01
"""A step that is shorter by less may well take longer: moves have costs that predicted times lack."""


def filled(
    graph: TaskGraph, curves: Curves, placements: tuple[Placement, ...], *, machine: Machine, workers: int
) -> tuple[Placement, ...]:
    """``placements`` with small tasks beside large ones; as they are if nothing is won. ``workers``: the most tasks at
    once, not counting those on extra slots."""
    if not machine.slots.count and workers < 2:
        return placements
    found = _Filling(graph, curves, placements, machine=machine, workers=workers).shortest()
    return found if makespan_us(found) < (1 - _LEAST_GAIN) * makespan_us(placements) else placements


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """Where tasks run. Tasks of ``order`` are on the cores; ``beside`` names the small ones and their neighbours."""

    order: tuple[int, ...]
    threads: Mapping[int, int]
    beside: Mapping[int, int]


class _Filling:
    def __init__(
        self, graph: TaskGraph, curves: Curves, placements: tuple[Placement, ...], *, machine: Machine, workers: int
    ) -> None:
        self._curves, self._machine, self._workers = curves, machine, workers
        self._tasks = {task.index: task for task in graph.tasks}
        self._given = placements
        in_order = sorted(placements, key=lambda each: (each.start_us, each.task))
        self._worker = {each.task: each.worker for each in placements}
        self._first = _Plan(
            order=tuple(each.task for each in in_order),
            threads={each.task: each.threads for each in placements},
            beside={},
        )
        self._tries = _MOST_TIMED // max(1, len(placements))

    def shortest(self) -> tuple[Placement, ...]:
        best, plan = self._given, self._first
        best_us = makespan_us(best)
        for small in sorted(plan.order, key=lambda task: (-self._alone_us(task), task)):
            for tried in self._moves(plan, small):
                if self._tries <= 0:
                    return best
                self._tries -= 1
                placed = self._timed(tried)
                if placed is not None and makespan_us(placed) < best_us * (1 - _WORTH_IT):
                    best, best_us, plan = placed, makespan_us(placed), tried
                    break
        return best

    def _moves(self, plan: _Plan, small: int) -> Iterator[_Plan]:
        """``small`` beside a task that lasts longer and neither waits for it nor is waited for directly."""
        if small in plan.beside.values():
            return
        order = tuple(task for task in plan.order if task != small)
        fitting = []
        for large in order:
            if small in self._tasks[large].needs or large in self._tasks[small].needs:
                continue
            threads = self._threads_beside(large, small, plan.threads[large])
            if threads and self._beside_us(small) <= self._us(large, threads):
                fitting.append((large, threads))
        fitting.sort(key=lambda found: (-self._us(*found), found[0]))
        for large, threads in fitting[:_NEIGHBOURS]:
            yield replace(
                plan,
                order=order,
                threads={**plan.threads, small: 1, large: threads},
                beside={**plan.beside, small: large},
            )

    def _threads_beside(self, large: int, small: int, threads: int) -> int:
        """With how many threads ``large`` runs beside ``small``; 0 if it leaves no place."""
        if self._machine.slots.count:
            return threads
        fewer = min(threads, self._machine.cores - 1)
        flops, moved_bytes = self._tasks[large].flops, self._tasks[large].bytes
        if fewer < 1 or not bound_by_memory(flops=flops, bytes=moved_bytes):
            return 0
        if self._us(large, fewer) > _HARDLY_SLOWER * self._us(large, threads):
            return 0
        is_light = self._bytes_per_us(small, 1) <= _LIGHT * self._bytes_per_us(large, fewer)
        return fewer if is_light else 0

    # -- the times of a plan ----------------------------------------------------------------------------------------

    def _timed(self, plan: _Plan) -> tuple[Placement, ...] | None:
        """When every task runs; None if a task would run before what it needs, or outlast its neighbour."""
        guests: dict[int, list[int]] = {}
        for small, large in plan.beside.items():
            guests.setdefault(large, []).append(small)
        now = PlannedTimes(self._machine)
        for task in plan.order:
            threads, mine = plan.threads[task], guests.get(task, [])
            ready_us = now.ready_us(self._tasks[task], self._worker[task])
            if ready_us is None:
                return None
            on_cores = 1 if mine and not self._machine.slots.count else 0
            start_us = now.with_cores_us(threads + on_cores, ready_us)
            end_us = start_us + now.change_us(self._worker[task], threads) + self._us(task, threads)
            place = self._place_beside(now, host=task)
            for small in mine:
                held_up_us = self._guest(now, small, on=place, from_us=start_us)
                if held_up_us is None:
                    return None
                end_us += held_up_us
            if any(now.placed[small].end_us > end_us for small in mine):
                return None
            now.place(task, self._worker[task], threads, start_us, end_us)
        return tuple(sorted(now.placed.values(), key=lambda each: (each.start_us, each.task)))

    def _place_beside(self, now: PlannedTimes, *, host: int) -> int:
        """The worker for the small tasks beside ``host``: they run one after the other."""
        slots, cores = self._machine.slots, self._machine.cores
        places = range(cores, cores + slots.count) if slots.count else range(self._workers)
        others = [worker for worker in places if worker != self._worker[host]]
        return min(others, key=lambda each: (now.free_us.get(each, 0.0), each))

    def _guest(self, now: PlannedTimes, small: int, *, on: int, from_us: float) -> float | None:
        """Place ``small`` on a worker; by how much it holds up the task beside it, or None if what it needs comes
        later."""
        ready_us = now.ready_us(self._tasks[small], on)
        if ready_us is None:
            return None
        slots = self._machine.slots
        took_us = self._beside_us(small) + (0.0 if slots.count else now.change_us(on, 1))
        start_us = max(ready_us, from_us)
        now.place(small, on, 1, start_us, start_us + took_us)
        return took_us * (1 - 1 / slots.neighbour_slowdown)

    def _us(self, task: int, threads: int) -> float:
        return self._curves[task].median_us[threads]

    def _bytes_per_us(self, task: int, threads: int) -> float:
        return self._tasks[task].bytes / max(self._us(task, threads), 1e-9)

    def _alone_us(self, task: int) -> float:
        return min(self._curves[task].median_us.values())

    def _beside_us(self, small: int) -> float:
        return self._us(small, 1) * self._machine.slots.slowdown
