"""Learners for a few dozen rows: which features, and which learner, say most about tasks that were not seen.

features  one by one, each time the one with which the error on held-out tasks falls most, while it falls
learner   ridge regression of several strengths, or boosted trees; on the selected features, or on all
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Predict = Callable[[Numbers], Numbers]
"""From rows of features to labels."""
Learn = Callable[[Numbers, Numbers], Predict]
"""From rows of features and their labels to a prediction."""

_RIDGES = (0.1, 1.0, 10.0, 100.0, 1000.0)
_TREES = 60
_PARAMETERS = {"max_depth": 3, "eta": 0.1, "min_child_weight": 1, "lambda": 1.0, "nthread": 1, "seed": 0}
_FOLDS = 4
_MOST_FEATURES = 8
_LEAST_GAIN = 0.01
"""A feature is taken if the error falls by this share."""


@dataclass(frozen=True, kw_only=True)
class Learnt:
    """The learner of least error on held-out data, fitted to all of the data."""

    learner: str
    features: tuple[str, ...]
    """Those that it uses, those first that say most; all of them, in their order, if none were selected."""
    error: float
    """Mean absolute error of labels on held-out data; 0 if there was too little data to hold any out."""
    predict: Predict
    """From rows of all features."""


def learners() -> dict[str, Learn]:
    """All of them, by name."""
    ridges: dict[str, Learn] = {f"linear, ridge {strength:g}": _ridge(strength) for strength in _RIDGES}
    return {**ridges, "xgboost": _boosted_trees}


def learnt(
    rows: Numbers, labels: Numbers, groups: list[int], *, weights: Numbers, names: Sequence[str] | None = None
) -> Learnt:
    """Choose features and a learner by cross-validation that holds out the rows of whole groups, and fit it.
    ``weights``: what an error in each row counts. ``names``: of the features, the first of which is always used."""
    folds = _Folds(rows, labels, groups, weights)
    every = list(range(rows.shape[1]))
    names = names or [f"feature {place}" for place in every]
    selected = _selected(folds, every)
    choices = [(columns, name) for columns in (selected, every) for name in learners()]
    errors = [folds.error(learners()[name], columns) for columns, name in choices]
    best = int(np.argmin(errors))
    columns, name = choices[best]
    predict = learners()[name](rows[:, columns], labels)
    return Learnt(
        learner=name,
        features=tuple(names[column] for column in columns),
        error=errors[best],
        predict=lambda unseen: predict(unseen[:, columns]),
    )


def _selected(folds: _Folds, every: list[int]) -> list[int]:
    """The features that say most, chosen one after the other; all of them if nothing can be held out."""
    if not folds.can_hold_out:
        return every
    chosen, learn = every[:1], _ridge(1.0)
    error = folds.error(learn, chosen)
    while len(chosen) < _MOST_FEATURES:
        left = [column for column in every if column not in chosen]
        errors = [folds.error(learn, [*chosen, column]) for column in left]
        if not errors or min(errors) > (1 - _LEAST_GAIN) * error:
            break
        error = min(errors)
        chosen.append(left[errors.index(error)])
    return chosen


class _Folds:
    """Rows, of which a part is held out at a time."""

    def __init__(self, rows: Numbers, labels: Numbers, groups: list[int], weights: Numbers) -> None:
        self._rows, self._labels, self._weights = rows, labels, weights
        fold = np.array(groups) % _FOLDS
        self._unseen = [fold == left_out for left_out in sorted(set(fold.tolist()))]

    @property
    def can_hold_out(self) -> bool:
        return len(self._unseen) > 1

    def error(self, learn: Learn, columns: list[int]) -> float:
        """The mean error on rows that were held out; 0 for a single fold: the first learner, a linear one, is kept."""
        if not self.can_hold_out:
            return 0.0
        rows, labels, errors = self._rows[:, columns], self._labels, []
        for unseen in self._unseen:
            predict = learn(rows[~unseen], labels[~unseen])
            errors += (self._weights[unseen] * np.abs(predict(rows[unseen]) - labels[unseen])).tolist()
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
