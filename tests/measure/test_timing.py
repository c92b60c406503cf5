"""The order of the rounds, what is kept of them, and when they end; on a clock that the test sets."""

import time

import pytest

from dwconv.measure.timing import TRIAL, CpuClock, Effort, Lap, time_in_turns


class FakeClock:
    """Each call 'takes' the microseconds that the test lists for it, lap after lap; the last for ever."""

    def __init__(self, **taken_us):
        self.taken_us = {name: list(laps) for name, laps in taken_us.items()}
        self.laps = []
        self.disturbed_us = set()

    def call(self, name):
        def call():
            return name

        return call

    def calls(self):
        return {name: self.call(name) for name in self.taken_us}

    def lap(self, call, *, times):
        name = call()
        rest = self.taken_us[name]
        taken_us = rest.pop(0) if len(rest) > 1 else rest[0]
        self.laps.append((name, times))
        return Lap(seconds=taken_us * 1e-6 * times, disturbed=taken_us in self.disturbed_us)


EFFORT = Effort(round_s=0.002, rounds=5, budget_s=10.0)


def test_takes_turns():
    clock = FakeClock(a=[100], b=[400])
    taken = time_in_turns(clock.calls(), clock=clock, effort=EFFORT)
    rounds = clock.laps[-10:]
    assert [name for name, _ in rounds] == ["a", "b"] * 5
    for name, least, most in (("a", 20, 21), ("b", 5, 6)):  # each round fills two milliseconds
        assert all(least <= times <= most for lap, times in rounds if lap == name)
    assert taken["a"].median_us == pytest.approx(100) and taken["b"].median_us == pytest.approx(400)
    assert taken["a"].rounds == 5 and taken["a"].spread_us == pytest.approx(0, abs=1e-6)
    assert not taken["a"].predicted


def test_a_call_longer_than_a_round_is_timed_alone():
    clock = FakeClock(a=[50_000])
    assert time_in_turns(clock.calls(), clock=clock, effort=EFFORT)["a"].median_us == pytest.approx(50_000)
    assert set(clock.laps) == {("a", 1)}


def test_median_and_interquartile_range():
    clock = FakeClock(a=[4000, 1000, 2000, 3000, 4000, 50_000])
    taken = time_in_turns(clock.calls(), clock=clock, effort=EFFORT)["a"]
    assert taken.median_us == pytest.approx(3000) and taken.spread_us == pytest.approx(2000)


def test_disturbed_rounds_are_set_aside_for_all():
    clock = FakeClock(a=[4000, 1000, 9000, 1000, 9000, 1000, 1000, 1000], b=[4000, 2000, 5000, 2000, 5000, 2000])
    clock.disturbed_us = {9000}
    taken = time_in_turns(clock.calls(), clock=clock, effort=EFFORT)
    assert taken["a"].rounds == taken["b"].rounds == 5
    assert taken["a"].median_us == pytest.approx(1000)
    assert taken["b"].median_us == pytest.approx(2000) and taken["b"].spread_us == pytest.approx(0, abs=1e-6)


def test_where_nothing_is_undisturbed_all_counts():
    clock = FakeClock(a=[3000])
    clock.disturbed_us = {3000}
    effort = Effort(round_s=0.002, rounds=5, budget_s=0.0)
    assert time_in_turns(clock.calls(), clock=clock, effort=effort)["a"].rounds == 3


@pytest.mark.parametrize(("best_us", "rounds"), [(None, 5), (50, 3), (200, 5)])
def test_hopeless_ones_are_given_up_early(best_us, rounds):
    clock = FakeClock(a=[100], b=[10])
    taken = time_in_turns(clock.calls(), clock=clock, effort=EFFORT, hopeless_above_us=best_us)
    assert taken["a"].rounds == taken["b"].rounds == rounds


def test_the_wall_clock_and_the_budget():
    effort = Effort(round_s=0.001, rounds=10_000, budget_s=0.1)
    started = time.perf_counter()
    taken = time_in_turns({"sleep": lambda: time.sleep(0.002)}, clock=CpuClock(), effort=effort)["sleep"]
    assert time.perf_counter() - started < 1.0
    assert taken.median_us >= 2000 and taken.rounds >= 3


def test_a_trial_is_short():
    assert TRIAL.budget_s <= 0.2
