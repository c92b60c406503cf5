"""The Gaussian process ranks what it has not seen from a handful of candidates, and gives its deviations. No two
configurations have the same features."""

from __future__ import annotations

import math
import random

import numpy as np

from dwconv.schedules.space import ConfigSpace, Knob
from dwconv.tuner.search import evolve
from dwconv.tuner.search.evolve import GaussianProcess, Prior
from dwconv.tuner.search.space_union import Features, SpaceUnion
from tests import fake_tuning as fake

UNION = SpaceUnion([
    fake.space(fake.WORKLOAD, fake.TARGET), ConfigSpace("fake.other", Knob("tile_w", [1, 2, 4]), Knob("lanes", [0, 8]))
])  # fmt: skip
CONFIGS = [config for config in UNION if config.template == "fake.fprop"]


def nothing(config) -> float:
    return 0.0


def close(config) -> float:
    """An estimate that knows all but the order of the loops."""
    return math.log2(fake.time_us(config)) + (0.7 if config.order == "channels_outer" else 0.0)


def model(prior: Prior = nothing) -> GaussianProcess:
    sample = random.Random(9).sample(list(UNION), k=200)
    return GaussianProcess(Features(UNION, fake.WORKLOAD), prior=prior, sample=sample)


def times(count: int, *, seed: int) -> dict:
    return {config: fake.time_us(config) for config in random.Random(seed).sample(CONFIGS, k=count)}


def agreement(process: GaussianProcess, seen: dict) -> float:
    """Rank correlation with the true times of what it has not seen."""
    process.fit(seen)
    rest = [config for config in CONFIGS if config not in seen]
    predicted, true = process.predict(rest), [fake.time_us(config) for config in rest]
    return np.corrcoef(*(np.argsort(np.argsort(values)) for values in (predicted, true)))[0, 1]


def test_ranks_what_it_has_not_seen_the_better_the_more_it_has_seen():
    found = {count: np.mean([agreement(model(), times(count, seed=seed)) for seed in range(5)]) for count in (16, 64)}
    assert 0.4 < found[16] < found[64] and found[64] > 0.75


def test_corrects_the_estimate_from_a_handful():
    blind, told = (np.mean([agreement(model(prior), times(8, seed=s)) for s in range(5)]) for prior in (nothing, close))
    assert told > max(0.9, blind)


def test_predicts_the_estimate_until_a_candidate_has_worked():
    process = model(close)
    expected = [close(config) for config in CONFIGS[:50]]
    assert process.predict(CONFIGS[:50]).tolist() == expected
    process.fit(dict.fromkeys(CONFIGS[:3]))
    assert process.predict(CONFIGS[:50]).tolist() == expected
    best = sorted(CONFIGS[:50], key=close)[:4]
    assert [close(config) for config in process.choose(CONFIGS[:50], 4)] == [close(config) for config in best]
    assert process.predict([]).shape == (0,) and process.choose([], 3) == []
    process.fit(times(1, seed=5))
    assert np.isfinite(process.predict(CONFIGS)).all()


def test_failed_candidates_are_learnt_as_slower_than_all_others():
    process = model()
    seen = random.Random(2).sample(CONFIGS, k=100)
    process.fit({config: None if config.tile_w == 1 else 10.0 for config in seen})
    predicted = process.predict(seen)
    failed = np.array([config.tile_w == 1 for config in seen])
    assert predicted[failed].min() > predicted[~failed].max() + 0.3


def test_what_is_uncertain_is_promising(monkeypatch):
    process, seen = model(), dict.fromkeys(CONFIGS[:20], 10.0)
    process.fit({**seen, CONFIGS[20]: 20.0})
    known, unknown = list(seen), CONFIGS[-20:]
    eager = process.predict(unknown).mean() - process.predict(known).mean()
    monkeypatch.setattr(evolve, "OPTIMISM", 0.0)
    assert eager < process.predict(unknown).mean() - process.predict(known).mean() - 0.01


def test_those_chosen_together_differ_more_than_the_most_promising(monkeypatch):
    monkeypatch.setattr(evolve, "OPTIMISM", 2.0)
    process = model()
    process.fit(times(12, seed=0))
    predicted = process.predict(CONFIGS)
    promising = [CONFIGS[at] for at in np.argsort(predicted, kind="stable")[:8]]
    chosen = process.choose(CONFIGS, 8)
    assert chosen[0] == promising[0] and len(set(chosen)) == 8
    assert spread(chosen) > 1.1 * spread(promising)


def spread(configs: list) -> float:
    """Knobs in which two of them differ, on average."""
    pairs = [(one, other) for at, one in enumerate(configs) for other in configs[:at]]
    differing = [sum(a != b for a, b in zip(one.values, other.values, strict=True)) for one, other in pairs]
    return sum(differing) / len(pairs)


def test_of_very_many_it_learns_from_the_fastest_and_some_of_the_rest(monkeypatch):
    monkeypatch.setattr(evolve, "_MOST", 40)
    process, seen = model(), times(400, seed=4)
    process.fit(seen)
    posterior = process._posterior
    assert posterior is not None and len(posterior.rows) == 40
    assert agreement(process, seen) > 0.5


def test_features_of_all_configurations_differ_and_are_numbers_or_missing():
    configs = list(UNION)
    rows = Features(UNION, fake.WORKLOAD).rows(configs)
    assert len(np.unique(np.nan_to_num(rows, nan=-99), axis=0)) == len(configs)
    assert not np.isinf(rows).any()
    union = SpaceUnion([ConfigSpace("fake.one", Knob("tile_w", [1, 8]))])
    narrow, wide = Features(union, fake.WORKLOAD).rows(list(union))  # 28 columns: tiles and waste are spelt out
    assert 28.0 in 2**narrow and 1.0 in narrow
    assert 4.0 in 2**wide and np.float32(32 / 28) in wide
