"""Agenda: the order of workloads, what is left out, and how the time is shared."""

from __future__ import annotations

import dataclasses

import pytest

from dwconv.records.database import Database
from dwconv.tuner import agenda as agenda_module
from dwconv.tuner.agenda import Agenda, without_searched
from tests import fake_tuning as fake
from tests.tuner.fake_cluster import Clock

SMALL = dataclasses.replace(fake.WORKLOAD, channels=16)
LARGE = dataclasses.replace(fake.WORKLOAD, channels=64, bias=True)


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the test moves."""
    clock = Clock()
    monkeypatch.setattr(agenda_module, "time", clock)
    return clock


def test_what_was_confirmed_on_this_device_is_left_out():
    config = fake.space(SMALL, fake.TARGET).default
    trial, other = (fake.record(workload, config, median_us=1.0) for workload in (SMALL, LARGE))
    elsewhere = dataclasses.replace(other, confirmed=True, device="elsewhere")
    raced = dataclasses.replace(other, confirmed=True, raced=True)
    old = dataclasses.replace(other, confirmed=True, versions={**other.versions, "torch": "2.1.0"})
    records = [trial, dataclasses.replace(trial, confirmed=True), other, elsewhere, raced, old]
    assert without_searched([SMALL, LARGE], Database.of(records), fake.TARGET) == [LARGE]


@pytest.mark.parametrize(
    ("total_s", "seconds", "takes", "given"),
    [
        (None, 20, lambda s: s, [20] * 5),
        (None, None, lambda s: 1, [None] * 5),
        (50, 20, lambda s: s + 3, [7] * 5),
        (100, 30, lambda s: 1, [17, 24.75, 30, 30, 30]),
        (18, 20, lambda s: s + 3, [agenda_module.LEAST_S] * 3),
    ],
    ids=["no total", "no limit", "even shares", "what one leaves", "too little for the last"],
)
def test_each_of_five_searches_gets_its_share(clock, total_s, seconds, takes, given):
    found = []
    for _, share_s in Agenda([SMALL] * 5, seconds=seconds, total_s=total_s):
        found.append(share_s)
        clock.now_s += takes(share_s)
    assert found == (given if None in given else pytest.approx(given))
    assert total_s is None or clock.now_s <= total_s + 1e-9


def test_a_slow_start_does_not_end_it(clock):
    takes = iter([20.0, 5.0, 5.0])
    for _ in Agenda([SMALL] * 3, seconds=None, total_s=31):
        clock.now_s += next(takes)
    assert not list(takes)


def test_searches_get_time_by_what_there_is_to_win_and_what_one_leaves_goes_to_the_others(clock):
    given = {}
    for workload, share_s in Agenda(
        [LARGE, SMALL], seconds=None, total_s=66, expected_gains_us={LARGE: 300.0, SMALL: 100.0}
    ):
        given[workload] = share_s
        clock.now_s += 13 if workload == LARGE else share_s
    # Three seconds each are for starting, and two for each in any case; of the 56 others a quarter is the small one's.
    assert given == {LARGE: pytest.approx(2 + 42), SMALL: pytest.approx(66 - 13)}


def test_machines_side_by_side_share_the_time_of_all_of_them(clock):
    first, second, third, fourth = [dataclasses.replace(SMALL, channels=channels) for channels in (1, 2, 3, 4)]
    agenda = Agenda([first, second, third, fourth], seconds=None, total_s=46)
    agenda.join("a")
    agenda.join("b")
    assert agenda.next("a") == (first, pytest.approx(20)) and agenda.next("b") == (second, pytest.approx(20))
    clock.now_s = 23
    agenda.ended("a")
    assert agenda.next("a") == (third, pytest.approx(20)), "the other one is about to be free"
    agenda.leave("b")
    agenda.back(second)
    clock.now_s = 30
    agenda.ended("a")
    assert agenda.left == 2 and agenda.next("a") == (second, pytest.approx((16 - 2 * 1.5) / 2)), (
        "what is left of its own"
    )


def test_no_search_of_several_machines_goes_on_beyond_the_end(clock):
    agenda = Agenda([SMALL], seconds=None, total_s=23)
    for machine in range(8):
        agenda.join(machine)
    assert agenda.next(0) == (SMALL, 20)
