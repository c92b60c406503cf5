"""Planner: from the tasks of a graph and how long they take to what the strategies make of it, on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dwconv.concurrency.choosing.options import Options
from dwconv.concurrency.graph.task_graph import ScalingCurve, TaskGraph
from dwconv.concurrency.scheduling import strategies
from dwconv.concurrency.scheduling.machine import ExtraSlots, Machine
from dwconv.concurrency.scheduling.schedule import Schedule
from dwconv.concurrency.times.budget import Budget
from dwconv.concurrency.times.change_cost import change_cost_us
from dwconv.concurrency.times.estimate import estimated_us
from dwconv.concurrency.times.handover import handover_us
from dwconv.concurrency.times.hardware_threads import measured_slots, sibling_pairs
from dwconv.concurrency.times.hill_climbing import HillClimbing, Timed
from dwconv.concurrency.times.time_regression import Regression
from dwconv.measure.clock.timing import Call

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
        for task in sorted(tasks, key=lambda task: -estimated_us(task, 1)):  # the time may not do for all of them
            self._model.curve(task, timed)
        return [{task.index: self._model.curve(task, timed) for task in graph.tasks} for graph in graphs]

    def schedule(self, graph: TaskGraph, curves: Mapping[int, ScalingCurve], *, strategies: Sequence[str]) -> Schedule:
        """What ``strategies`` make of the graph."""
        return _schedules(graph, curves, strategies=strategies, machine=self.machine, workers=self._options.workers)


_schedules = strategies.schedules


_measured: dict[int, Machine] = {}


def this_machine(cores: int, *, budget: Budget | None = None) -> Machine:
    """This machine with so many threads, as it was measured once in this process. Raises OutOfTime."""
    if cores not in _measured:
        bounded: Callable[[Call], Call] = budget.bounded if budget else lambda call: call
        machine = Machine(
            cores=cores, handover_us=handover_us(bounded), change_us=change_cost_us(cores=cores, bounded=bounded)
        )
        slots = measured_slots(sibling_pairs()) if cores > 1 else ExtraSlots()
        _measured[cores] = replace(machine, slots=slots)
    return _measured[cores]


def gpu() -> Machine:
    """A GPU with some streams, and one more for small tasks. What it costs to hand over is in the times of steps."""
    return Machine(cores=STREAMS, slots=ExtraSlots(count=1))
