"""Tuning on a machine that does other work: what is timed again, and what is not confirmed."""

import dataclasses

from dwconv.schedules.template import Candidate
from dwconv.tuner.search import search_loop
from dwconv.tuner.search.evolve import Evolve
from dwconv.tuner.search.search_loop import FINALISTS
from tests import fake_tuning as fake
from tests.tuner.fake_search import AFRESH, tune


def defaults():
    return search_loop.SpaceUnion.of(fake.WORKLOAD, fake.TARGET).defaults


class BusyRunner(fake.FakeRunner):
    """Times ``trials`` and ``finals`` (slower so many times, share lost), one after the other; then a quiet machine."""

    def __init__(self, *, trials=(), finals=()):
        super().__init__()
        self._trials, self._finals = iter(trials), iter(finals)

    def measure(self, candidates):
        for record in super().measure(candidates):
            yield slowed(record, *next(self._trials, (1.0, 0.0)))

    def confirm(self, candidates):
        slower, lost = next(self._finals, (1.0, 0.0))
        for record in super().confirm(candidates):
            yield dataclasses.replace(slowed(record, slower, lost), confirmed=not lost)


def slowed(record, slower, lost):
    """A record of a machine that other work slows: both sides alike."""
    baseline, taken = (
        dataclasses.replace(measured, median_us=slower * measured.median_us, contention=lost)
        for measured in (record.providers["onednn-nhwc"], record.measurement)
    )
    return dataclasses.replace(record, measurement=taken, providers={"onednn-nhwc": baseline})


def finals_in(log):
    return log.load().records[24:]


def test_what_a_busy_machine_confirmed_is_confirmed_again(log):
    runner = BusyRunner(finals=[(2.0, 0.0)])
    result = tune(log, runner)
    assert len(runner.confirmed) == 2 * FINALISTS
    assert result.best.confirmed and result.median_us == min(map(fake.time_us, runner.measured))


def test_contended_finalists_are_timed_again_reported_and_not_confirmed(log, others):
    runner = BusyRunner(finals=[(80.0, 0.5)] * 9)
    others.looks += [0.8] * 9
    seen = []
    result = tune(log, runner, seconds=20.0, progress=seen.append)
    assert not any(record.confirmed for record in log.load().records)
    assert len(runner.confirmed) == FINALISTS, "no others take their place, and while it is busy they are not retried"
    assert result.too_busy and result.busy == 0.8
    assert any(snapshot.waiting for snapshot in seen) and not seen[-1].waiting
    assert result.median_us == min(map(fake.time_us, runner.measured)), "what was timed uncontended is still known"
    assert 0 < sum(others.waits_s) <= 20.0
    again = fake.FakeRunner()
    confirmed = tune(log, again)
    assert again.measured == [] and again.confirmed == runner.confirmed
    assert confirmed.best.confirmed and not confirmed.too_busy and confirmed.median_us == result.median_us


def test_when_it_is_quiet_again_the_finals_are_confirmed(log, others):
    runner = BusyRunner(finals=[(80.0, 0.5), (1.0, 0.0)])
    result = tune(log, runner)
    assert len(runner.confirmed) == 2 * FINALISTS and len(others.waits_s) == 1
    assert [record.confirmed for record in finals_in(log)] == [False] * FINALISTS + [True] * FINALISTS
    assert result.best.confirmed and not result.too_busy


def test_a_baseline_far_above_its_history_is_never_confirmed_though_nothing_else_shows(log):
    tune(log, fake.FakeRunner(interrupt_after=16))
    runner = BusyRunner(trials=[(80.0, 0.0)] * 8, finals=[(80.0, 0.0)] * 9)
    result = tune(log, runner)
    assert result.too_busy and not any(record.confirmed for record in log.load().records)
    assert all(record.inconclusive for record in finals_in(log))


def test_a_baseline_above_its_history_is_not_confirmed_beside_other_work(log, others):
    others.looks += [0.6] * 99
    result = tune(log, BusyRunner(finals=[(1.5, 0.0)] * 9))
    assert result.too_busy and not any(record.confirmed for record in log.load().records)


def test_a_baseline_that_is_slower_for_good_is_confirmed_in_the_end(log):
    result = tune(log, BusyRunner(finals=[(1.5, 0.0)] * 9))
    assert result.best.confirmed and not result.too_busy


def test_history_of_another_pytorch_says_nothing(log):
    for record in fake.FakeRunner().measure([Candidate(fake.WORKLOAD, c) for c in defaults()]):
        log.append(dataclasses.replace(slowed(record, 0.01, 0.0), versions={"torch": "1.0"}))
    assert tune(log, fake.FakeRunner(), trials=1 + len(defaults())).best.confirmed


def test_contended_trials_are_timed_again_when_it_is_quiet(log, others):
    runner = BusyRunner(trials=[(80.0, 0.5)] * 3)
    result = tune(log, runner)
    assert len(others.waits_s) == 1
    assert runner.measured[Evolve.FEW : Evolve.FEW + 3] == runner.measured[:3]
    assert (result.trials, len(runner.measured)) == (24, 27)
    busy = BusyRunner(trials=[(80.0, 0.5)] * 3)
    others.looks.append(0.9)
    tune(log, busy, plan=AFRESH)
    assert len(busy.measured) == len(set(busy.measured)), "not while it is busy"


def test_contended_trials_do_not_outrank_quiet_ones(log, others):
    others.looks += [0.9] * 99
    runner = BusyRunner(trials=[(1.0, 0.0)] * 8 + [(0.1, 0.5)] * 8)
    tune(log, runner, trials=16)
    assert set(runner.confirmed) <= set(runner.measured[:8])
