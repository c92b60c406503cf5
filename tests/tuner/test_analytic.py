"""Spearman's ρ judges an order; features tell configurations apart."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dwconv.schedules.space import ConfigSpace, Knob
from dwconv.tuner.search.analytic import rank_correlation
from dwconv.tuner.search.spaces import Features, SpaceUnion
from tests import fake_tuning as fake


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


def spaces() -> SpaceUnion:
    other = ConfigSpace("fake.other", Knob("tile_w", [1, 2, 4]), Knob("lanes", [0, 8]))
    return SpaceUnion([fake.space(fake.WORKLOAD, fake.TARGET), other])


def test_features_tell_all_configurations_apart_and_are_numbers_or_missing():
    union = spaces()
    configs = list(union)
    rows = Features(union, fake.WORKLOAD).rows(configs)
    assert len(np.unique(np.nan_to_num(rows, nan=-99), axis=0)) == len(configs)
    assert not np.isinf(rows).any()


def test_features_spell_out_tiles_and_waste():
    union = SpaceUnion([ConfigSpace("fake.one", Knob("tile_w", [1, 8]))])
    narrow, wide = Features(union, fake.WORKLOAD).rows(list(union))  # 28 columns
    assert 28.0 in 2**narrow and 1.0 in narrow
    assert 4.0 in 2**wide and np.float32(32 / 28) in wide
