"""The choice: options, which schedule wins, dgrad beside wgrad, and the log in which a choice is found again."""

from __future__ import annotations

import itertools
import json
import math
import random
from dataclasses import replace

import pytest

from dwconv.concurrency import choice as log
from dwconv.concurrency import task_timer as budget
from dwconv.concurrency import timed_schedules
from dwconv.concurrency.choice import Choice
from dwconv.concurrency.options import PLAIN, Options, read
from dwconv.concurrency.task_graph import Placement, Schedule
from dwconv.concurrency.timed_schedules import Bets, fastest
from dwconv.errors import InvalidChoice, LogError, OutOfTime
from dwconv.measure.clock.timing import Lap
from dwconv.records.record import Measurement


class MadeUpClock:
    """Each call takes what ``ms`` says, up to some per cent more or less; ``now_s`` is what all have taken."""

    def __init__(self, ms, *, wobble=0.001, lost=0.0, seed=0):
        self._ms, self._wobble, self._lost = ms, wobble, lost
        self.random = random.Random(seed)
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
        factor = 1 + self.random.uniform(-self._wobble, self._wobble)
        return Lap(seconds=times * self._ms[name] / 1e3 * factor, lost=self._lost)

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
            found = fastest(calls, clock=made_up, budget=budget.TimeLeft(seconds), fall_back=fall_back)
        except OutOfTime:
            found = None
    return found, made_up


def test_the_fastest_schedule_wins():
    ranking, clock = ranked({PLAIN: 10.0, "S1": 9.5, "S3": 8.0})
    assert ranking.winner == "S3" and ranking.reason == "S3 is 20.0% faster than plain execution"
    assert ranking.trusted
    assert ranking.steps[PLAIN].median_us == pytest.approx(10_000, rel=0.001) and ranking.steps["S1"].rounds == 5
    turns = [name for name, _ in itertools.groupby(clock.turns)]  # several laps a turn
    assert turns[:7] == [PLAIN, "S1", "S3", "S1", PLAIN, "S1", "S3"]  # in turns, one reversed after the other
    assert "S1" not in clock.turns[-6:] and ranking.steps["S3"].rounds > 5  # half of them go on


@pytest.mark.parametrize("ms, wobble, said", [(9.95, 0.0, "may be noise: 1% and less"),
                                              (9.8, 0.3, "may be noise: it was in"),
                                              (10.5, 0.001, "5.0% slower")])  # fmt: skip
def test_what_is_within_the_noise_does_not_win(ms, wobble, said):
    ranking, _ = ranked({PLAIN: 10.0, "S1": ms}, wobble=wobble)
    assert ranking.winner == PLAIN and said in ranking.reason


def test_half_of_the_schedules_are_left_out_until_one_is_left():
    ms = {PLAIN: 10.0, "S1": 9.7, "S2": 9.9, "S3": 9.6, "S4": 11.0, "S1+S3": 9.65, "S2+S3": 9.85, "S3+S4": 9.9}
    ranking, _ = ranked(ms, wobble=0.01)
    rounds = {name: ranking.steps[name].rounds for name in ms}
    assert ranking.winner == "S3" and rounds[PLAIN] == rounds["S3"] == max(rounds.values())
    assert rounds["S4"] < rounds["S1"] < rounds["S3"] and rounds["S4"] <= 5
    assert ranking.steps["S4"].median_us == pytest.approx(11_000, rel=0.02)


def test_with_little_time_only_the_first_ones_are_compared_and_one_that_is_slower_ends_it():
    names = ["S3", "S1+S3", "S2+S3", "S1", "S2"]
    ranking, clock = ranked({PLAIN: 100.0, **dict.fromkeys(names, 90.0)}, seconds=12)
    assert set(ranking.steps) == {PLAIN, "S3", "S1+S3"} and ranking.winner in names
    ranking, clock = ranked({PLAIN: 10.0, "S3": 12.0})
    assert ranking.winner == PLAIN and ranking.steps["S3"].rounds < 12 and clock.now_s() < 2


class NoisyClock(MadeUpClock):
    """Steps differ by chance, as much as they do on a machine; one in ten takes twice as long."""

    def lap(self, call, *, times):
        taken = super().lap(call, times=times)
        factor = math.exp(self.random.gauss(0, 0.08)) * (1 + (self.random.random() < 0.1))
        return replace(taken, seconds=taken.seconds * factor)


def winners(ms, *, count, seconds=60.0):
    found = []
    for seed in range(count):
        clock = NoisyClock(ms, seed=seed)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(budget, "now_s", clock.now_s)
            patch.setattr(timed_schedules, "rest", lambda: None)
            calls = {call.name: call for call in clock.calls}
            found.append(fastest(calls, clock=clock, budget=budget.TimeLeft(seconds), fall_back=True).winner)
    return found


def test_a_schedule_that_is_no_faster_seldom_wins_however_often_it_is_looked_at():
    """In one of a hundred measurements, at most."""
    assert sum(name != PLAIN for name in winners({PLAIN: 10.0, "S3": 10.0, "S1": 10.0}, count=60)) < 3


def test_a_schedule_that_is_a_little_faster_wins_given_time():
    found = winners({PLAIN: 10.0, "S1": 10.0, "S3": 9.0}, count=40)
    assert found.count("S3") > 36 and set(found) <= {PLAIN, "S3"}


def test_bets_know_nothing_of_their_own_turn():
    """What one turn may win or lose is the same: however large it is, its opposite undoes it or more."""
    for past in ([], [0.02, -0.01, 0.3], [0.001] * 7):
        for gain in (1e-4, 0.01, 0.2, 5.0):
            before, up, down = Bets(), Bets(), Bets()
            for bets in (before, up, down):
                for each in past:
                    bets.turn(each)
            up.turn(gain)
            down.turn(-gain)
            assert up.coins > before.coins > down.coins > 0
            assert (up.coins + down.coins) / 2 == pytest.approx(before.coins)


def counted(call):
    call.count += 1


def test_no_threads_of_one_schedule_are_left_while_another_is_timed(monkeypatch):
    events = []
    monkeypatch.setattr(timed_schedules, "rest", lambda: events.append("rest"))
    monkeypatch.setattr(Called, "__call__", lambda self: events.append(self.name) or counted(self))
    ranked({PLAIN: 10.0, "S1": 8.0, "S2": 9.0})
    first, *turns = (list(run) for is_rest, run in itertools.groupby(events, "rest".__eq__) if not is_rest)
    assert first == [PLAIN] and len(turns) == events.count("rest")
    assert {len(turn) for turn in turns} == {2 + 3} and all(len(set(turn)) == 1 for turn in turns)
    assert [turn[0] for turn in turns[:6]] == [PLAIN, "S1", "S2", "S2", "S1", PLAIN]


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


@pytest.mark.parametrize(
    "seconds, compared, winner",
    [
        (0.5, None, None),
        (2, None, None),
        (20, None, None),
        (60, 1, PLAIN),
        (120, 1, "S1"),
        (400, 4, "S2"),
    ],
)
def test_the_time_bounds_what_is_measured(seconds, compared, winner):
    """No more than a step too long, however long steps take; with less time, fewer schedules are compared."""
    ranking, clock = ranked({PLAIN: 1830.0, **FEW}, seconds=seconds)
    assert clock.now_s() <= seconds + 2.0
    assert (ranking and len(ranking.steps) - 1) == compared
    assert (ranking and ranking.winner) == winner, "the fastest of those that were compared"


@pytest.mark.parametrize("ms, seconds, rounds", [({"S1": 3000.0, "S3": 4.0}, 2, None), ({"S1": 50.0}, 6, 10)])
def test_rounds_end_with_the_time(ms, seconds, rounds):
    ranking, clock = ranked({PLAIN: 100.0, **ms}, seconds=seconds)
    assert clock.now_s() <= seconds + ms["S1"] / 1e3
    assert ranking is None if rounds is None else ranking.winner == "S1" and 3 <= ranking.steps["S1"].rounds < 15


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given, said",
    [
        ({"strategies": ("S1", "S9")}, "strategy 'S9' is unknown; use any of S1, S2, S3, S4"),
        ({"strategies": 3}, "strategies=3 is not a list of names"),
        ({"model": "guess"}, "model 'guess' is unknown; use one of hill_climbing, regression"),
        ({"workers": 0}, "workers=0 is too few"),
        ({"workers": 2.5}, "option workers=2.5 is not a whole number"),
        ({"memory": -0.1}, "memory=-0.1 is negative"),
        ({"memory": float("nan")}, "memory=nan is negative"),
        ({"fall_back": 1}, "option fall_back=1 is not True or False"),
        ({"schedule": "S7"}, "schedule 'S7' is unknown; use plain, any of S1, S2, S3, S4 joined by +, or random:SEED"),
        ({"schedule": "S1+S1"}, "schedule 'S1+S1' is unknown"),
        ({"schedule": "random:"}, "schedule 'random:' is unknown"),
        ({"schedule": "random:²"}, "a whole number"),
        ({"schedule": "plain\n" * 99}, "is unknown"),
        ({"strategy": "S1"}, "option 'strategy' is unknown; use any of fall_back, log, memory, model"),
        ({"a\nb" * 99: 1}, "unknown"),
    ],
)
def test_bad_options_are_refused_in_a_line(given, said):
    with pytest.raises(InvalidChoice) as caught:
        read(given)
    assert said in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 200


def test_good_options_are_taken():
    assert read(None) == read({}) == Options()
    assert read({"strategies": "S1"}).strategies == ("S1",)
    found = read({"strategies": ["S3", "S1"], "model": "regression", "workers": 3, "memory": 0, "seconds": 2})
    assert (found.strategies, found.workers, found.memory) == (("S3", "S1"), 3, 0)
    assert found.asked == read({"strategies": ["S1", "S3"], "model": "regression", "workers": 3, "memory": 0}).asked
    assert found.asked != Options().asked
    for name in (
        "plain",
        "S1",
        "S1+S3",
        "S3+S1",
        "S4+S2+S3",
        "S1+S2+S3+S4",
        "random:0",
        "random:123456789012345678901",
    ):
        assert read({"schedule": name}).schedule == name


# -- the log -----------------------------------------------------------------------------------------------------------


STEP = Measurement(median_us=100.5, spread_us=2.0, rounds=15, contention=0.01)
CHOICE = Choice(
    graph="ab" * 32, device="some-cpu-2t", cores=2, asked="S1+S3", winner="S3", reason="S3 is 20.0% faster",
    schedules=(
        Schedule(strategies=("S3",), cores=2, placements=(
            Placement(task=0, worker=0, threads=1, start_us=0.0, end_us=2.25),
            Placement(task=1, worker=1, threads=1, start_us=0.0, end_us=3.5))),
        Schedule(strategies=("S3",), cores=2, placements=()),
    ),
    steps={"plain": STEP, "S3": STEP}, peaks={"plain": 5, "S3": 7},
    handover_us=3.5, change_us=7.0, versions={"torch": "2.13.0"}, created="2026-01-01T00:00:00+00:00",
)  # fmt: skip
ASKED = {"graph": CHOICE.graph, "device": CHOICE.device, "cores": 2, "asked": "S1+S3", "versions": CHOICE.versions}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DWCONV_CONCURRENCY_LOGS", str(tmp_path / "made"))
    return tmp_path / "made"


def test_a_choice_is_found_again_as_it_was(folder):
    assert log.kept(**ASKED) is None
    path = log.keep(CHOICE)
    assert path == folder / "some-cpu-2t.jsonl"
    assert log.kept(**ASKED) == CHOICE
    log.keep(replace(CHOICE, winner="plain", schedules=()))
    assert log.kept(**ASKED).winner == PLAIN  # the last one counts
    with pytest.raises(LogError):  # what could not be read is not written
        log.keep(replace(CHOICE, reason="x" * 600))


@pytest.mark.parametrize(
    "other",
    [{"graph": "cd" * 32}, {"cores": 4}, {"asked": "S1"}, {"versions": {"torch": "2.14.0"}}, {"device": "another"}],
)
def test_a_choice_holds_for_what_it_was_made_for(other):
    log.keep(CHOICE)
    assert log.kept(**{**ASKED, **other}) is None


def broken(**change):
    return json.dumps({**json.loads(log.encode(CHOICE)), **change}).encode()


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{", b"[]", b'"' + CHOICE.graph.encode() + b'"', b"\xff" + log.encode(CHOICE)[1:], broken(format=2),
        broken(cores=0), broken(schedules=[{"strategies": [], "cores": 1, "placements": [[0, 0, -1, 0, 0]]}]),
        broken(winner=7), broken(steps={"plain": {"median_us": -1, "spread_us": 0, "rounds": 1}}),
        broken(reason="x" * 600), b"[" * 5000 + CHOICE.graph.encode(),
    ],
)  # fmt: skip
def test_damaged_lines_are_passed_over(line, folder):
    with pytest.raises(LogError, match="not a choice of schedules"):
        log.decode(line)
    log.keep(CHOICE)
    with log.path_for(CHOICE.device).open("ab") as file:
        file.write(line + b"\n")
    assert log.kept(**ASKED) == CHOICE


def test_nothing_in_a_line_acts_on_a_terminal():
    found = log.decode(broken(reason="a\x1b[31mb\nc", winner="S3\x07"))
    assert found.reason.isprintable() and found.winner.isprintable()


def test_a_log_that_is_no_file_is_named(folder):
    folder.mkdir()
    log.path_for(CHOICE.device).mkdir()
    with pytest.raises(LogError, match=r"some-cpu-2t\.jsonl"):
        log.kept(**ASKED)
    with pytest.raises(LogError, match=r"some-cpu-2t\.jsonl"):
        log.keep(CHOICE)
