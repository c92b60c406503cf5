"""The schedule that runs one task at a time on all cores, except the two gradients of a convolution, which run at once
with half of the threads each where that was measured to be faster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dwconv.concurrency.choosing.options import GRADIENTS
from dwconv.concurrency.graph.task_graph import ScalingCurve
from dwconv.concurrency.graph.tasks import CutGraph
from dwconv.concurrency.scheduling.schedule import Placement, Schedule
from dwconv.concurrency.times.pair_times import PairTimes


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
