"""Both models of times against a sweep of every number of threads: ``bench concurrency --models`` prints this alone.

    hill climbing               times a few counts of each task
    regression                  times one or two, and predicts the others; from counters too
    regression, no counters     from the same times, without counters

Tasks that the regression was fitted on are left out where there are others, and those that there was no time for.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dwconv.concurrency.counters import NONE, available
from dwconv.concurrency.hill_climbing import HillClimbing
from dwconv.concurrency.program import Program
from dwconv.concurrency.schedules_to_try import fitted_to
from dwconv.concurrency.task_graph import ScalingCurve, Task
from dwconv.concurrency.task_timer import TaskTimer, TimeLeft
from dwconv.concurrency.time_regression import Counts, Regression, sweep
from dwconv.concurrency.topology import topology

Curves = Mapping[str, ScalingCurve]
"""By signature."""
_SWEPT = 40
"""Signatures against which the models of times are held, spread evenly over those there are."""
CLIMBING, COUNTED, UNCOUNTED = "hill climbing", "regression", "regression, no counters"


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Of one model, over some tasks."""

    tasks: int
    error: float
    """Mean over tasks and counts of the difference between predicted and swept time, as a share of the swept time."""
    slower_than_best: float
    """By which share the counts that the model would choose are slower, all tasks together, than the best ones."""
    timed: int
    """How many times a task was timed with one number of threads, over all tasks."""
    uses: str = ""
    """What the model was fitted to; empty if it was fitted to nothing."""


def accuracy(predicted: Curves, swept: Curves, *, timed: int = 0, uses: str = "") -> Accuracy:
    """``predicted`` against ``swept``, by signature."""
    errors: list[float] = []
    chosen_us = best_us = 0.0
    for signature, curve in swept.items():
        errors += [abs(predicted[signature].median_us[count] - us) / us for count, us in curve.median_us.items()]
        chosen_us += curve.median_us[predicted[signature].best_threads()]
        best_us += min(curve.median_us.values())
    return Accuracy(
        tasks=len(swept), error=statistics.mean(errors), slower_than_best=chosen_us / best_us - 1, timed=timed,
        uses=uses,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Models:
    """Curves of both models, each from measurements of its own, and how good they are."""

    climbed: Curves
    regressed: Curves
    accuracies: Mapping[str, Accuracy]
    """By model; empty if there was no time to sweep any task."""
    estimated: int
    """Times that there was no time for."""


def measured_models(programs: Sequence[Program], *, cores: int, seconds: float) -> Models:
    """Fit both models to the tasks within about so many seconds, and sweep a part of them."""
    cuts = [program.cut for program in programs]
    tasks = [*{task.signature: task for cut in cuts for task in cut.graph.tasks}.values()]
    where = topology(cores)
    by_climbing = TaskTimer(cuts, budget=TimeLeft(seconds / 3), topology=where)
    counts, climbing = HillClimbing(cores=cores), HillClimbing(cores=cores, topology=where)
    climbed_counts = {task.signature: counts.curve(task, by_climbing) for task in tasks}
    climbed = {task.signature: climbing.curve(task, by_climbing) for task in tasks}  # the same, and groupings
    by_regression = TaskTimer(cuts, budget=TimeLeft(seconds / 3))
    counted = Regression(cores=cores, counts=Counts(events=available().events, of=by_regression.counts))
    uncounted = Regression(cores=cores)
    for model in (counted, uncounted):
        model.fit(tasks, by_regression)
    regressed = {task.signature: counted.curve(task, by_regression) for task in tasks}
    unseen = [task for task in tasks if task.signature not in counted.fitted_on] or tasks
    by_sweep = TaskTimer(cuts, budget=TimeLeft(seconds / 3))
    spread = _spread(unseen)
    every = sweep(spread, by_sweep, cores=cores)
    timers = (by_climbing, by_regression, by_sweep)
    swept = {
        task.signature: every[task.signature]
        for task in spread
        if all(timer.has_measured(task, 1) for timer in timers)
        and all(by_sweep.has_measured(task, count) for count in range(1, cores + 1))
    }
    estimated = sum(timer.estimated for timer in timers)
    if not swept:
        return Models(climbed=climbed, regressed=regressed, accuracies={}, estimated=estimated)
    accuracies = {CLIMBING: accuracy(climbed_counts, swept, timed=by_climbing.measured)}
    models = {COUNTED: counted, UNCOUNTED: uncounted}
    if available().kind == NONE:
        del models[UNCOUNTED]  # it is the same
    for name, model in models.items():
        predicted = {task.signature: model.predicted(task, by_regression) for task in unseen}
        accuracies[name] = accuracy(predicted, swept, timed=by_regression.measured, uses=fitted_to(model))
    return Models(
        climbed=climbed,
        regressed=regressed,
        accuracies=accuracies,
        estimated=estimated,
    )


def _spread(tasks: Sequence[Task]) -> list[Task]:
    ordered = sorted(tasks, key=lambda task: (task.flops + task.bytes, task.signature))
    return ordered[:: max(1, -(-len(ordered) // _SWEPT))]
