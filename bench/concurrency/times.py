"""Times of the tasks of a step, within a budget; and what each time model makes of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from dwconv.concurrency.hill_climbing import HillClimbing
from dwconv.concurrency.schedule import ScalingCurve, Task, TaskGraph
from dwconv.concurrency.task_timer import TaskTimer
from dwconv.concurrency.tasks import CutGraph
from dwconv.concurrency.time_regression import Regression, sweep
from dwconv.measure.clock.timing import Call, Effort

_SWEPT = 40
"""Signatures against which the models are held, spread evenly over those there are."""


class HurriedTimer(TaskTimer):
    """Times tasks as long as there is time. Then each call is run twice, and the second time counts."""

    def __init__(self, cut: CutGraph, *, until_s: float) -> None:
        """``until_s``: by time.monotonic."""
        super().__init__(cut)
        self._until_s = until_s
        self.hurried = 0
        """Times that one run had to do for."""

    def in_turns(self, calls: dict[str, Call], *, effort: Effort) -> dict[str, float]:
        if time.monotonic() < self._until_s:
            return super().in_turns(calls, effort=effort)
        self.hurried += len(calls)
        return {name: _once_us(call) for name, call in calls.items()}


def _once_us(call: Call) -> float:
    with torch.no_grad():
        call()
        started = time.perf_counter()
        call()
        return (time.perf_counter() - started) * 1e6


class BudgetedTimer:
    """Times tasks of several graphs, for about so many seconds."""

    def __init__(self, cuts: Sequence[CutGraph], *, seconds: float) -> None:
        self._timers: dict[str, tuple[HurriedTimer, Task]] = {}
        self._all = [HurriedTimer(cut, until_s=time.monotonic() + seconds) for cut in cuts]
        for timer, cut in zip(self._all, cuts, strict=True):
            for task in cut.graph.tasks:
                self._timers.setdefault(task.signature, (timer, task))
        self.runs = 0
        """How many times the time of a task was requested with one number of threads."""

    def __call__(self, task: Task, threads: int) -> float:
        self.runs += 1
        timer, same = self._timers[task.signature]
        return timer.timed(same, threads)

    @property
    def tasks(self) -> list[Task]:
        """One task of each signature."""
        return [task for _, task in self._timers.values()]

    @property
    def hurried(self) -> int:
        """Times that one run had to do for."""
        return sum(timer.hurried for timer in self._all)


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Of one model, over some tasks."""

    tasks: int
    error: float
    """Mean over tasks and counts of the difference between predicted and swept time, as a share of the swept time."""
    slower_than_best: float
    """By which share the counts that the model would choose are slower, all tasks together, than the best ones."""


def accuracy(predicted: Mapping[str, ScalingCurve], swept: Mapping[str, ScalingCurve]) -> Accuracy:
    """``predicted`` against ``swept``, by signature. Signatures that were not predicted do not count."""
    errors: list[float] = []
    chosen_us = best_us = 0.0
    for signature, curve in predicted.items():
        true_us = swept[signature].median_us
        errors += [abs(curve.median_us[count] - us) / us for count, us in true_us.items()]
        chosen_us += true_us[curve.best_threads()]
        best_us += min(true_us.values())
    return Accuracy(
        tasks=len(predicted),
        error=statistics.mean(errors) if errors else 0.0,
        slower_than_best=chosen_us / best_us - 1 if best_us else 0.0,
    )


@dataclass(frozen=True, kw_only=True)
class Models:
    """Curves by signature of both models, each from measurements of its own, and how good they are."""

    curves: Mapping[str, Mapping[str, ScalingCurve]]
    """By model, then by signature."""
    accuracies: Mapping[str, Accuracy]
    learner: str
    """What the regression was fitted to."""
    runs: Mapping[str, int]
    """By model, how many times a task was timed with one number of threads."""
    hurried: int


def measured_models(cuts: Sequence[CutGraph], *, cores: int, seconds: float) -> Models:
    """Fit both models to the tasks of ``cuts`` within about so many seconds, and sweep a part of them."""
    share_s = seconds / 3
    climbing_timer = BudgetedTimer(cuts, seconds=share_s)
    climbing = HillClimbing(cores=cores)
    climbed = {task.signature: climbing.curve(task, climbing_timer) for task in climbing_timer.tasks}
    regression_timer = BudgetedTimer(cuts, seconds=share_s)
    regression = Regression(cores=cores)
    regression.fit(regression_timer.tasks, regression_timer)
    regressed = {task.signature: regression.curve(task, regression_timer) for task in regression_timer.tasks}
    unvisited = {task.signature: regression.predicted(task, regression_timer) for task in regression_timer.tasks}
    sweep_timer = BudgetedTimer(cuts, seconds=share_s)
    swept = sweep(_spread(sweep_timer.tasks), sweep_timer, cores=cores)
    return Models(
        curves={"hill climbing": climbed, "regression": regressed},
        accuracies={
            "hill climbing": accuracy({signature: climbed[signature] for signature in swept}, swept),
            "regression": accuracy({signature: unvisited[signature] for signature in swept}, swept),
        },
        learner=regression.learnt.learner if regression.learnt else "none: one core",
        runs={"hill climbing": climbing.runs, "regression": regression_timer.runs},
        hurried=climbing_timer.hurried + regression_timer.hurried + sweep_timer.hurried,
    )


def curves_of(graph: TaskGraph, by_signature: Mapping[str, ScalingCurve]) -> dict[int, ScalingCurve]:
    """By task of ``graph``."""
    return {task.index: by_signature[task.signature] for task in graph.tasks}


def _spread(tasks: Sequence[Task]) -> list[Task]:
    ordered = sorted(tasks, key=lambda task: (task.flops + task.bytes, task.signature))
    every = max(1, -(-len(ordered) // _SWEPT))
    return ordered[::every]
