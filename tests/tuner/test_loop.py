import dataclasses
import os
import signal
import threading
import time
from types import SimpleNamespace

import fake_tuning as fake
import pytest

from dwconv.errors import LogError, NoTemplate
from dwconv.records import log as log_module
from dwconv.records.log import TuningLog
from dwconv.records.record import Status
from dwconv.schedules import template as template_module
from dwconv.schedules.template import Candidate
from dwconv.tuner import finalists, loop, standing
from dwconv.tuner.finalists import FINALISTS
from dwconv.tuner.loop import USUAL_PLAN, SearchPlan, tune_workload
from dwconv.tuner.result import Budget, Stop
from dwconv.tuner.runners import USUAL_RUNNER, RunnerChoice

AFRESH = SearchPlan(resume=False)
LENT = RunnerChoice(workers=SimpleNamespace(measurer=SimpleNamespace(running=True)))


@pytest.fixture(autouse=True)
def one_template(monkeypatch):
    monkeypatch.setattr(template_module, "all_templates", lambda: {"fake.fprop": fake.template()})


@pytest.fixture(autouse=True)
def others(monkeypatch):
    """What the tuner sees of other work: ``looks`` of it, 0 where there are no more; and how long it waited."""
    seen = SimpleNamespace(looks=[], waits_s=[])

    class PlantedQuiet:
        def __init__(self, *, threads):
            self.busy = 0.0

        def look(self):
            self.busy = seen.looks.pop(0) if seen.looks else 0.0
            return self.busy == 0.0

        def wait(self, *, timeout_s):
            seen.waits_s.append(timeout_s)
            return self.look()

    monkeypatch.setattr(standing, "Quiet", PlantedQuiet)
    return seen


@pytest.fixture
def log(tmp_path):
    return TuningLog(tmp_path / "log.jsonl")


def tune(log, *runners, plan=USUAL_PLAN, choice=LENT, progress=None, **budget):
    """24 trials, unless ``budget`` says otherwise, by the first of ``runners`` that is asked for."""
    budget = Budget(**{"trials": 24, "seconds": None, "patience": None, **budget})
    left = list(runners)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "make_runner", lambda *_, **__: left.pop(0))
        return tune_workload(
            fake.WORKLOAD, fake.TARGET, log=log, plan=plan, budget=budget, runner=choice, progress=progress
        )


def test_spends_the_trials_confirms_the_fastest_and_reports_the_best(log):
    runner = fake.FakeRunner()
    seen = []
    result = tune(log, runner, progress=seen.append)
    assert result.stopped is Stop.TRIALS
    assert (result.trials, result.measured, result.resumed) == (24, 24, 0)
    assert len(runner.measured) == 24
    fastest = sorted(runner.measured, key=fake.time_us)
    assert runner.confirmed == fastest[:FINALISTS]
    assert result.best.config == fastest[0]
    assert result.best.speedup == pytest.approx(fake.BASELINE_US / fake.time_us(fastest[0]))
    limit_us = fake.TARGET.limits.limit_us(bytes_moved=fake.WORKLOAD.bytes, flops=fake.WORKLOAD.flops)
    assert result.percent_of_limit == pytest.approx(100 * limit_us / result.median_us)
    assert [snapshot.trials for snapshot in seen] == [*range(1, 25), *[24] * FINALISTS]
    assert seen[-1].confirming and not seen[0].confirming
    assert len(log.load().records) == 24 + FINALISTS
    assert runner.closed


def test_a_second_run_measures_nothing(log):
    first = tune(log, fake.FakeRunner())
    lines = log.path.read_bytes()
    runner = fake.FakeRunner()
    second = tune(log, runner)
    assert runner.measured == runner.confirmed == []
    assert log.path.read_bytes() == lines
    assert (second.trials, second.resumed, second.measured) == (24, 24, 0)
    assert second.best == first.best


def test_resume_never_measures_a_candidate_twice_failed_ones_included(log):
    first, second = (fake.FakeRunner(fails=lambda c: Status.CRASHED if c.tile_w == 1 else None) for _ in range(2))
    before = tune(log, first)
    after = tune(log, second, trials=64)
    assert before.failures["crashed"] > 0
    assert after.failures["crashed"] >= before.failures["crashed"]
    assert len(second.measured) == 40
    assert not set(first.measured) & set(second.measured)
    assert after.median_us <= before.median_us


def test_no_resume_starts_afresh(log):
    tune(log, fake.FakeRunner())
    runner = fake.FakeRunner()
    result = tune(log, runner, plan=AFRESH)
    assert len(runner.measured) == 24
    assert result.resumed == 0


def test_other_workloads_devices_and_spaces_in_the_log_are_not_resumed(log):
    config = loop.SpaceUnion.of(fake.WORKLOAD, fake.TARGET).defaults[0]
    ours = fake.record(fake.WORKLOAD, config, median_us=1.0)
    log.append(dataclasses.replace(ours, workload=fake.WORKLOAD.with_batch(9)))
    log.append(dataclasses.replace(ours, device="another"))
    log.append(dataclasses.replace(ours, config=config.of("fake.fprop", **{**dict(config.values), "tile_w": 3})))
    log.append(dataclasses.replace(ours, config=config.of("gone", tile_w=1)))
    assert tune(log, fake.FakeRunner(), trials=1).resumed == 0


def test_patience_stops_and_still_holds_in_a_second_run(log):
    runner = fake.FakeRunner()
    result = tune(log, runner, trials=None, patience=20)
    assert result.stopped is Stop.PATIENCE
    times = list(map(fake.time_us, runner.measured))
    assert min(times[-20:]) > 0.99 * min(times[:-20])
    again = fake.FakeRunner()
    assert tune(log, again, trials=None, patience=20).stopped is Stop.PATIENCE
    assert again.measured == again.confirmed == []


class SlowRunner(fake.FakeRunner):
    """Each trial takes a second of a clock of its own; one of them takes long."""

    def __init__(self, monkeypatch, *, long_trial=None):
        super().__init__()
        self.now_s = 1000.0
        self.batches = []
        self._long_trial = long_trial
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)

    def measure(self, candidates):
        self.batches.append(len(candidates))
        for record in super().measure(candidates):
            self.now_s += 30 if len(self.measured) == self._long_trial else 1
            yield record


def test_seconds_stop_and_batches_fit_into_them(log, monkeypatch):
    runner = SlowRunner(monkeypatch)
    result = tune(log, runner, trials=None, seconds=18)
    assert result.stopped is Stop.SECONDS
    assert runner.batches == [standing.FIRST_BATCH, loop.BATCH, 6]
    assert result.trials == 18


def test_seconds_stop_within_a_batch_that_takes_too_long(log, monkeypatch):
    result = tune(log, SlowRunner(monkeypatch, long_trial=6), trials=None, seconds=18)
    assert result.stopped is Stop.SECONDS
    assert result.trials == 6
    assert result.best is not None


def test_the_start_of_workers_does_not_count(log, monkeypatch):
    assert tune(log, SlowRunner(monkeypatch, long_trial=1), trials=None, seconds=18).trials == 1
    runner = SlowRunner(monkeypatch, long_trial=1)
    result = tune(log, runner, plan=AFRESH, choice=USUAL_RUNNER, trials=None, seconds=18)
    assert result.stopped is Stop.SECONDS and result.trials > 9


def test_a_tiny_time_budget_still_tries_something(log, monkeypatch):
    assert tune(log, SlowRunner(monkeypatch), trials=None, seconds=0.1).trials >= 1


def test_small_spaces_are_exhausted(log, monkeypatch):
    small = fake.template(space=fake.small_space)
    monkeypatch.setattr(template_module, "all_templates", lambda: {"fake.fprop": small})
    runner = fake.FakeRunner(confirmed=lambda config: 5.0)
    result = tune(log, runner, plan=SearchPlan(strategy="exhaustive"), trials=None)
    assert result.stopped is Stop.EXHAUSTED
    assert result.trials == 6


def test_ctrl_c_keeps_what_was_measured(log):
    result = tune(log, fake.FakeRunner(interrupt_after=13))
    assert result.stopped is Stop.INTERRUPTED
    assert result.trials == len(log.load().records) == 13
    assert result.best is not None
    runner = fake.FakeRunner()
    assert tune(log, runner).stopped is Stop.TRIALS
    assert len(runner.measured) == 11
    assert len(runner.confirmed) == FINALISTS


def test_ctrl_c_works_while_another_process_holds_the_log(log, monkeypatch):
    fcntl = pytest.importorskip("fcntl", reason="there are no locks on Windows")
    monkeypatch.setattr(log_module, "_SILENT_S", 0.05)
    holder = os.open(log.path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(holder, fcntl.LOCK_EX)
    waiting, ended = threading.Event(), threading.Event()
    monkeypatch.setattr(log, "_say_that_it_waits", waiting.set)

    def press_ctrl_c():
        waiting.wait(30)
        for _ in range(10):  # again, if it came too early
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            if ended.wait(2):
                break
        os.close(holder)  # or it would wait for ever

    presser = threading.Thread(target=press_ctrl_c)
    presser.start()
    try:
        result = tune(log, fake.FakeRunner())
    finally:
        ended.set()
        presser.join()
    assert result.stopped is Stop.INTERRUPTED
    assert result.trials == 0 and log.load().records == [], "what could not be written is not counted either"


def test_ctrl_c_while_a_record_is_written_counts_it(log, monkeypatch):
    append = log.append

    def interrupted_append(record):
        append(record)
        if len(log.load().records) == 5:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(log, "append", interrupted_append)
    result = tune(log, fake.FakeRunner())
    assert result.stopped is Stop.INTERRUPTED
    assert result.trials == len(log.load().records) == 5
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


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
    monkeypatch.setattr(finalists, "_CONFIRM_S", 0.0)
    runner = fake.FakeRunner(confirmed=lambda config: None)
    tune(log, runner)
    assert len(runner.confirmed) == FINALISTS


def test_where_no_finalist_passes_the_next_best_are_confirmed(log):
    runner = fake.FakeRunner(confirmed=lambda config: None if len(runner.confirmed) <= FINALISTS else 7.0)
    result = tune(log, runner)
    assert len(runner.confirmed) == 2 * FINALISTS
    assert result.best.config in runner.confirmed[FINALISTS:]
    assert result.failures == {"wrong": FINALISTS}


def test_when_nothing_works_the_result_says_why(log):
    runner = fake.FakeRunner(fails=lambda config: Status.COMPILE_ERROR)
    result = tune(log, runner, trials=None, patience=16)
    assert result.best is None and result.percent_of_limit is None
    assert result.failures == {"compile_error": 16}
    assert result.failure_detail == "compile_error: line one"
    assert runner.confirmed == []


def test_no_template_is_raised(log):
    with pytest.raises(NoTemplate, match="wgrad"):
        tune_workload(fake.WORKLOAD.for_pass("wgrad"), fake.TARGET, log=log)


def test_a_log_that_cannot_be_written_ends_the_search(log):
    log.path.mkdir()
    with pytest.raises(LogError):
        tune(log, fake.FakeRunner(), plan=AFRESH)


def test_a_runner_is_made_only_when_there_is_something_to_measure(log):
    tune(log, fake.FakeRunner())
    tune(log)  # there is none to take


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


def test_contended_finals_are_waited_for_told_and_not_confirmed(log, others):
    runner = BusyRunner(finals=[(80.0, 0.5)] * 9)
    others.looks += [0.8] * 9
    seen = []
    result = tune(log, runner, seconds=20.0, progress=seen.append)
    assert not any(record.confirmed for record in log.load().records)
    assert len(runner.confirmed) == FINALISTS, "no others take their place, and while it is busy they are not retried"
    assert result.too_busy and result.busy == 0.8
    assert any(snapshot.waiting for snapshot in seen) and not seen[-1].waiting
    assert result.median_us == min(map(fake.time_us, runner.measured)), "what was timed undisturbed is still known"
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
    assert all(record.contended for record in finals_in(log))


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


@pytest.mark.parametrize("busy", [0.0, 0.9])
def test_without_a_history_a_time_far_from_the_limit_is_confirmed_if_nothing_else_runs(log, others, busy):
    others.looks += [busy] * 99
    result = tune(log, BusyRunner(trials=[(80.0, 0.5)] * 99, finals=[(80.0, 0.0)] * 9))
    assert result.too_busy == bool(busy) and result.best.confirmed == (not busy)


def test_contended_trials_are_timed_again_when_it_is_quiet(log, others):
    runner = BusyRunner(trials=[(80.0, 0.5)] * 3)
    result = tune(log, runner)
    assert len(others.waits_s) == 1
    assert runner.measured[loop.BATCH : loop.BATCH + 3] == runner.measured[:3]
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


def defaults():
    return loop.SpaceUnion.of(fake.WORKLOAD, fake.TARGET).defaults


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
