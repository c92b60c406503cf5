"""Lanes: a schedule made ready to run, as what each worker does step by step.

    lane 0 (the caller)   conv_1 ── conv_2 ──────────── cat
                             │ signal                    ▲ wait
    lane 1                   └────────► pool ── conv_3 ──┘

Between two tasks of one lane nothing is handed over. Where a task needs another lane's result, that lane signals it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue

from dwconv.concurrency.schedule import Placement, Schedule
from dwconv.concurrency.tasks import CutGraph, Place, TaskFunction
from dwconv.errors import InvalidChoice

Signal = SimpleQueue[bool]
"""Holds True once the task has run, False if the run has failed. Each is waited for once."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A task of a lane."""

    task: int
    function: TaskFunction
    threads: int
    waits: tuple[Signal, ...]
    signals: tuple[Signal, ...]
    frees: tuple[int, ...]
    """Places whose value nothing reads after this task."""
    shared: tuple[int, ...]
    """Places that lanes read side by side: the last one frees them."""


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """What each worker does, the caller's first; lanes without a task are left out, except the first."""

    steps: tuple[tuple[Step, ...], ...]
    readers: Mapping[int, int]
    """By place that several lanes read, how many tasks read it."""
    in_order: tuple[Step, ...]
    """All steps, in an order in which one thread can run them. It keeps each lane's, by which values are freed."""

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
    """``schedule`` made ready to run ``cut``. Raises InvalidChoice if it does not fit the graph, or could not end."""
    placed = _by_worker(cut, schedule)
    order = _order_to_the_end(cut, placed)
    lane_of = {each.task: number for number, lane in enumerate(placed) for each in lane}
    edges: dict[tuple[int, int], Signal] = {}
    waits: dict[int, list[Signal]] = {}
    for lane in placed:
        waited: dict[int, int] = {}  # by other lane, how far into it this one has waited
        for each in lane:
            waits[each.task] = _waits(cut, each.task, placed, lane_of, waited, edges)
    signals: dict[int, list[Signal]] = {}
    for (source, _), signal in edges.items():
        signals.setdefault(source, []).append(signal)
    frees, shared, readers = _freeing(cut, placed, lane_of)
    steps = tuple(
        tuple(
            Step(
                task=each.task, function=cut.functions[each.task], threads=each.threads,
                waits=tuple(waits[each.task]), signals=tuple(signals.get(each.task, ())),
                frees=tuple(frees.get(each.task, ())), shared=tuple(shared.get(each.task, ())),
            )
            for each in lane
        )
        for lane in placed
    )  # fmt: skip
    by_task = {step.task: step for lane in steps for step in lane}
    return Lanes(steps=steps, readers=readers, in_order=tuple(by_task[task] for task in order))


def _by_worker(cut: CutGraph, schedule: Schedule) -> list[list[Placement]]:
    """The placements of each worker, in the order in which it runs them; of worker 0 first, even if there are none."""
    count = len(cut.graph.tasks)
    if sorted(each.task for each in schedule.placements) != list(range(count)):
        raise InvalidChoice(f"the schedule does not place each of the {count} tasks once; make one for this graph")
    by_worker: dict[int, list[Placement]] = {0: []}
    for each in schedule.in_order:
        by_worker.setdefault(each.worker, []).append(each)
    return [by_worker[worker] for worker in sorted(by_worker)]


def _order_to_the_end(cut: CutGraph, placed: Sequence[Sequence[Placement]]) -> list[int]:
    """An order in which all tasks can run. Raises InvalidChoice if the lanes would wait for each other."""
    done: dict[int, None] = {}
    at = [0] * len(placed)
    moved = True
    while moved:
        moved = False
        for number, lane in enumerate(placed):
            while at[number] < len(lane) and done.keys() >= {*cut.graph.tasks[lane[at[number]].task].needs}:
                done[lane[at[number]].task] = None
                at[number] += 1
                moved = True
    stuck = next((lane[at[number]].task for number, lane in enumerate(placed) if at[number] < len(lane)), None)
    if stuck is not None:
        name = cut.graph.tasks[stuck].name
        raise InvalidChoice(f"task {name} would start before what it needs; give it a later start")
    return list(done)


def _waits(
    cut: CutGraph, task: int, placed: Sequence[Sequence[Placement]], lane_of: Mapping[int, int],
    waited: dict[int, int], edges: dict[tuple[int, int], Signal],
) -> list[Signal]:  # fmt: skip
    """The signals that ``task`` waits for: of each other lane the last task that it needs, unless an earlier task of
    its own lane has waited for that one or a later one."""
    order = {each.task: position for lane in placed for position, each in enumerate(lane)}
    latest: dict[int, int] = {}
    for needed in cut.graph.tasks[task].needs:
        lane = lane_of[needed]
        if lane != lane_of[task] and order[needed] > latest.get(lane, waited.get(lane, -1)):
            latest[lane] = order[needed]
    found = []
    for lane, position in latest.items():
        waited[lane] = position
        signal = edges[placed[lane][position].task, task] = SimpleQueue()
        found.append(signal)
    return found


def _freeing(
    cut: CutGraph, placed: Sequence[Sequence[Placement]], lane_of: Mapping[int, int]
) -> tuple[dict[int, list[int]], dict[int, list[int]], dict[int, int]]:
    """By task, the places that it frees; by task, those that it frees if it is the last one; and by place of these, how
    many tasks read it."""
    order = {each.task: position for lane in placed for position, each in enumerate(lane)}
    returned = {each.index for each in cut.outputs if isinstance(each, Place)}
    read_by: dict[int, list[int]] = {}
    for task, places in enumerate(cut.reads):
        for place in places:
            read_by.setdefault(place, []).append(task)
    frees: dict[int, list[int]] = {}
    shared: dict[int, list[int]] = {}
    readers: dict[int, int] = {}
    for place, tasks in read_by.items():
        if place in returned or len(tasks) == 1:  # a single reader has taken it
            continue
        if len({lane_of[task] for task in tasks}) == 1:
            frees.setdefault(max(tasks, key=order.__getitem__), []).append(place)
        else:
            readers[place] = len(tasks)
            for task in tasks:
                shared.setdefault(task, []).append(place)
    return frees, shared, readers
