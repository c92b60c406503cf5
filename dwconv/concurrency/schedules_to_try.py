"""Which schedules are worth measuring for one graph and its backward graph.

Times by number of threads come from a model, which has tasks timed as sparingly as it can. The strategies make a
schedule of each combination. Those that hold too much memory are left out, and no two that are the same are measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dwconv.concurrency.hill_climbing import HillClimbing, TimeOnThreads, estimated_curves, estimated_us
from dwconv.concurrency.lanes import one_at_a_time
from dwconv.concurrency.machine_costs import GPU
from dwconv.concurrency.options import RANDOM, Options
from dwconv.concurrency.second_threads import idle_pairs
from dwconv.concurrency.strategies import COMBINED, filled_in, schedules
from dwconv.concurrency.task_graph import (
    ExtraSlots,
    Machine,
    Room,
    ScalingCurve,
    Schedule,
    TaskGraph,
    drawn,
    peak_bytes,
)
from dwconv.concurrency.task_timer import TimeLeft
from dwconv.concurrency.tasks import CutGraph
from dwconv.concurrency.time_regression import Counts, Regression
from dwconv.concurrency.topology import ALIKE, Topology

_SHARES_OF_ROOM = (1.0, 0.9, 0.8)
"""Of what results may take: the first one whose schedule fits."""
_ALIKE = 0.95
"""The share of tasks that run alike in two schedules, of which one is hardly worth measuring beside the other."""
_MOST_FEATURES = 8
"""Features that are named."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """The times of the tasks of some graphs."""

    curves: tuple[Mapping[int, ScalingCurve], ...]
    """By graph, by task, its time for 1 to all threads."""
    note: str = ""
    """What the model was fitted to, in a line; empty if it was fitted to nothing."""


def known_curves(
    graphs: Sequence[TaskGraph], timed: TimeOnThreads, *, cores: int, options: Options, counts: Counts | None = None,
    topology: Topology = ALIKE,
) -> Known:  # fmt: skip
    """By the options' model of times."""
    regression = Regression(cores=cores, counts=counts) if options.model == "regression" else None
    model = regression or HillClimbing(cores=cores, topology=topology)
    tasks = [task for graph in graphs for task in graph.tasks]
    if regression:
        regression.fit(tasks, timed)
    for task in sorted(tasks, key=lambda task: -estimated_us(task, 1)):  # the time may not do for all of them
        model.curve(task, timed)
    found = tuple({task.index: model.curve(task, timed) for task in graph.tasks} for graph in graphs)
    return Known(curves=found, note=fitted_to(regression))


def fitted_to(regression: Regression | None) -> str:
    """What a regression uses, in a line."""
    if regression is None or regression.learnt is None:
        return ""
    learnt = regression.learnt
    shown = ", ".join(learnt.features[:_MOST_FEATURES])
    more = len(learnt.features) - _MOST_FEATURES
    return f"times predicted by {learnt.learner} from {shown}{f' and {more} more' if more > 0 else ''}"


@dataclass(frozen=True, kw_only=True)
class GraphTimes:
    """A graph, forward or backward, with the times of its tasks."""

    cut: CutGraph
    curves: Mapping[int, ScalingCurve]

    def room(self, options: Options) -> Room:
        """What a schedule may hold, of results between tasks."""
        plain = peak_bytes(self.cut.held, one_at_a_time(self.cut, threads=1))
        return Room(held=self.cut.held, most_bytes=plain * (1 + options.memory))


@dataclass(frozen=True, kw_only=True)
class SchedulePair:
    """A schedule for each graph: forward, and backward if there is one."""

    name: str
    schedules: tuple[Schedule, ...]
    peak_bytes: int
    """Of what is held, at most; the larger one of both graphs."""

    @property
    def expected_us(self) -> float:
        """What the schedules expect of a step."""
        return sum(schedule.makespan_us for schedule in self.schedules)


def worth_trying(
    parts: Sequence[GraphTimes], *, options: Options, machine: Machine, budget: TimeLeft
) -> list[SchedulePair]:
    """The schedules worth measuring, the most promising first: those of the shortest expected time, without those that
    hardly differ from a better one, which come last. Those that can be made in the time that there is."""
    distinct: dict[object, SchedulePair] = {}
    known: dict[tuple[str, ...], list[Schedule]] = {}
    for names in COMBINED:
        if set(names) <= {*options.strategies} and budget.left_s:
            made = known[names] = _made(names, parts, known, options=options, machine=machine)
            peaks = [peak_bytes(part.cut.held, schedule) for part, schedule in zip(parts, made, strict=True)]
            if all(peak <= part.room(options).most_bytes for part, peak in zip(parts, peaks, strict=True)):
                found = SchedulePair(name="+".join(names), schedules=tuple(made), peak_bytes=max(peaks))
                distinct.setdefault(tuple(schedule.shape for schedule in made), found)
    varied: list[SchedulePair] = []
    like_others: list[SchedulePair] = []
    for each in sorted(distinct.values(), key=lambda each: each.expected_us):
        (like_others if any(_hardly_differ(each, other) for other in varied) else varied).append(each)
    return varied + like_others


def _hardly_differ(one: SchedulePair, other: SchedulePair) -> bool:
    """True if nearly all tasks have the same number of threads on the same worker."""
    pairs = [
        (each, placed[each.task])
        for mine, others in zip(one.schedules, other.schedules, strict=True)
        for placed in [{each.task: each for each in others.placements}]
        for each in mine.placements
    ]
    alike = sum((a.threads, a.worker) == (b.threads, b.worker) for a, b in pairs)
    return alike > _ALIKE * len(pairs)


def _made(
    names: tuple[str, ...], parts: Sequence[GraphTimes], known: Mapping[tuple[str, ...], Sequence[Schedule]], *,
    options: Options, machine: Machine,
) -> list[Schedule]:  # fmt: skip
    """Schedules by these strategies. S4 adds to those of the others, which may be ``known``."""
    workers = options.workers
    if names[-1] == "S4" and names[:-1] in known:
        both = zip(parts, known[names[:-1]], strict=True)
        return [filled_in(made, part.cut.graph, part.curves, machine=machine, workers=workers) for part, made in both]
    return [_within(part, names, part.room(options), machine=machine, workers=workers) for part in parts]


def _within(part: GraphTimes, names: tuple[str, ...], room: Room, *, machine: Machine, workers: int | None) -> Schedule:
    """A schedule that fits into ``room``, if one is found: a task that nothing else can wait for may take more, so less
    is left to the others."""
    for share in _SHARES_OF_ROOM:
        given = replace(room, most_bytes=share * room.most_bytes)
        made = schedules(part.cut.graph, part.curves, strategies=names, machine=machine, workers=workers, room=given)
        if peak_bytes(part.cut.held, made) <= room.most_bytes:
            break
    return made


def plain_schedules(parts: Sequence[GraphTimes], *, machine: Machine) -> tuple[Schedule, ...]:
    """Plain execution, as one task at a time on all cores, with the times that are expected."""
    return tuple(schedules(part.cut.graph, part.curves, strategies=(), machine=machine) for part in parts)


# -- the schedule that an option names ---------------------------------------------------------------------------------


_DRAWN_WORKERS = 4


def forced_schedule(cut: CutGraph, *, part: int, options: Options, cores: int, on_gpu: bool) -> Schedule:
    """The schedule of ``cut`` that ``options.schedule`` names, which is not ``plain``. ``part``: 0 for the forward
    graph, 1 for the backward graph."""
    name = options.schedule
    assert name is not None
    slots = ExtraSlots(count=len(idle_pairs(cores)))
    machine = GPU if on_gpu else Machine(cores=cores, slots=slots)
    if name.startswith(RANDOM):
        workers = options.workers or max(2, min(machine.cores, _DRAWN_WORKERS))  # side by side on one core, too
        return drawn(cut.graph, cores=machine.cores, workers=workers, seed=f"{name.removeprefix(RANDOM)} {part}")
    curves = estimated_curves(cut.graph, cores=machine.cores)
    return schedules(cut.graph, curves, strategies=name.split("+"), machine=machine, workers=options.workers)
