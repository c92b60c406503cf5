"""Similar: whose best configurations a search starts from."""

from __future__ import annotations

import dataclasses

from dwconv.records.record import Status
from dwconv.schedules.space import Config
from dwconv.untuned.starts import bests_of_similar
from tests import fake_tuning as fake

CONFIGS = [Config.of("fake.fprop", block_h=value) for value in range(6)]


def of(config: Config, *, median_us: float | None = 1.0, **changes: object):
    return fake.record(dataclasses.replace(fake.WORKLOAD, **changes), config, median_us=median_us)


def found(*records, count: int = 9) -> list[Config]:
    return [each.config for each in bests_of_similar(fake.WORKLOAD, records, count=count)]


def test_the_nearest_come_first():
    records = [
        of(CONFIGS[0], channels=384),
        of(CONFIGS[1], channels=144),
        of(CONFIGS[2], kernel=(5, 5), padding=((2, 2), (2, 2))),
        of(CONFIGS[3], stride=(2, 2), input_size=(56, 56)),
        of(CONFIGS[4], input_size=(24, 24)),
        of(CONFIGS[5], batch=1),
    ]
    assert found(*records) == [CONFIGS[i] for i in (5, 4, 1, 0, 2, 3)]
    assert found(*records, count=2) == [CONFIGS[5], CONFIGS[4]]


def test_of_each_workload_the_best_counts():
    confirmed = dataclasses.replace(of(CONFIGS[0], channels=128, median_us=9.0), confirmed=True)
    assert found(of(CONFIGS[1], channels=128), confirmed, of(CONFIGS[2], channels=128)) == [CONFIGS[0]]
    failed = dataclasses.replace(of(CONFIGS[1], channels=64, median_us=None), status=Status.CRASHED)
    assert found(failed) == []


def test_the_workload_itself_comes_first():
    assert found(of(CONFIGS[0], batch=9), of(CONFIGS[1])) == [CONFIGS[1], CONFIGS[0]]


def test_what_cannot_be_compared_is_no_start():
    strangers = ({"pass_": "wgrad"}, {"layout": "nchw"})
    assert found(*(of(CONFIGS[0], **changes) for changes in strangers)) == []


def test_numbers_of_the_same_width_are_nearer_than_others():
    wide, narrow = of(CONFIGS[0]), of(CONFIGS[1], dtype="float16")
    half = dataclasses.replace(fake.WORKLOAD, dtype="bfloat16")
    similar = bests_of_similar(half, [wide, narrow, of(CONFIGS[2], dtype="bfloat16", batch=1)], count=3)
    assert [each.config for each in similar] == [CONFIGS[2], CONFIGS[1], CONFIGS[0]]
    assert [each.octaves for each in similar][1:] == [1.0, 4.0]


def test_how_far_it_is_counts_the_batch_too():
    (near,) = bests_of_similar(fake.WORKLOAD, [of(CONFIGS[0], batch=32, channels=192)], count=1)
    assert near.octaves == 3.0
    (same,) = bests_of_similar(fake.WORKLOAD, [of(CONFIGS[0])], count=1)
    assert same.octaves == 0.0
