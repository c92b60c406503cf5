"""Candidates: the schedules that are worth measuring for one graph and its backward graph.

Times by number of threads come from a model, which has tasks timed as sparingly as it can. The strategies make a
schedule of each combination; those that expect the shortest step are measured, and no two that are the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from dwconv.concurrency.gradient_pairs import pairs
from dwconv.concurrency.hill_climbing import HillClimbing, Timed, estimated_curves, estimated_us
from dwconv.concurrency.lanes import one_at_a_time
from dwconv.concurrency.machine_costs import gpu, sibling_pairs
from dwconv.concurrency.options import GRADIENTS, RANDOM, Options
from dwconv.concurrency.schedule import (
    ExtraSlots,
    Machine,
    Placement,
    ScalingCurve,
    Schedule,
    TaskGraph,
    drawn,
    peak_bytes,
    within,
)
from dwconv.concurrency.strategies import combined, schedules
from dwconv.concurrency.task_timer import Budget, PairTimes
from dwconv.concurrency.tasks import CutGraph
from dwconv.concurrency.time_regression import Regression


def known_curves(
    graphs: Sequence[TaskGraph], timed: Timed, *, cores: int, options: Options
) -> list[dict[int, ScalingCurve]]:
    """For each graph, by task, how long it takes for 1 to all threads, by the options' model of times."""
    model = HillClimbing(cores=cores) if options.model == "hill_climbing" else Regression(cores=cores)
    tasks = [task for graph in graphs for task in graph.tasks]
    if isinstance(model, Regression) and tasks:
        model.fit(tasks, timed)
    for task in sorted(tasks, key=lambda task: -estimated_us(task, 1)):  # the time may not do for all of them
        model.curve(task, timed)
    return [{task.index: model.curve(task, timed) for task in graph.tasks} for graph in graphs]


MOST_MEASURED = 5
"""Schedules to measure beside plain execution: those that expect the shortest step."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A graph, forward or backward, with the times of its tasks."""

    cut: CutGraph
    curves: Mapping[int, ScalingCurve]
    pairs: Sequence[PairTimes]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A schedule for each graph: forward, and backward if there is one."""

    name: str
    schedules: tuple[Schedule, ...]
    peak_bytes: int
    """Of what is held, at most; the larger one of both graphs."""
    note: str = ""
    """What was cut for the sake of memory."""

    @property
    def expected_us(self) -> float:
        """What the schedules expect of a step."""
        return sum(schedule.makespan_us for schedule in self.schedules)


def candidates(parts: Sequence[Part], *, options: Options, machine: Machine, budget: Budget) -> list[Candidate]:
    """The schedules worth measuring, the most promising first; those that can be made in the time that there is."""
    made: dict[str, list[Schedule]] = {}
    for names in combined([name for name in options.strategies if name != GRADIENTS]):
        if budget.left_s:
            made["+".join(names)] = [
                schedules(part.cut.graph, part.curves, strategies=names, machine=machine, workers=options.workers)
                for part in parts
            ]
    if GRADIENTS in options.strategies and any(pair.at_once_wins for part in parts for pair in part.pairs):
        made[GRADIENTS] = [at_once_schedule(part.cut, part.curves, part.pairs, cores=machine.cores) for part in parts]
    found = [bounded(name, parts, of_parts, options) for name, of_parts in made.items()]
    found.sort(key=lambda each: each.expected_us)
    distinct: dict[object, Candidate] = {}
    for candidate in found:
        distinct.setdefault(tuple(schedule.shape for schedule in candidate.schedules), candidate)
    kept = list(distinct.values())  # gradients at once are among them in any case: they were measured to pay
    return kept[:MOST_MEASURED] + [each for each in kept[MOST_MEASURED:] if each.name == GRADIENTS]


def bounded(name: str, parts: Sequence[Part], of_parts: Sequence[Schedule], options: Options) -> Candidate:
    """The schedules, cut back to what memory they may take."""
    kept, peaks, cuts = [], [], []
    for part, schedule in zip(parts, of_parts, strict=True):
        graph, held = part.cut.graph, part.cut.held
        plain = one_at_a_time(part.cut, threads=schedule.cores)
        most = int(peak_bytes(held, plain) * (1 + options.memory))
        fits = within(graph, held, schedule, most_bytes=most)
        if fits is not schedule:
            cuts.append("runs less far ahead, for memory" if fits else "one task at a time, for memory")
        kept.append(fits or expected(part, plain))
        peaks.append(peak_bytes(held, kept[-1]))
    return Candidate(name=name, schedules=tuple(kept), peak_bytes=max(peaks), note=", ".join(dict.fromkeys(cuts)))


def expected(part: Part, schedule: Schedule) -> Schedule:
    """``schedule``, which has one worker, with the times that are expected of its tasks."""
    at_us = 0.0
    placements = []
    for each in schedule.placements:
        end_us = at_us + part.curves[each.task].median_us[each.threads]
        placements.append(msgspec.structs.replace(each, start_us=at_us, end_us=end_us))
        at_us = end_us
    return replace(schedule, placements=tuple(placements))


# -- dgrad beside wgrad ------------------------------------------------------------------------------------------------


def at_once_schedule(
    cut: CutGraph, curves: Mapping[int, ScalingCurve], pairs: Sequence[PairTimes], *, cores: int
) -> Schedule:
    """Tasks in the order of the graph; the later one of two gradients moves to the earlier one's side, if what it needs
    is there by then."""
    half = cores // 2
    partner = {}
    for each in pairs:
        if each.at_once_wins:
            first, second = sorted((each.pair.dgrad, each.pair.wgrad))
            if all(needed < first for needed in cut.graph.tasks[second].needs):
                partner[first] = (second, each)
    at_us = 0.0
    placements: list[Placement] = []
    done: set[int] = set()
    for task in cut.graph.tasks:
        if task.index in done:
            continue
        if task.index in partner:
            second, times = partner[task.index]
            for worker, (index, threads) in enumerate(((task.index, cores - half), (second, half))):
                placements.append(_placed(index, worker, threads, at_us, at_us + times.at_once_us))
            done.add(second)
            at_us += times.at_once_us
        else:
            end_us = at_us + curves[task.index].median_us[cores]
            placements.append(_placed(task.index, 0, cores, at_us, end_us))
            at_us = end_us
    return Schedule(strategies=(GRADIENTS,), cores=cores, placements=tuple(placements))


def _placed(task: int, worker: int, threads: int, start_us: float, end_us: float) -> Placement:
    return Placement(task=task, worker=worker, threads=threads, start_us=start_us, end_us=end_us)


# -- the schedule that an option names ---------------------------------------------------------------------------------


_DRAWN_WORKERS = 4


def forced_schedule(cut: CutGraph, *, part: int, options: Options, cores: int, on_gpu: bool) -> Schedule:
    """The schedule of ``cut`` that ``options.schedule`` names, which is not ``plain``. ``part``: 0 for the forward
    graph, 1 for the backward graph."""
    name = options.schedule
    assert name is not None
    slots = ExtraSlots(count=len(sibling_pairs()) if cores > 1 else 0)
    machine = gpu() if on_gpu else Machine(cores=cores, slots=slots)
    if name.startswith(RANDOM):
        workers = options.workers or max(2, min(machine.cores, _DRAWN_WORKERS))  # side by side on one core, too
        return drawn(cut.graph, cores=machine.cores, workers=workers, seed=f"{name.removeprefix(RANDOM)} {part}")
    curves = estimated_curves(cut.graph, cores=machine.cores)
    if name == GRADIENTS:
        found = at_once_schedule(cut, curves, _all_at_once(cut, cores=machine.cores), cores=machine.cores)
    else:
        names = name.split("+")
        found = schedules(cut.graph, curves, strategies=names, machine=machine, workers=options.workers)
    return bounded(name, [Part(cut=cut, curves=curves, pairs=())], [found], options).schedules[0]


def _all_at_once(cut: CutGraph, *, cores: int) -> list[PairTimes]:
    """Both gradients of every convolution side by side, as if that were always faster."""
    if cores < 2:
        return []
    return [
        PairTimes(
            pair=each, apart_us=math.inf,
            at_once_us=max(estimated_us(cut.graph.tasks[task], cores // 2) for task in (each.dgrad, each.wgrad)),
        )
        for each in pairs(cut)
    ]  # fmt: skip
