"""The choice: the least median wins only if it beats plain execution by more than the noise."""

from __future__ import annotations

import itertools

import pytest

from dwconv.concurrency.choosing import measured
from dwconv.concurrency.choosing.measured import PLAIN, fastest, noise_us
from dwconv.measure.timing import Lap
from dwconv.records.record import Measurement


class MadeUpClock:
    """Each call takes what ``ms`` says, some per cent more or less in turns."""

    def __init__(self, ms, *, wobble=0.001, lost=0.0):
        self._ms, self._wobble, self._lost = ms, itertools.cycle([1 - wobble, 1.0, 1 + wobble]), lost
        self.turns = []

    def ready(self, call):
        return call

    def lap(self, call, *, times):
        call()
        self.turns.append(call.name)
        return Lap(seconds=times * self._ms[call.name] / 1e3 * next(self._wobble), lost=self._lost)

    def overall(self):
        return lambda: 0.0


class Called:
    def __init__(self, name):
        self.name, self.count = name, 0

    def __call__(self):
        self.count += 1


def ranked(ms, *, fall_back=True, seconds=60.0, **clock):
    calls = {name: Called(name) for name in ms}
    made_up = MadeUpClock(ms, **clock)
    return fastest(calls, clock=made_up, seconds=seconds, fall_back=fall_back), made_up


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


def test_no_threads_of_one_schedule_are_left_while_another_is_timed(monkeypatch):
    events = []
    monkeypatch.setattr(measured, "rest", lambda: events.append("rest"))
    calls = {name: lambda name=name: events.append(name) for name in (PLAIN, "S1")}
    for call, name in zip(calls.values(), calls, strict=True):
        call.name = name
    fastest(calls, clock=MadeUpClock({PLAIN: 10.0, "S1": 8.0}), seconds=60.0, fall_back=True)
    assert events[:8] == ["rest", PLAIN, PLAIN, PLAIN, "rest", "S1", "S1", "S1"]
    assert events.count("rest") == len(events) / 4


def test_plain_execution_may_be_ruled_out():
    ranking, _ = ranked({PLAIN: 10.0, "S1": 12.0, "S2": 11.0}, fall_back=False)
    assert ranking.winner == "S2" and "plain execution was ruled out" in ranking.reason


def test_disturbed_times_are_not_trusted():
    assert not ranked({PLAIN: 10.0, "S1": 5.0}, lost=0.3)[0].trusted


def test_without_time_a_few_rounds_are_measured_all_the_same():
    ranking, clock = ranked({PLAIN: 10.0, "S1": 5.0}, seconds=0.0)
    assert ranking.winner == "S1" and len(clock.turns) == 12


def test_without_schedules_plain_runs():
    ranking, _ = ranked({PLAIN: 10.0})
    assert (ranking.winner, ranking.reason) == (PLAIN, "no schedule was offered")


def test_noise_shrinks_with_rounds_and_grows_with_spread():
    def measured(spread, rounds):
        return Measurement(median_us=100.0, spread_us=spread, rounds=rounds)

    assert noise_us(measured(0, 5), measured(0, 5)) == 0
    assert noise_us(measured(10, 5), measured(10, 5)) > noise_us(measured(10, 20), measured(10, 20)) > 5
    assert noise_us(measured(10, 5), measured(0, 5)) < noise_us(measured(10, 5), measured(10, 5))
