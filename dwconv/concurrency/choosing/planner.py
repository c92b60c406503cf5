"""Planner: from the tasks of a graph and how long they take to what the strategies make of it, on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from dwconv.concurrency.choosing.options import Options
from dwconv.concurrency.graph.task_graph import ScalingCurve, TaskGraph
from dwconv.concurrency.scheduling import strategies
from dwconv.concurrency.scheduling.machine import ExtraSlots, Machine
from dwconv.concurrency.scheduling.schedule import Schedule
from dwconv.concurrency.times.change_cost import change_cost_us
from dwconv.concurrency.times.handover import handover_us
from dwconv.concurrency.times.hardware_threads import measured_slots, sibling_pairs
from dwconv.concurrency.times.hill_climbing import HillClimbing, Timed
from dwconv.concurrency.times.regression import Regression

STREAMS = 2
"""Tasks of a GPU at a time, unless the options say otherwise. To the strategies a stream is a core."""


class Planner:
    """Makes schedules for ``machine``, with the options' model of times."""

    def __init__(self, machine: Machine, options: Options) -> None:
        self.machine = machine
        self._options = options
        cores = machine.cores
        self._model = HillClimbing(cores=cores) if options.model == "hill_climbing" else Regression(cores=cores)

    def curves(self, graphs: Sequence[TaskGraph], timed: Timed) -> list[dict[int, ScalingCurve]]:
        """For each graph, by task, how long it takes for 1 to all threads."""
        tasks = [task for graph in graphs for task in graph.tasks]
        if isinstance(self._model, Regression) and tasks:
            self._model.fit(tasks, timed)
        return [{task.index: self._model.curve(task, timed) for task in graph.tasks} for graph in graphs]

    def schedule(self, graph: TaskGraph, curves: Mapping[int, ScalingCurve], *, strategies: Sequence[str]) -> Schedule:
        """What ``strategies`` make of the graph."""
        return _schedules(graph, curves, strategies=strategies, machine=self.machine, workers=self._options.workers)


_schedules = strategies.schedules


@cache
def this_machine(cores: int) -> Machine:
    """This machine with so many threads, as it was measured once in this process."""
    machine = Machine(cores=cores, handover_us=handover_us(), change_us=change_cost_us(cores=cores))
    return replace(machine, slots=measured_slots(sibling_pairs())) if cores > 1 else machine


def gpu() -> Machine:
    """A GPU with some streams, and one more for small tasks. What it costs to hand over is in the times of steps."""
    return Machine(cores=STREAMS, slots=ExtraSlots(count=1))
