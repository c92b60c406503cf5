"""Stakes: what there is to win says what comes first."""

from __future__ import annotations

import dataclasses

import fake_tuning as fake

from dwconv.tuner.stakes import most_to_win_first
from dwconv.workload import PASSES

SMALL = dataclasses.replace(fake.WORKLOAD, channels=16, input_size=(14, 14))
LARGE = dataclasses.replace(fake.WORKLOAD, channels=96, input_size=(56, 56))


def first_of(counts, *records):
    return most_to_win_first(counts, fake.TARGET, records)


def test_large_passes_come_first_unless_small_ones_run_often():
    assert first_of({SMALL: 1, LARGE: 1}) == [LARGE, SMALL]
    assert first_of({SMALL: 1000, LARGE: 1}) == [SMALL, LARGE]


def test_the_passes_of_a_layer_stay_together():
    small, large = ([layer.for_pass(pass_) for pass_ in PASSES] for layer in (SMALL, LARGE))
    mixed = [small[0], large[0], small[1], large[1], small[2], large[2]]
    assert first_of(dict.fromkeys(mixed, 1)) == [*large, *small]


def test_what_pytorch_is_slow_at_comes_first():
    kernel = {"kernel": (7, 7), "padding": ((3, 3), (3, 3))}
    layers = (dataclasses.replace(LARGE, channels=channels, **kernel) for channels in (96, 64))
    fprop, wgrad = (layer.for_pass(pass_) for layer, pass_ in zip(layers, ("fprop", "wgrad"), strict=True))
    assert first_of({fprop: 1, wgrad: 1}) == [wgrad, fprop]


def test_where_something_was_measured_little_is_left_to_win():
    config = fake.space(LARGE, fake.TARGET).default
    measured = fake.record(LARGE, config, median_us=100.0)
    assert first_of({SMALL: 1, LARGE: 1}, dataclasses.replace(measured, device="elsewhere")) == [LARGE, SMALL]
    half = dataclasses.replace(LARGE, channels=48)
    assert first_of({half: 1, LARGE: 1}, measured) == [half, LARGE]
    old = dataclasses.replace(measured, versions={**measured.versions, "torch": "2.1.0"})
    assert first_of({half: 1, LARGE: 1}, old) == [LARGE, half], "with another PyTorch"
