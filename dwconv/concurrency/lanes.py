"""Lanes: a schedule made ready to run, as what each worker does step by step.

    lane 0 (the caller)   conv_1 ── conv_2 ──────────── cat
                             │ signal                    ▲ wait
    lane 1                   └────────► pool ── conv_3 ──┘

Between two tasks of one lane nothing is handed over. Where a task needs another lane's result, that lane signals it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue

from dwconv.concurrency.task_graph import Placement, Schedule
from dwconv.concurrency.tasks import CutGraph, TaskFunction, ValuePlace
from dwconv.errors import InvalidChoice

Signal = SimpleQueue[bool]
"""Holds True once the task has run, False if the run has failed. Each is waited for once."""


@dataclass(frozen=True, kw_only=True)
class PlacedTask:
    """A task of a lane."""

    task: int
    function: TaskFunction
    threads: int
    waits: tuple[Signal, ...]
    signals: tuple[Signal, ...]
    shared: tuple[int, ...]
    """Places that other tasks read, too: the last one frees them."""


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """What each worker does, the caller's first; lanes without a task are left out, except the first."""

    steps: tuple[tuple[PlacedTask, ...], ...]
    workers: tuple[int, ...]
    """By lane, the number that its worker has in the schedule."""
    readers: Mapping[int, int]
    """By place that several tasks read, how many do."""
    in_order: tuple[PlacedTask, ...]
    """All steps by their starts, as one thread can run them."""

    @property
    def signals(self) -> list[Signal]:
        return [signal for lane in self.steps for step in lane for signal in step.signals]


def one_at_a_time(cut: CutGraph, *, threads: int) -> Schedule:
    """Every task on the caller's thread, in the order of the graph. Times are not known, only their order."""
    placements = tuple(
        Placement(task=task.index, worker=0, threads=threads, start_us=float(task.index), end_us=task.index + 1.0)
        for task in cut.graph.tasks
    )
    return Schedule(strategies=(), cores=threads, placements=placements)


def lanes(cut: CutGraph, schedule: Schedule) -> Lanes:
    """``schedule`` made ready to run ``cut``. Raises InvalidChoice if it does not fit the graph."""
    placed = by_worker(cut, schedule)
    waits, signals = _waits(cut, placed)
    readers = _readers(cut)
    steps = tuple(
        tuple(
            PlacedTask(
                task=each.task, function=cut.functions[each.task], threads=each.threads,
                waits=tuple(waits[each.task]), signals=tuple(signals[each.task]),
                shared=tuple(place for place in cut.reads[each.task] if place in readers),
            )
            for each in lane
        )
        for lane in placed
    )  # fmt: skip
    by_task = {step.task: step for lane in steps for step in lane}
    return Lanes(
        steps=steps,
        workers=tuple(lane[0].worker if lane else 0 for lane in placed),
        readers=readers,
        in_order=tuple(by_task[each.task] for each in schedule.in_order),
    )


def by_worker(cut: CutGraph, schedule: Schedule) -> list[list[Placement]]:
    """The placements of each worker, in the order in which it runs them; of worker 0 first, even if there are none."""
    count = len(cut.graph.tasks)
    if sorted(each.task for each in schedule.placements) != list(range(count)):
        raise InvalidChoice(f"the schedule does not place each of the {count} tasks once; make one for this graph")
    by_worker: dict[int, list[Placement]] = {0: []}
    begun: set[int] = set()
    for each in schedule.in_order:
        task = cut.graph.tasks[each.task]
        if not begun.issuperset(task.needs):
            raise InvalidChoice(f"task {task.name} would start before what it needs; give it a later start")
        begun.add(each.task)
        by_worker.setdefault(each.worker, []).append(each)
    return [by_worker[worker] for worker in sorted(by_worker)]


def _waits(
    cut: CutGraph, placed: Sequence[Sequence[Placement]]
) -> tuple[dict[int, list[Signal]], dict[int, list[Signal]]]:
    """By task, the signals that it waits for, and those that it gives."""
    needed = handed(cut, placed)
    waits: dict[int, list[Signal]] = {task: [] for task in needed}
    signals: dict[int, list[Signal]] = {task: [] for task in needed}
    for task, others in needed.items():
        for other in others:
            signal: Signal = SimpleQueue()
            waits[task].append(signal)
            signals[other].append(signal)
    return waits, signals


def handed(cut: CutGraph, placed: Sequence[Sequence[Placement]]) -> dict[int, list[int]]:
    """By task, the tasks of other lanes that it waits for: of each lane the last one that it needs, unless an earlier
    task of its own lane has waited for that one or a later one. Tasks that are not in ``placed`` have run before."""
    at = {each.task: (number, position) for number, lane in enumerate(placed) for position, each in enumerate(lane)}
    waits: dict[int, list[int]] = {task: [] for task in at}
    for number, lane in enumerate(placed):
        waited: dict[int, int] = {}  # by other lane, how far into it this one has waited
        for each in lane:
            needed = sorted(at[task] for task in cut.graph.tasks[each.task].needs if task in at)
            latest = {other: position for other, position in needed if other != number}
            for other, position in latest.items():
                if position > waited.get(other, -1):
                    waited[other] = position
                    waits[each.task].append(placed[other][position].task)
    return waits


def _readers(cut: CutGraph) -> dict[int, int]:
    """By place that several tasks read, how many do; but for results of the graph. A single reader takes the value."""
    returned = {each.index for each in cut.outputs if isinstance(each, ValuePlace)}
    count = Counter(place for places in cut.reads for place in places)
    return {place: tasks for place, tasks in count.items() if tasks > 1 and place not in returned}
