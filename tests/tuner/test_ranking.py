"""Spearman's ρ."""

from __future__ import annotations

import random

import pytest

from dwconv.tuner.search.analytic import rank_correlation


def test_the_order_alone_counts() -> None:
    values = [3.0, 1.0, 2.0, 10.0]
    assert rank_correlation(values, [value**3 for value in values]) == pytest.approx(1)
    assert rank_correlation(values, [-value for value in values]) == pytest.approx(-1)
    assert rank_correlation([1, 2, 3, 4], [2, 1, 4, 3]) == pytest.approx(0.6)


def test_equals_share_their_place() -> None:
    assert rank_correlation([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(0.9486832980505138)
    assert rank_correlation([5, 5, 5], [1, 2, 3]) == 0


def test_what_has_nothing_to_do_with_each_other_hardly_agrees() -> None:
    rng = random.Random(0)
    one, other = ([rng.random() for _ in range(1000)] for _ in range(2))
    assert abs(rank_correlation(one, other)) < 0.1
