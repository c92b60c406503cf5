"""The choice: the least median wins only if it beats plain execution by more than the noise."""

from __future__ import annotations

import itertools

import pytest

from dwconv.concurrency.choosing import measured
from dwconv.concurrency.choosing.measured import fastest, noise_us
from dwconv.concurrency.choosing.options import PLAIN
from dwconv.concurrency.times import budget
from dwconv.errors import OutOfTime
from dwconv.measure.clock.timing import Lap
from dwconv.records.record import Measurement


class MadeUpClock:
    """Each call takes what ``ms`` says, some per cent more or less in turns; ``now_s`` is what all have taken."""

    def __init__(self, ms, *, wobble=0.001, lost=0.0):
        self._ms, self._wobble, self._lost = ms, itertools.cycle([1 - wobble, 1.0, 1 + wobble]), lost
        self.turns = []
        self.calls = [Called(name, ms[name]) for name in ms]

    def now_s(self):
        return sum(call.count * call.ms for call in self.calls) / 1e3

    def ready(self, call):
        return call

    def lap(self, call, *, times):
        before = [called.count for called in self.calls]
        call()
        (name,) = (called.name for called, count in zip(self.calls, before, strict=True) if called.count > count)
        self.turns.append(name)
        return Lap(seconds=times * self._ms[name] / 1e3 * next(self._wobble), lost=self._lost)

    def enough(self, effort):
        return effort

    def overall(self):
        return lambda: 0.0


class Called:
    def __init__(self, name, ms):
        self.name, self.ms, self.count = name, ms, 0

    def __call__(self):
        self.count += 1


def ranked(ms, *, fall_back=True, seconds=60.0, **clock):
    made_up = MadeUpClock(ms, **clock)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "now_s", made_up.now_s)
        calls = {call.name: call for call in made_up.calls}
        try:
            found = fastest(calls, clock=made_up, budget=budget.Budget(seconds), fall_back=fall_back)
        except OutOfTime:
            found = None
    return found, made_up


def test_the_fastest_schedule_wins():
    ranking, clock = ranked({PLAIN: 10.0, "S1": 9.5, "S3": 8.0})
    assert ranking.winner == "S3" and ranking.reason == "S3 is 20.0% faster than plain execution"
    assert ranking.trusted
    assert ranking.steps[PLAIN].median_us == pytest.approx(10_000) and ranking.steps["S1"].rounds == 5
    assert clock.turns[:6] == [PLAIN, "S1", "S3", PLAIN, "S1", "S3"]  # interleaved
    assert clock.turns[15:19] == [PLAIN, "S3", PLAIN, "S3"] and ranking.steps["S3"].rounds == 15  # once more


@pytest.mark.parametrize("ms, wobble, said", [(9.95, 0.0, "may be noise"), (9.0, 0.3, "may be noise"),
                                              (10.5, 0.001, "5.0% slower")])  # fmt: skip
def test_what_is_within_the_noise_does_not_win(ms, wobble, said):
    ranking, _ = ranked({PLAIN: 10.0, "S1": ms}, wobble=wobble)
    assert ranking.winner == PLAIN and said in ranking.reason


def counted(call):
    call.count += 1


def test_no_threads_of_one_schedule_are_left_while_another_is_timed(monkeypatch):
    events = []
    monkeypatch.setattr(measured, "rest", lambda: events.append("rest"))
    monkeypatch.setattr(Called, "__call__", lambda self: events.append(self.name) or counted(self))
    ranked({PLAIN: 10.0, "S1": 8.0, "S2": 9.0})
    assert events[:9] == [PLAIN, "rest", PLAIN, PLAIN, PLAIN, "rest", "S1", "S1", "S1"]
    assert events.count("rest") == (len(events) - 1) / 4


def test_plain_execution_may_be_ruled_out():
    ranking, _ = ranked({PLAIN: 10.0, "S1": 12.0, "S2": 11.0}, fall_back=False)
    assert ranking.winner == "S2" and "plain execution was ruled out" in ranking.reason


@pytest.mark.parametrize("fall_back", [True, False])
def test_what_other_work_has_disturbed_is_not_used(fall_back):
    """Such as a plain step of 1.8 s instead of 6 ms, with which any schedule would win."""
    ranking, _ = ranked({PLAIN: 1830.0, "S1": 5.0}, lost=0.3, fall_back=fall_back)
    assert ranking.winner == PLAIN and not ranking.trusted
    assert "other work took 30% of the time" in ranking.reason and len(ranking.steps) == 2


FEW = {"S1": 1800.0, "S2": 1700.0, "S3": 1900.0, "S1+S3": 1800.0, "S4": 2000.0, "gradients": 1800.0}


@pytest.mark.parametrize("seconds, compared", [(0.5, None), (2, None), (20, None), (40, 1), (60, 1), (120, 4)])
def test_the_time_bounds_what_is_measured(seconds, compared):
    """No more than a step too long, however long steps take; with less time, fewer schedules are compared."""
    ranking, clock = ranked({PLAIN: 1830.0, **FEW}, seconds=seconds)
    assert clock.now_s() <= seconds + 2.0
    assert (ranking and len(ranking.steps) - 1) == compared
    assert ranking is None or ranking.winner == PLAIN or ranking.winner in clock.turns


def test_a_schedule_that_takes_much_longer_than_plain_ends_the_measuring():
    ranking, clock = ranked({PLAIN: 5.0, "S1": 3000.0, "S3": 4.0}, seconds=2)
    assert ranking is None and clock.now_s() <= 2 + 3.0


def test_rounds_end_with_the_time():
    ranking, clock = ranked({PLAIN: 100.0, "S1": 50.0}, seconds=3)
    assert ranking.winner == "S1" and 3 <= ranking.steps["S1"].rounds < 15 and clock.now_s() <= 3.1


def test_without_schedules_plain_runs():
    ranking, _ = ranked({PLAIN: 10.0})
    assert (ranking.winner, ranking.reason) == (PLAIN, "no schedule was offered")


def test_noise_shrinks_with_rounds_and_grows_with_spread():
    def measured(spread, rounds):
        return Measurement(median_us=100.0, spread_us=spread, rounds=rounds)

    assert noise_us(measured(0, 5), measured(0, 5)) == 0
    assert noise_us(measured(10, 5), measured(10, 5)) > noise_us(measured(10, 20), measured(10, 20)) > 5
    assert noise_us(measured(10, 5), measured(0, 5)) < noise_us(measured(10, 5), measured(10, 5))
