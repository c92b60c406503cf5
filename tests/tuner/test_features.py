"""Features tell configurations apart."""

from __future__ import annotations

import numpy as np

from dwconv.schedules.space import ConfigSpace, Knob
from dwconv.tuner.search.spaces import Features, SpaceUnion
from tests import fake_tuning as fake


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
