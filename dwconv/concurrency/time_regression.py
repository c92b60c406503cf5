"""A task's time by its number of threads, predicted from a few profiled runs by a model fitted on some tasks.

some tasks   every count timed    ──► learner: what a guess from the profile must be multiplied by
every task   profile: 1 thread, and all cores where there are more than two
             ──► guess (Amdahl through the profile) × learner = curve
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dwconv.concurrency.hill_climbing import Timed, amdahl_us
from dwconv.concurrency.schedule import ScalingCurve, Task

TRAINED_ON = 16
"""Signatures whose every count is timed, by default."""


class Regression:
    """Curves of tasks by regression. ``fit`` comes first; then a new signature costs the runs of its profile alone."""

    def __init__(self, *, cores: int) -> None:
        self._cores = cores
        self._profiles: dict[str, Profile] = {}
        self._known: dict[str, ScalingCurve] = {}
        self.learnt: Learnt | None = None
        """None before ``fit``, and where the profile has every count."""

    @property
    def profiled_counts(self) -> tuple[int, ...]:
        """Thread counts that are timed. With two cores one of them is left to be predicted."""
        return (1, self._cores) if self._cores > 2 else (1,)

    def fit(self, tasks: Sequence[Task], timed: Timed, *, trained_on: int = TRAINED_ON) -> None:
        """Time every count of ``trained_on`` signatures of ``tasks``, small and large ones, and learn from them."""
        chosen = _spread(tasks, count=trained_on)
        self._known |= sweep(chosen, timed, cores=self._cores)
        rows, labels, weights, groups = [], [], [], []
        for group, task in enumerate(chosen):
            profile = self._profile(task, timed)
            for count in self._predicted_counts():
                ratio = self._known[task.signature].median_us[count] / self._guess_us(profile, count)
                rows.append(self._row(task, profile, count))
                labels.append(math.log(ratio) / self._distance(count))
                weights.append(self._distance(count))
                groups.append(group)
        if rows:
            self.learnt = learnt(np.array(rows), np.array(labels), groups, weights=np.array(weights))

    def curve(self, task: Task, timed: Timed) -> ScalingCurve:
        """The time of ``task`` for 1 to all cores: measured if the model was fitted on it, else predicted."""
        return self._known.get(task.signature) or self.predicted(task, timed)

    def predicted(self, task: Task, timed: Timed) -> ScalingCurve:
        """The prediction for ``task``, even if the model was fitted on it. Calls ``timed`` for a new signature only."""
        profile = self._profile(task, timed)
        us = dict(profile)
        counts = self._predicted_counts()
        if counts:
            assert self.learnt is not None, "fit comes first"
            rows: Numbers = np.array([self._row(task, profile, count) for count in counts])
            for count, label in zip(counts, self.learnt.predict(rows).tolist(), strict=True):
                us[count] = self._guess_us(profile, count) * math.exp(label * self._distance(count))
        return ScalingCurve(median_us={count: us[count] for count in sorted(us)})

    def _predicted_counts(self) -> list[int]:
        return [count for count in range(1, self._cores + 1) if count not in self.profiled_counts]

    def _profile(self, task: Task, timed: Timed) -> Profile:
        if task.signature not in self._profiles:
            known = self._known.get(task.signature)
            self._profiles[task.signature] = {
                count: known.median_us[count] if known else timed(task, count) for count in self.profiled_counts
            }
        return self._profiles[task.signature]

    def _guess_us(self, profile: Profile, count: int) -> float:
        if len(self.profiled_counts) == 1:
            return profile[1] / count
        return amdahl_us(count, one_us=profile[1], all_us=profile[self._cores], cores=self._cores)

    def _distance(self, count: int) -> float:
        """How far a count is from those profiled: there the guess needs no correction."""
        return min(abs(math.log2(count / profiled)) for profiled in self.profiled_counts)

    def _row(self, task: Task, profile: Profile, count: int) -> list[float]:
        return [math.log2(count), *features(task, profile)]


def sweep(tasks: Iterable[Task], timed: Timed, *, cores: int) -> dict[str, ScalingCurve]:
    """The measured curve of each signature: every count from 1 to all cores, timed once."""
    by_signature = {task.signature: task for task in tasks}
    return {
        signature: ScalingCurve(median_us={count: timed(task, count) for count in range(1, cores + 1)})
        for signature, task in by_signature.items()
    }


def _spread(tasks: Sequence[Task], *, count: int) -> list[Task]:
    """One task of each of at most ``count`` signatures, evenly from the least work to the most."""
    by_signature = {task.signature: task for task in tasks}
    by_work = sorted(by_signature.values(), key=lambda task: (task.flops + task.bytes, task.signature))
    if len(by_work) <= count:
        return by_work
    places = np.linspace(0, len(by_work) - 1, count).round().astype(int)
    return [by_work[place] for place in places]


# -- features of a task for any number of threads ----------------------------------------------------------------------


_SIZES = re.compile(r"[(\[](\d+(?:, ?\d+)*),?[)\]]")
"""Lists of numbers in a signature: shapes and strides."""


Profile = Mapping[int, float]
"""A few timed runs of a task, by number of threads; one thread is among them."""


def features(task: Task, profile: Profile) -> list[float]:
    """Numbers on which the scaling of a task depends, on logarithmic scales where only ratios matter."""
    one_us = profile[1]
    return [
        _log(one_us),
        *(_log(us / one_us) for count, us in sorted(profile.items()) if count > 1),
        _log(task.flops / one_us),
        _log(task.bytes / one_us),
        _log(task.flops / max(1, task.bytes)),
        _log(task.bytes),
        *_shape(task.signature),
        float("convolution" in task.kind),
        float("backward" in task.kind),
        float("mm" in task.kind),
        float("norm" in task.kind),
    ]


def _shape(signature: str) -> list[float]:
    """Of the largest list of sizes: how many elements, and its first and last size."""
    lists = [[int(size) for size in found.split(",")] for found in _SIZES.findall(signature)]
    largest = max(lists, key=math.prod, default=[1])
    return [_log(math.prod(largest)), _log(largest[0]), _log(largest[-1])]


def _log(value: float) -> float:
    return math.log(max(value, 1e-6))


# -- learners for a few dozen rows -------------------------------------------------------------------------------------


Numbers = NDArray[np.float64]
Predict = Callable[[Numbers], Numbers]
"""From rows of features to labels."""
Learn = Callable[[Numbers, Numbers], Predict]
"""From rows of features and their labels to a prediction."""

_RIDGES = (0.1, 1.0, 10.0, 100.0, 1000.0)
_TREES = 60
_PARAMETERS = {"max_depth": 3, "eta": 0.1, "min_child_weight": 1, "lambda": 1.0, "nthread": 1, "seed": 0}
_FOLDS = 4


@dataclass(frozen=True, kw_only=True)
class Learnt:
    """The learner of least error on held-out data, fitted to all of the data."""

    learner: str
    predict: Predict


def learners() -> dict[str, Learn]:
    """All of them, by name."""
    ridges: dict[str, Learn] = {f"linear, ridge {strength:g}": _ridge(strength) for strength in _RIDGES}
    return {**ridges, "xgboost": _boosted_trees}


def learnt(rows: Numbers, labels: Numbers, groups: list[int], *, weights: Numbers) -> Learnt:
    """Choose a learner by cross-validation that holds out the rows of whole groups, and fit it.
    ``weights``: what an error in each row counts."""
    errors = {name: _unseen_error(learn, rows, labels, groups, weights) for name, learn in learners().items()}
    best = min(errors, key=errors.__getitem__)
    return Learnt(learner=best, predict=learners()[best](rows, labels))


def _unseen_error(learn: Learn, rows: Numbers, labels: Numbers, groups: list[int], weights: Numbers) -> float:
    fold = np.array(groups) % _FOLDS
    errors = []
    for left_out in sorted(set(fold.tolist())):
        unseen = fold == left_out
        if unseen.all():
            return 0.0  # a single fold: nothing to choose by, and the first learner, a linear one, is kept
        predict = learn(rows[~unseen], labels[~unseen])
        errors += (weights[unseen] * np.abs(predict(rows[unseen]) - labels[unseen])).tolist()
    return float(np.mean(errors))


def _ridge(strength: float) -> Learn:
    """Least squares with a penalty on the weights of standardised features; what is constant gets no weight."""

    def learn(rows: Numbers, labels: Numbers) -> Predict:
        mean, scale = rows.mean(axis=0), rows.std(axis=0)
        scale[scale < 1e-9] = np.inf
        standard = (rows - mean) / scale
        penalised = standard.T @ standard + strength * np.eye(rows.shape[1])
        weights = np.linalg.solve(penalised, standard.T @ (labels - labels.mean()))
        least, most, middle = labels.min(), labels.max(), labels.mean()

        def predict(unseen: Numbers) -> Numbers:
            # Features far from those seen must not lead to times that no task had.
            return np.clip((unseen - mean) / scale @ weights + middle, least, most)

        return predict

    return learn


def _boosted_trees(rows: Numbers, labels: Numbers) -> Predict:
    import xgboost

    base = float(labels.mean())
    trees = xgboost.train(_PARAMETERS, xgboost.DMatrix(rows, label=labels - base), num_boost_round=_TREES)

    def predict(unseen: Numbers) -> Numbers:
        return np.asarray(trees.predict(xgboost.DMatrix(unseen)), dtype=np.float64) + base

    return predict
