"""Agenda: the order of workloads, what is left out, and how the time is shared."""

from __future__ import annotations

import dataclasses

import pytest

from dwconv.records.database import Database
from dwconv.tuner import agenda as agenda_module
from dwconv.tuner.agenda import Agenda, Sharing, in_proportion, without_searched
from tests import fake_tuning as fake

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
    assert without_searched([SMALL, LARGE], Database.of(records), fake.TARGET) == [LARGE]
    raced = dataclasses.replace(other, confirmed=True, raced=True)
    assert without_searched([SMALL, LARGE], Database.of([*records, raced]), fake.TARGET) == [LARGE], (
        "a race is no search"
    )
    old = dataclasses.replace(other, confirmed=True, versions={**other.versions, "torch": "2.1.0"})
    assert without_searched([SMALL, LARGE], Database.of([*records, old]), fake.TARGET) == [LARGE], (
        "with another PyTorch"
    )


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


def test_machines_side_by_side_share_the_time_of_all_of_them(clock):
    first, second, third, fourth = [dataclasses.replace(SMALL, channels=channels) for channels in (1, 2, 3, 4)]
    sharing = Sharing(Agenda(workloads=[first, second, third, fourth], seconds=None, total_s=46))
    sharing.join("a")
    sharing.join("b")
    assert sharing.next("a") == (first, pytest.approx(20)) and sharing.next("b") == (second, pytest.approx(20))
    clock.now_s = 23
    sharing.ended("a")
    assert sharing.next("a") == (third, pytest.approx(20)), "the other one is about to be free"
    sharing.leave("b")
    sharing.back(second)
    clock.now_s = 30
    sharing.ended("a")
    assert sharing.left == 2 and sharing.next("a") == (second, pytest.approx((16 - 2 * 1.5) / 2)), (
        "what is left of its own"
    )


def test_no_search_of_several_machines_goes_on_beyond_the_end(clock):
    sharing = Sharing(Agenda(workloads=[SMALL], seconds=None, total_s=23))
    for machine in range(8):
        sharing.join(machine)
    assert sharing.next(0) == (SMALL, 20)


# -- in proportion -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "total", "most", "parts"),
    [
        ([6, 3, 1], 100, None, [60, 30, 10]),
        ([60, 3, 1], 100, 40, [40, 40, 20]),
        ([1000, 100, 0], 100, None, [98 * 10 / 11, 98 / 11, 2]),
        ([1e9, 1, 1], 100, None, [96, 2, 2]),
        ([0, 0], 30, 20, [15, 15]),
        ([5, 1], 3, None, [2, 2]),
        ([5, 1], 1000, 20, [20, 20]),
    ],
    ids=["plain", "capped", "floor", "far apart", "nothing to win", "too little time", "too much time"],
)
def test_time_goes_where_there_is_most_to_win(weights, total, most, parts):
    assert in_proportion(weights, total=total, least=2, most=most) == pytest.approx(parts, rel=1e-6)


def test_searches_get_time_by_their_stakes_and_what_one_leaves_goes_to_the_others(clock):
    given = {}
    agenda = Agenda(workloads=[LARGE, SMALL], seconds=None, total_s=66, expected_gains_us={LARGE: 300.0, SMALL: 100.0})
    for workload, share_s in agenda:
        given[workload] = share_s
        clock.now_s += 13 if workload == LARGE else share_s
    # Three seconds each are for starting; of the 60 others a quarter would be the small one's.
    assert given[LARGE] == pytest.approx(45)
    assert given[SMALL] == pytest.approx(66 - 13)
