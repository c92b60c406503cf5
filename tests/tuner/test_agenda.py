"""Agenda: the order of workloads, what is left out, and how the time is shared."""

from __future__ import annotations

import dataclasses

import fake_tuning as fake
import pytest

from dwconv.tuner import agenda as agenda_module
from dwconv.tuner.agenda import Agenda, without_confirmed

SMALL = dataclasses.replace(fake.WORKLOAD, channels=16)
LARGE = dataclasses.replace(fake.WORKLOAD, channels=64, bias=True)


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the test moves."""

    class Clock:
        now_s = 0.0

        def monotonic(self) -> float:
            return self.now_s

    clock = Clock()
    monkeypatch.setattr(agenda_module, "time", clock)
    return clock


def test_what_was_confirmed_on_this_device_is_left_out():
    config = fake.space(SMALL, fake.TARGET).default
    trial, other = (fake.record(workload, config, median_us=1.0) for workload in (SMALL, LARGE))
    elsewhere = dataclasses.replace(other, confirmed=True, device="elsewhere")
    records = [trial, dataclasses.replace(trial, confirmed=True), other, elsewhere]
    assert without_confirmed([SMALL, LARGE], records, fake.TARGET) == [LARGE]
    old = dataclasses.replace(other, confirmed=True, versions={**other.versions, "torch": "2.1.0"})
    assert without_confirmed([SMALL, LARGE], [*records, old], fake.TARGET) == [LARGE], "with another PyTorch"


def shares(clock, *, total_s, seconds, takes):
    """The seconds that each of five searches gets if it then takes ``takes(seconds)``."""
    given = []
    for _, share_s in Agenda(workloads=[SMALL] * 5, seconds=seconds, total_s=total_s):
        given.append(share_s)
        clock.now_s += takes(share_s)
    return given


def test_without_a_total_each_gets_its_seconds(clock):
    assert shares(clock, total_s=None, seconds=20, takes=lambda s: s) == [20] * 5
    assert shares(clock, total_s=None, seconds=None, takes=lambda s: 1) == [None] * 5


def test_the_time_is_shared_evenly_and_kept(clock):
    given = shares(clock, total_s=50, seconds=20, takes=lambda s: s + 3)
    assert given == pytest.approx([7] * 5)
    assert clock.now_s == pytest.approx(50)


def test_what_one_leaves_over_the_others_share(clock):
    given = shares(clock, total_s=100, seconds=30, takes=lambda s: 1)
    assert given == sorted(given) and given[-1] == 30


def test_too_little_time_leaves_the_last_ones_out(clock):
    given = shares(clock, total_s=18, seconds=20, takes=lambda s: s + 3)
    assert given == [agenda_module.LEAST_S] * 3
    assert clock.now_s <= 18


def test_a_slow_start_does_not_end_it(clock):
    takes = iter([20.0, 5.0, 5.0])
    given = []
    for _, share_s in Agenda(workloads=[SMALL] * 3, seconds=None, total_s=31):
        given.append(share_s)
        clock.now_s += next(takes)
    assert len(given) == 3
