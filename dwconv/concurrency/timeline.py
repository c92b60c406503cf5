"""Timeline: when each task of a graph was expected to run, and when it ran; in words, and as a trace for Perfetto.

    forward   lane 0  ├── convolution ──┤├ relu ┤├──────── convolution_2 ────────┤
              lane 1          ├── convolution_1 ──┤

A step is recorded once, when its schedule has been chosen, by the engine of schedules with tasks that note the time.
Chrome (chrome://tracing) and Perfetto (https://ui.perfetto.dev) open the trace.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dwconv.concurrency.engine import Engine, workers
from dwconv.concurrency.program import Program
from dwconv.concurrency.segments import decides_at_run_time
from dwconv.concurrency.strategies import manual
from dwconv.concurrency.task_graph import (
    Count,
    Grouping,
    Machine,
    Microseconds,
    Placement,
    ScalingCurve,
    Schedule,
    Task,
)
from dwconv.concurrency.task_timer import TimeLeft
from dwconv.concurrency.tasks import CutGraph, TaskFunction
from dwconv.errors import InvalidChoice
from dwconv.measure.clock.timing import Call
from dwconv.system.new_file import replace_file

_RUNS = 3
_ALONE_SHARE = 0.1
"""Of the time that is left, what steps on one core may take."""
_LEAST_FACTOR = 0.5
"""A task that seems to take less of its time than this was disturbed when it was timed alone."""
GRAPHS = ("forward", "backward")


class TaskRun(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One task: where it was placed and when it was expected; and when it ran, in microseconds since its graph began.
    None if no run was recorded."""

    placed: Placement
    start_us: Microseconds | None = None
    end_us: Microseconds | None = None
    lane: Count | None = None
    """Where it ran, if the lanes decided that at run time; else where it was placed."""

    @property
    def ran_on(self) -> int:
        return self.placed.worker if self.lane is None else self.lane


# -- recording ---------------------------------------------------------------------------------------------------------


def recorded(programs: Sequence[Program], schedules: Sequence[Schedule], step: Call) -> tuple[tuple[TaskRun, ...], ...]:
    """By graph, its tasks in the order of their starts, as they ran in a few calls of ``step``: those of the call that
    took the median time. ``schedules``: of each program, with expected times. Programs run plainly afterwards."""
    workers.end()  # threads that idle would slow those of this schedule
    notes = [_Notes() for _ in programs]
    engines = []
    for program, schedule, note in zip(programs, schedules, notes, strict=True):
        program.engine = Engine(note.watching(program.cut), schedule)
        engines.append(program.engine)
    calls: list[list[dict[int, _When]]] = []
    try:
        for _ in range(1 + _RUNS):  # the first one starts threads
            step()
            calls.append([_seen(engine) or note.taken() for engine, note in zip(engines, notes, strict=True)])
    finally:
        for program in programs:
            program.run_plainly()
    if any(
        len(run) != len(schedule.placements)
        for graphs in calls for run, schedule in zip(graphs, schedules, strict=True)
    ):  # fmt: skip
        return expected(schedules)  # it ran in another way
    median = sorted(calls[1:], key=lambda graphs: sum(map(_length_us, graphs)))[_RUNS // 2]
    return tuple(
        tuple(_ran(each, run[each.task]) for each in schedule.in_order)
        for schedule, run in zip(schedules, median, strict=True)
    )


def corrected(curves: Mapping[int, ScalingCurve], ran: Sequence[TaskRun]) -> dict[int, ScalingCurve]:
    """``curves``, each by as much longer or shorter as its task took in a step, where its operands come from other
    caches than when it was timed alone. ``ran``: of the graph, with one task at a time; of several numbers of threads
    each corrects its own, and those between are between."""
    factors: dict[int, dict[int, float]] = {task: {} for task in curves}
    for each in ran:
        alone_us = curves[each.placed.task].median_us[each.placed.threads]
        if each.start_us is not None and each.end_us is not None and alone_us > 0:
            factor = max(_LEAST_FACTOR, (each.end_us - each.start_us) / alone_us)
            factors[each.placed.task][each.placed.threads] = factor
    return {
        task: replace(
            curve, median_us={count: us * _between(factors[task], count) for count, us in curve.median_us.items()}
        )
        for task, curve in curves.items()
    }


def _between(factors: Mapping[int, float], count: int) -> float:
    """By a line over 1/threads, as times are."""
    known = sorted(factors, reverse=True)
    if not known:
        return 1.0
    return float(np.interp(1 / count, [1 / each for each in known], [factors[each] for each in known]))


def in_steps(
    programs: Sequence[Program], curves: Sequence[Mapping[int, ScalingCurve]], step: Call, *, machine: Machine,
    budget: TimeLeft,
) -> list[dict[int, ScalingCurve]]:  # fmt: skip
    """``curves`` of each program, corrected by plain steps on all cores; and by some on one, if these take little of
    the time. Caches make a task that is timed alone much faster on several cores, which have more of them. Raises
    OutOfTime."""
    call = budget.bounded(step)
    graphs = [program.cut.graph for program in programs]

    def ran(threads: int) -> list[list[TaskRun]]:
        plain = [
            manual(graph, known, threads=threads, workers=1, machine=machine)
            for graph, known in zip(graphs, curves, strict=True)
        ]
        return [[*each] for each in recorded(programs, plain, call)]

    seen = ran(machine.cores)
    found = [corrected(known, graph) for known, graph in zip(curves, seen, strict=True)]
    alone_us = sum(curve.median_us[1] for known in found for curve in known.values())
    if machine.cores > 1 and (1 + _RUNS) * alone_us / 1e6 <= _ALONE_SHARE * budget.left_s:
        seen = [several + alone for several, alone in zip(seen, ran(1), strict=True)]
        found = [corrected(known, graph) for known, graph in zip(curves, seen, strict=True)]
    return found


def expected(schedules: Sequence[Schedule]) -> tuple[tuple[TaskRun, ...], ...]:
    """Tasks as the schedules expect them, without a run."""
    return tuple(tuple(TaskRun(placed=each) for each in schedule.in_order) for schedule in schedules)


_When = tuple[float, float, int | None]
"""Start and end of a task in microseconds since its graph began; and its lane, if lanes decided that at run time."""


def _ran(placed: Placement, when: _When) -> TaskRun:
    start_us, end_us, lane = when
    return TaskRun(placed=placed, start_us=start_us, end_us=end_us, lane=lane)


def _seen(engine: Engine) -> dict[int, _When]:
    """By task, when compiled code ran it since the first one began."""
    decided, seen = decides_at_run_time(engine.schedule), engine.seen
    first_us = min((each.start_us for each in seen), default=0.0)
    return {
        task: (each.start_us - first_us, each.end_us - first_us, each.lane if decided else None)
        for task, each in enumerate(seen)
    }


class _Notes:
    """When the tasks of one graph ran, where Python ran them."""

    def __init__(self) -> None:
        self._ns: dict[int, tuple[int, int]] = {}

    def watching(self, cut: CutGraph) -> CutGraph:
        """``cut`` with tasks that note the time."""
        return replace(cut, functions=tuple(self._watched(*each) for each in enumerate(cut.functions)))

    def _watched(self, task: int, function: TaskFunction) -> TaskFunction:
        def run(values: list[Any]) -> None:
            started_ns = time.perf_counter_ns()
            function(values)
            self._ns[task] = started_ns, time.perf_counter_ns()

        return run

    def taken(self) -> dict[int, _When]:
        """By task, when it ran since the first one began; and begin anew."""
        first_ns = min((started_ns for started_ns, _ in self._ns.values()), default=0)
        found: dict[int, _When] = {
            task: ((a - first_ns) / 1e3, (b - first_ns) / 1e3, None) for task, (a, b) in self._ns.items()
        }
        self._ns = {}
        return found


def _length_us(run: Mapping[int, _When]) -> float:
    return max((end_us for _, end_us, _ in run.values()), default=0.0)


# -- in words ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One task of a graph: an operator, with the small ones that run before or after it in one go."""

    graph: str
    """``forward`` or ``backward``."""
    name: str
    kind: str
    threads: int
    lane: int
    start_us: float
    """Since its graph began: as it ran, or as expected if no run was recorded."""
    neighbours: tuple[str, ...]
    """Operations of other lanes that run at the same time."""
    predicted_us: float
    seen_us: float | None
    """None if no run was recorded."""
    grouping: Grouping = ""
    """Of the cores of its threads; empty if the system places them."""


def operations(ran: Sequence[Sequence[TaskRun]], tasks: Sequence[Sequence[Task]]) -> tuple[Operation, ...]:
    """In the order of their starts. ``tasks``: of each graph, by index."""
    found: list[Operation] = []
    for graph, runs, known in zip(GRAPHS, ran, tasks, strict=False):
        for each in runs:
            start_us, end_us = _when(each)
            beside = [
                known[other.placed.task].name
                for other in runs
                if other.ran_on != each.ran_on and _overlap(_when(other), (start_us, end_us))
            ]
            task = known[each.placed.task]
            found.append(
                Operation(
                    graph=graph, name=task.name, kind=task.kind, threads=each.placed.threads, lane=each.ran_on,
                    start_us=start_us, neighbours=tuple(beside), predicted_us=each.placed.end_us - each.placed.start_us,
                    seen_us=None if each.end_us is None else end_us - start_us, grouping=each.placed.grouping,
                )
            )  # fmt: skip
    return tuple(found)


def _when(ran: TaskRun) -> tuple[float, float]:
    if ran.start_us is None or ran.end_us is None:
        return ran.placed.start_us, ran.placed.end_us
    return ran.start_us, ran.end_us


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def lines(found: Sequence[Operation], *, most: int) -> list[str]:
    """A table of the ``most`` operations that take longest, in the order of their starts."""
    longest = sorted(found, key=lambda each: -(each.predicted_us if each.seen_us is None else each.seen_us))[:most]
    shown = [each for each in found if each in longest]
    if not shown:
        return []
    width = max(len(each.name) for each in shown)
    counts = [f"{each.threads} {each.grouping}".strip() for each in shown]
    most_threads = max(map(len, (*counts, "threads")))
    head = f"{'threads':>{most_threads}}  lane   start µs  predicted   seen µs  beside"
    said = [f"{'graph':8}  {'operation':{width}}  {head}"]
    for each, threads in zip(shown, counts, strict=True):
        seen = "–" if each.seen_us is None else f"{each.seen_us:.0f}"
        said.append(
            f"{each.graph:8}  {each.name:{width}}  {threads:>{most_threads}}  {each.lane:4}  {each.start_us:9.0f}  "
            f"{each.predicted_us:9.0f}  {seen:>8}  {', '.join(each.neighbours) or '–'}"
        )
    if len(found) > len(shown):
        said.append(f"and {len(found) - len(shown)} shorter ones")
    return said


# -- as a trace --------------------------------------------------------------------------------------------------------


def write_trace(
    path: Path, graphs: Sequence[tuple[str, Sequence[Sequence[TaskRun]], Sequence[Sequence[Task]]]]
) -> None:
    """A trace in Chrome's format, of steps as they ran beside steps as expected. ``graphs``: of each graph of a model
    its name, its forward and backward part as they ran, and their tasks by index. Raises InvalidChoice if the file
    cannot be written."""
    events: list[dict[str, Any]] = []
    for number, (name, ran, tasks) in enumerate(graphs):
        for place, said in enumerate(("as it ran", "as expected")):
            process = 2 * number + place + 1
            events.append(_named("process_name", process, 0, f"{name}, {said}"))
            events += _events(process, ran, tasks, seen=said == "as it ran")
    text = json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}).encode()
    try:
        replace_file(path, [text, b"\n"], durable=False)
    except OSError as error:
        raise InvalidChoice(f"timeline={path} cannot be written: {error.strerror}; name another file") from None


def _events(
    process: int, ran: Sequence[Sequence[TaskRun]], tasks: Sequence[Sequence[Task]], *, seen: bool
) -> Iterator[dict[str, Any]]:
    """A part begins when the one before has ended."""
    began_us, lanes = 0.0, set[int]()
    for graph, runs, known in zip(GRAPHS, ran, tasks, strict=False):
        ended_us = began_us
        for each in runs:
            if seen and each.end_us is None:
                continue
            start_us, end_us = _when(each) if seen else (each.placed.start_us, each.placed.end_us)
            task = known[each.placed.task]
            lane = each.ran_on if seen else each.placed.worker
            lanes.add(lane)
            yield {
                "name": task.name, "cat": graph, "ph": "X", "ts": began_us + start_us, "dur": end_us - start_us,
                "pid": process, "tid": lane, "args": {
                    "kind": task.kind, "threads": each.placed.threads, "cores": each.placed.grouping,
                    "predicted µs": each.placed.end_us - each.placed.start_us,
                },
            }  # fmt: skip
            ended_us = max(ended_us, began_us + end_us)
        began_us = ended_us
    for lane in sorted(lanes):
        yield _named("thread_name", process, lane, f"lane {lane}")


def _named(what: str, process: int, lane: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": lane, "args": {"name": name}}
