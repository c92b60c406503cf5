"""Candidates: the schedules that are worth measuring for one graph and its backward graph.

Times by number of threads come from a model, which has tasks timed as sparingly as it can. The strategies make a
schedule of each combination; those that expect the shortest step are measured, and no two that are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from dwconv.concurrency.choosing.options import GRADIENTS, Options
from dwconv.concurrency.choosing.pair_schedule import at_once_schedule
from dwconv.concurrency.choosing.planner import Planner
from dwconv.concurrency.graph.task_graph import ScalingCurve
from dwconv.concurrency.graph.tasks import CutGraph
from dwconv.concurrency.running.lanes import one_at_a_time
from dwconv.concurrency.scheduling.memory import peak_bytes, within
from dwconv.concurrency.scheduling.schedule import Schedule
from dwconv.concurrency.times.budget import Budget
from dwconv.concurrency.times.pair_times import PairTimes

MOST_MEASURED = 5
"""Schedules to measure beside plain execution: those that expect the shortest step."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A graph, forward or backward, with what is known of its tasks."""

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


def combinations_of(strategies: Sequence[str]) -> list[tuple[str, ...]]:
    """Each alone, then every combination."""
    names = [name for name in strategies if name != GRADIENTS]
    return [chosen for count in range(1, len(names) + 1) for chosen in combinations(names, count)]


def candidates(parts: Sequence[Part], *, options: Options, planner: Planner, budget: Budget) -> list[Candidate]:
    """The schedules worth measuring, the most promising first; those that can be made in the time that there is."""
    made: dict[str, list[Schedule]] = {}
    for names in combinations_of(options.strategies):
        if budget.left_s:
            made["+".join(names)] = [planner.schedule(part.cut.graph, part.curves, strategies=names) for part in parts]
    if GRADIENTS in options.strategies and any(pair.at_once_wins for part in parts for pair in part.pairs):
        made[GRADIENTS] = [
            at_once_schedule(part.cut, part.curves, part.pairs, cores=planner.machine.cores) for part in parts
        ]
    found = [bounded(name, parts, schedules, options) for name, schedules in made.items()]
    found.sort(key=lambda each: each.expected_us)
    distinct: dict[object, Candidate] = {}
    for candidate in found:
        distinct.setdefault(tuple(_shape(schedule) for schedule in candidate.schedules), candidate)
    return _chosen(list(distinct.values()))


def _chosen(found: list[Candidate]) -> list[Candidate]:
    """The most promising, and the one that runs gradients at once in any case: it was measured to pay."""
    kept = found[:MOST_MEASURED]
    return kept + [each for each in found[MOST_MEASURED:] if each.name == GRADIENTS]


def _shape(schedule: Schedule) -> object:
    """Equal for schedules that run alike."""
    order = sorted(schedule.placements, key=lambda each: (each.start_us, each.task))
    return tuple((each.task, each.worker, each.threads) for each in order)


def bounded(name: str, parts: Sequence[Part], schedules: Sequence[Schedule], options: Options) -> Candidate:
    """The schedules, cut back to what memory they may take."""
    kept, peaks, cuts = [], [], []
    for part, schedule in zip(parts, schedules, strict=True):
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
        placements.append(replace(each, start_us=at_us, end_us=end_us))
        at_us = end_us
    return replace(schedule, placements=tuple(placements))
