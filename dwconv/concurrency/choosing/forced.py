"""Forced: the schedule that an option names, made without measuring anything."""

from __future__ import annotations

import math

from dwconv.concurrency.choosing.candidates import Part, bounded
from dwconv.concurrency.choosing.options import GRADIENTS, RANDOM, Options
from dwconv.concurrency.choosing.pair_schedule import at_once_schedule
from dwconv.concurrency.choosing.planner import Planner, gpu
from dwconv.concurrency.graph.gradient_pairs import pairs
from dwconv.concurrency.graph.tasks import CutGraph
from dwconv.concurrency.scheduling.drawn import drawn
from dwconv.concurrency.scheduling.machine import ExtraSlots, Machine
from dwconv.concurrency.scheduling.schedule import Schedule
from dwconv.concurrency.times.estimate import estimated_curves, estimated_us
from dwconv.concurrency.times.hardware_threads import sibling_pairs
from dwconv.concurrency.times.pair_times import PairTimes

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
        found = Planner(machine, options).schedule(cut.graph, curves, strategies=name.split("+"))
    return bounded(name, [Part(cut=cut, curves=curves, pairs=())], [found], options).schedules[0]


def _all_at_once(cut: CutGraph, *, cores: int) -> list[PairTimes]:
    """Both gradients of every convolution side by side, as if that were always faster."""
    if cores < 2:
        return []
    return [
        PairTimes(
            pair=each, name=each.name, apart_us=math.inf,
            at_once_us=max(estimated_us(cut.graph.tasks[task], cores // 2) for task in (each.dgrad, each.wgrad)),
        )
        for each in pairs(cut)
    ]  # fmt: skip
