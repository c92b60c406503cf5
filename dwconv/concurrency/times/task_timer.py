"""TaskTimer: how long tasks take by themselves, by number of threads.

A task is timed on made-up inputs of the sizes, types and strides that were traced, so that nothing else of the step has
to run or be held in memory. Floats lie between 0.5 and 1.5, where no operator meets NaN or denormals; whole numbers are
0, which every index may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dwconv.concurrency.graph.task_graph import Task, TaskGraph
from dwconv.concurrency.graph.tasks import CutGraph
from dwconv.concurrency.running.engine import CpuEngine
from dwconv.concurrency.scheduling.schedule import Placement, Schedule
from dwconv.concurrency.times.budget import Budget
from dwconv.measure.clock.timing import Call, Clock, CpuClock, Effort, time_in_turns
from dwconv.system.threads import on_threads

QUICK = Effort(round_s=0.0005, rounds=5, budget_s=0.02, patience_s=0.03)
"""A task may be short and there are many of them: a few hundredths of a second for each number of threads."""


class TaskTimer:
    """Times the tasks of ``cut``; what it is told of one task holds for all of its signature. Raises OutOfTime once the
    budget is used up."""

    def __init__(self, cut: CutGraph, *, clock: Clock | None = None, budget: Budget | None = None) -> None:
        self._cut = cut
        self._budget = budget
        self._clock = clock or CpuClock()
        self._known_us: dict[tuple[str, int], float] = {}

    def timed(self, task: Task, threads: int) -> float:
        """Microseconds of ``task`` with so many threads."""
        key = (task.signature, threads)
        if key not in self._known_us:
            with on_threads(threads):
                self._known_us[key] = self.in_turns({"task": self.call(task.index)}, effort=QUICK)["task"]
        return self._known_us[key]

    def call(self, task: int) -> Call:
        """Runs the task once on made-up inputs."""
        if self._budget:
            self._budget.check()
        function, given = self._cut.functions[task], made_up_inputs(self._cut, task)
        is_on_gpu = any(isinstance(each, Tensor) and each.is_cuda for each in given)

        def run() -> None:
            function(given[:])
            if is_on_gpu:
                torch.cuda.synchronize()

        return run

    def at_once(self, first: int, second: int, *, threads: Sequence[int]) -> Call:
        """Runs two tasks side by side, with ``threads`` of each."""
        both = (first, second)
        given = made_up_inputs(self._cut, *both)
        tasks = tuple(replace(self._cut.graph.tasks[task], index=index, needs=()) for index, task in enumerate(both))
        alone = replace(
            self._cut,
            graph=TaskGraph(tasks=tasks),
            functions=tuple(self._cut.functions[task] for task in both),
            nodes=tuple(self._cut.nodes[task] for task in both),
            reads=tuple(self._cut.reads[task] for task in both),
            outputs=(),
        )
        placements = tuple(
            Placement(task=index, worker=index, threads=count, start_us=0.0, end_us=1.0)
            for index, count in enumerate(threads)
        )
        engine = CpuEngine(alone, Schedule(strategies=(), cores=sum(threads), placements=placements))
        return lambda: engine.run(given[:])

    def in_turns(self, calls: dict[str, Call], *, effort: Effort) -> dict[str, float]:
        """The median of each call, in microseconds, measured in turns."""
        if self._budget:
            calls = {name: self._budget.bounded(call) for name, call in calls.items()}
        with torch.no_grad():
            taken = time_in_turns(calls, clock=self._clock, effort=effort)
        return {name: measurement.median_us for name, measurement in taken.items()}


def made_up_inputs(cut: CutGraph, *tasks: int) -> list[Any]:
    """The list of values with something in the places that ``tasks`` read."""
    values: list[Any] = [None] * cut.size
    for task in tasks:
        for place in cut.reads[task]:
            values[place] = made_up(cut.examples[place])
    return values


def made_up(example: Any) -> Any:
    """A tensor that lies in memory as ``example`` does."""
    if not isinstance(example, Tensor):
        return example
    size = example.untyped_storage().nbytes() // example.element_size()
    flat = torch.empty(size, dtype=example.dtype, device=example.device)
    if example.is_floating_point():
        flat.uniform_(0.5, 1.5)
    else:
        flat.zero_()
    return flat.as_strided(example.shape, example.stride(), example.storage_offset())
