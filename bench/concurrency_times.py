"""Times of the tasks of a step, within a budget; and what each time model makes of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dwconv.concurrency.accuracy import Accuracy, accuracy, sweep
from dwconv.concurrency.hill_climbing import HillClimbing
from dwconv.concurrency.regression import Regression
from dwconv.concurrency.task_graph import ScalingCurve, Task, TaskGraph
from dwconv.concurrency.task_timer import TaskTimer
from dwconv.concurrency.tasks import CutGraph
from dwconv.measure.threads import on_threads

_SWEPT = 40
"""Signatures against which the models are held, spread evenly over those there are."""


class BudgetedTimer:
    """Times tasks of several graphs. When the time is used up, a task is run once and that counts."""

    def __init__(self, cuts: Sequence[CutGraph], *, seconds: float) -> None:
        self._timers: dict[str, tuple[TaskTimer, Task]] = {}
        for cut in cuts:
            timer = TaskTimer(cut)
            for task in cut.graph.tasks:
                self._timers.setdefault(task.signature, (timer, task))
        self._until = time.monotonic() + seconds
        self.hurried = 0
        """Times that one run had to do for."""

    def __call__(self, task: Task, threads: int) -> float:
        timer, same = self._timers[task.signature]
        if time.monotonic() < self._until:
            return timer.timed(same, threads)
        self.hurried += 1
        call = timer.call(same.index)
        with on_threads(threads):
            call()
            started = time.perf_counter()
            call()
            return (time.perf_counter() - started) * 1e6

    @property
    def tasks(self) -> list[Task]:
        """One task of each signature."""
        return [task for _, task in self._timers.values()]


@dataclass(frozen=True, kw_only=True)
class Models:
    """Curves by signature of both models, each from measurements of its own, and how good they are."""

    curves: Mapping[str, Mapping[str, ScalingCurve]]
    """By model, then by signature."""
    accuracies: Mapping[str, Accuracy]
    learner: str
    """Who learnt the regression."""
    runs: Mapping[str, int]
    """By model, how many times a task was timed with one number of threads."""
    hurried: int


def measured_models(cuts: Sequence[CutGraph], *, cores: int, seconds: float) -> Models:
    """Fit both models to the tasks of ``cuts`` within about so many seconds, and sweep a part of them."""
    share_s = seconds / 3
    climbing_timer = BudgetedTimer(cuts, seconds=share_s)
    climbing = HillClimbing(cores=cores)
    climbed = {task.signature: climbing.curve(task, climbing_timer) for task in climbing_timer.tasks}
    regression_timer = CountedTimer(BudgetedTimer(cuts, seconds=share_s))
    regression = Regression(cores=cores)
    regression.fit(regression_timer.timer.tasks, regression_timer)
    regressed = {task.signature: regression.curve(task, regression_timer) for task in regression_timer.timer.tasks}
    unseen = {task.signature: regression.predicted(task, regression_timer) for task in regression_timer.timer.tasks}
    sweep_timer = BudgetedTimer(cuts, seconds=share_s)
    swept = sweep(_spread(sweep_timer.tasks), sweep_timer, cores=cores)
    return Models(
        curves={"hill climbing": climbed, "regression": regressed},
        accuracies={
            "hill climbing": accuracy({signature: climbed[signature] for signature in swept}, swept),
            "regression": accuracy({signature: unseen[signature] for signature in swept}, swept),
        },
        learner=regression.learnt.learner if regression.learnt else "none: one core",
        runs={"hill climbing": climbing.runs, "regression": regression_timer.runs},
        hurried=climbing_timer.hurried + regression_timer.timer.hurried + sweep_timer.hurried,
    )


class CountedTimer:
    """A timer that counts what it is asked for."""

    def __init__(self, timer: BudgetedTimer) -> None:
        self.timer = timer
        self.runs = 0

    def __call__(self, task: Task, threads: int) -> float:
        self.runs += 1
        return self.timer(task, threads)


def curves_of(graph: TaskGraph, by_signature: Mapping[str, ScalingCurve]) -> dict[int, ScalingCurve]:
    """By task of ``graph``."""
    return {task.index: by_signature[task.signature] for task in graph.tasks}


def _spread(tasks: Sequence[Task]) -> list[Task]:
    ordered = sorted(tasks, key=lambda task: (task.flops + task.bytes, task.signature))
    every = max(1, -(-len(ordered) // _SWEPT))
    return ordered[::every]
