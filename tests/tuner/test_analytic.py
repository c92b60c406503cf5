"""The regression learns from the candidates so far; Spearman's ρ judges an order."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dwconv.schedules.space import ConfigSpace, Knob
from dwconv.tuner.search.analytic import Regression, rank_correlation
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


def model(union: SpaceUnion) -> Regression:
    return Regression(Features(union, fake.WORKLOAD), seed=0)


def sample(union: SpaceUnion, count: int, *, seed: int) -> list:
    return random.Random(seed).sample([c for c in union if c.template == "fake.fprop"], k=count)


def ranks(values) -> np.ndarray:
    return np.argsort(np.argsort(values))


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


def test_learns_to_rank_what_it_has_not_seen():
    union = spaces()
    seen, unvisited = np.split(np.array(sample(union, 240, seed=1), dtype=object), [120])
    regression = model(union)
    regression.fit({config: fake.time_us(config) for config in seen})
    predicted = regression.predict(list(unvisited))
    true = [fake.time_us(config) for config in unvisited]
    assert np.corrcoef(ranks(predicted), ranks(true))[0, 1] > 0.85


def test_failed_candidates_are_learnt_as_slower_than_all_others():
    union = spaces()
    seen = sample(union, 200, seed=2)
    regression = model(union)
    regression.fit({config: None if config.tile_w == 1 else 10.0 for config in seen})
    predicted = regression.predict(seen)
    failed = np.array([config.tile_w == 1 for config in seen])
    assert predicted[failed].min() > predicted[~failed].max() + 0.5


def test_same_records_give_the_same_predictions_in_whatever_order():
    union = spaces()
    seen = sample(union, 60, seed=3)
    first, second = model(union), model(union)
    first.fit({config: fake.time_us(config) for config in seen})
    second.fit({config: fake.time_us(config) for config in reversed(seen)})
    assert (first.predict(seen) == second.predict(seen)).all()


def test_knows_nothing_before_anything_worked():
    union = spaces()
    regression = model(union)
    regression.fit(dict.fromkeys(sample(union, 5, seed=4)))
    assert (regression.predict(sample(union, 5, seed=5)) == 0).all()
    assert regression.predict([]).shape == (0,)
