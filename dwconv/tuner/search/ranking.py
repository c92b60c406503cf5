"""Spearman's ρ, the rank correlation: do two measures put the same things in the same order?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """1 for the same order, −1 for the reverse; 0 for no relation, or if either measure is constant."""
    first, second = _ranks(one), _ranks(other)
    spread = float(first.std() * second.std())
    return float(((first - first.mean()) * (second - second.mean())).mean()) / spread if spread else 0.0


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Ranks; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse], np.float64)
