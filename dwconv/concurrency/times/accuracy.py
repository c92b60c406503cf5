"""How well a time model knows tasks, against timing every count of every task."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dwconv.concurrency.graph.task_graph import ScalingCurve, Task
from dwconv.concurrency.times.hill_climbing import Timed


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Of one model, over some tasks."""

    tasks: int
    error: float
    """Mean over tasks and counts of the difference between predicted and swept time, as a share of the swept time."""
    slower_than_best: float
    """By which share the counts that the model would choose are slower, all tasks together, than the best ones."""

    def __str__(self) -> str:
        return (
            f"{self.error:.1%} mean error over {self.tasks} tasks, chosen counts {self.slower_than_best:.1%} slower "
            "than the best"
        )


def sweep(tasks: Iterable[Task], timed: Timed, *, cores: int) -> dict[str, ScalingCurve]:
    """The measured curve of each signature: every count from 1 to all cores, timed once."""
    by_signature = {task.signature: task for task in tasks}
    return {
        signature: ScalingCurve(median_us={count: timed(task, count) for count in range(1, cores + 1)})
        for signature, task in by_signature.items()
    }


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
