"""Finalists: which are chosen, and what happens where they are wrong."""

import dataclasses

from dwconv.tuner.search import loop
from dwconv.tuner.search.loop import FINALISTS
from tests import fake_tuning as fake
from tests.tuner.fake_search import tune


def test_a_finalist_that_fails_confirmation_does_not_win(log):
    wrong = set()

    def confirmed(config):
        if not wrong or config in wrong:  # the fastest, confirmed first, is wrong on other data
            wrong.add(config)
            return None
        return fake.time_us(config)

    runner = fake.FakeRunner(confirmed=confirmed)
    result = tune(log, runner)
    fastest = sorted(runner.measured, key=fake.time_us)
    assert wrong == {fastest[0]}
    assert result.best.config == fastest[1]
    assert result.failures == {"wrong": 1}


def test_the_best_is_a_confirmed_one_though_others_looked_faster(log):
    runner = fake.FakeRunner(confirmed=lambda config: 9 * fake.time_us(config))  # all looked faster than they are
    result = tune(log, runner)
    assert len(runner.confirmed) == FINALISTS
    assert result.best.config == runner.confirmed[0]
    assert result.median_us == 9 * min(map(fake.time_us, runner.measured))


def test_where_all_finalists_are_wrong_the_rest_is_for_the_next_run(log):
    runner = fake.FakeRunner(confirmed=lambda config: None)
    tune(log, runner)
    assert len(runner.confirmed) == 4 * FINALISTS < len(runner.measured)
    again = fake.FakeRunner()
    result = tune(log, again)
    assert again.measured == [] and len(again.confirmed) == FINALISTS and result.best.confirmed
    assert not set(again.confirmed) & set(runner.confirmed)


def test_after_some_time_no_other_finalists_begin(log, monkeypatch):
    monkeypatch.setattr(loop, "_CONFIRM_S", 0.0)
    runner = fake.FakeRunner(confirmed=lambda config: None)
    tune(log, runner)
    assert len(runner.confirmed) == FINALISTS


def test_where_no_finalist_passes_the_next_best_are_confirmed(log):
    runner = fake.FakeRunner(confirmed=lambda config: None if len(runner.confirmed) <= FINALISTS else 7.0)
    result = tune(log, runner)
    assert len(runner.confirmed) == 2 * FINALISTS
    assert result.best.config in runner.confirmed[FINALISTS:]
    assert result.failures == {"wrong": FINALISTS}


def test_finalists_are_chosen_by_their_time_relative_to_the_baseline(log):
    runner = fake.FakeRunner()
    quiet = runner.measure

    def measure(candidates):  # every second trial falls into a busy moment
        for i, record in enumerate(quiet(candidates)):
            slower = 1 + 9 * (i % 2)
            baseline = dataclasses.replace(record.providers["onednn-nhwc"], median_us=slower * fake.BASELINE_US)
            taken = dataclasses.replace(record.measurement, median_us=slower * record.measurement.median_us)
            yield dataclasses.replace(record, measurement=taken, providers={"onednn-nhwc": baseline})

    runner.measure = measure
    result = tune(log, runner)
    assert runner.confirmed[:FINALISTS] == sorted(runner.measured, key=fake.time_us)[:FINALISTS]
    assert result.median_us == min(map(fake.time_us, runner.measured))
