"""Learners for a few dozen rows: ridge regression of several strengths, and boosted trees. Cross-validation chooses."""

from __future__ import annotations

from collections.abc import Callable
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


@dataclass(frozen=True, kw_only=True)
class Learnt:
    """The learner of least error on data that it had not seen, fitted to all of the data."""

    learner: str
    predict: Predict
    errors: dict[str, float]
    """By learner, the mean absolute error on unseen groups."""


def learners() -> dict[str, Learn]:
    """All of them, by name."""
    ridges: dict[str, Learn] = {f"linear, ridge {strength:g}": _ridge(strength) for strength in _RIDGES}
    return {**ridges, "xgboost": _boosted_trees}


def learnt(rows: Numbers, labels: Numbers, groups: list[int], *, weights: Numbers) -> Learnt:
    """Choose a learner by cross-validation in which rows of one group are seen or unseen together, and fit it.
    ``weights``: what an error in each row counts."""
    errors = {name: _unseen_error(learn, rows, labels, groups, weights) for name, learn in learners().items()}
    best = min(errors, key=errors.__getitem__)
    return Learnt(learner=best, predict=learners()[best](rows, labels), errors=errors)


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
            predicted: Numbers = np.clip((unseen - mean) / scale @ weights + middle, least, most)
            return predicted

        return predict

    return learn


def _boosted_trees(rows: Numbers, labels: Numbers) -> Predict:
    import xgboost

    base = float(labels.mean())
    trees = xgboost.train(_PARAMETERS, xgboost.DMatrix(rows, label=labels - base), num_boost_round=_TREES)

    def predict(unseen: Numbers) -> Numbers:
        return np.asarray(trees.predict(xgboost.DMatrix(unseen)), dtype=np.float64) + base

    return predict
