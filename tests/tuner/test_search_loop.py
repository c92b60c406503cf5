"""The loop: what it tries, when it stops, what it knows again, and ctrl-C; which finalists are chosen, and what happens
where they are wrong.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time

import pytest

from dwconv.errors import LogError, NoTemplate
from dwconv.problems.target import cpu_target, parse_target
from dwconv.records import log as log_module
from dwconv.records.record import Status
from dwconv.schedules import template as template_module
from dwconv.schedules.space import Config
from dwconv.tuner.results_table import state
from dwconv.tuner.search import search_loop, search_state
from dwconv.tuner.search.evolve import Evolve
from dwconv.tuner.search.search_loop import FINALISTS, SearchPlan, tune_workload
from dwconv.tuner.search.search_result import Stop
from dwconv.tuner.search.search_state import SearchState
from dwconv.tuner.search.space_union import SpaceUnion
from dwconv.untuned.starts import Start
from tests import fake_tuning as fake
from tests.tuner.fake_search import AFRESH, tune


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


def test_a_search_by_computed_cost_says_what_takes_the_time(log, monkeypatch):
    """Estimates first, then turns of candidates that are built."""
    monkeypatch.setattr(SearchPlan, "predicts", lambda self, target: True)
    seen = []
    tune(log, fake.FakeRunner(), plan=AFRESH, trials=14, progress=seen.append)
    estimating, *building = dict.fromkeys(snapshot.doing for snapshot in seen)
    assert estimating.startswith("estimating the cost of configurations of ") and seen[0].trials == 0
    assert building == [f"building {count} candidates and running them in the simulator" for count in (4, 6)]
    assert all(f"{snapshot.trials} trials, {snapshot.doing}" in state(snapshot) for snapshot in seen)


def test_evolution_starts_from_what_is_known_to_be_good(log, monkeypatch):
    (default,) = SpaceUnion.of(fake.WORKLOAD, fake.TARGET).defaults
    estimated = Config.of("fake.fprop", **{**dict(default.values), "tile_h": 4, "block_h": 4})
    start = Start(config=estimated, reason="of least estimated cost")
    monkeypatch.setattr(search_loop, "starts", lambda workload, target, records: [start])
    runner = fake.FakeRunner()
    tune(log, runner, trials=8)
    assert runner.measured[:2] == [default, estimated]


def test_a_second_run_measures_nothing(log):
    first = tune(log, fake.FakeRunner())
    lines = log.path.read_bytes()
    second = tune(log)  # there is no runner to take
    assert log.path.read_bytes() == lines
    assert (second.trials, second.resumed, second.measured) == (24, 24, 0)
    assert second.best == first.best
    afresh = fake.FakeRunner()
    assert tune(log, afresh, plan=AFRESH).resumed == 0 and len(afresh.measured) == 24


def test_resume_never_measures_a_candidate_twice_failed_ones_included(log):
    first, second = (fake.FakeRunner(fails=lambda c: Status.CRASHED if c.tile_w == 1 else None) for _ in range(2))
    before = tune(log, first)
    after = tune(log, second, trials=64)
    assert before.failures["crashed"] > 0
    assert after.failures["crashed"] >= before.failures["crashed"]
    assert len(second.measured) == 40
    assert not set(first.measured) & set(second.measured)
    assert after.median_us <= before.median_us


def test_other_workloads_devices_and_spaces_in_the_log_are_not_resumed(log):
    config = search_loop.SpaceUnion.of(fake.WORKLOAD, fake.TARGET).defaults[0]
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
    assert runner.batches == [search_state.FIRST_BATCH, Evolve.FEW, 6], "4 s are for the finalists"
    assert result.trials == 14


class SlowFinals(SlowRunner):
    """Finalists take so many seconds; other work disturbs them, or all are wrong."""

    def __init__(self, monkeypatch, *, seconds: float, wrong: bool = False) -> None:
        super().__init__(monkeypatch)
        self._seconds, self._wrong, self.ended_s = seconds, wrong, []

    def confirm(self, candidates):
        self.now_s += self._seconds
        self.ended_s.append(self.now_s)
        for record in super().confirm(candidates):
            measured = dataclasses.replace(record.measurement, contention=0.5)
            bad = (
                {"status": Status.WRONG, "measurement": None, "detail": "wrong"}
                if self._wrong
                else {"measurement": measured}
            )
            yield dataclasses.replace(record, confirmed=False, **bad)


@pytest.mark.parametrize("wrong", [False, True], ids=["disturbed", "wrong"])
@pytest.mark.parametrize("finals_s", [1, 8])
def test_seconds_hold_finalists_included(log, monkeypatch, wrong, finals_s):
    """What has begun ends; nothing begins later than some seconds after the time is up. The first finalists are always
    tried."""
    runner = SlowFinals(monkeypatch, seconds=finals_s, wrong=wrong)
    monkeypatch.setattr(SearchState, "wait", lambda state, **limits: True)
    began_s = runner.now_s
    tune(log, runner, trials=None, seconds=10)
    took_s = runner.now_s - began_s
    assert runner.ended_s and took_s <= 10 + 5 + finals_s
    if finals_s == 1:
        assert len(runner.ended_s) > 1, "they have another chance while there is time"


def test_what_is_built_at_once_is_tried_at_once(log, monkeypatch):
    monkeypatch.setattr(SearchPlan, "at_once", lambda self, target: 12)
    runner = SlowRunner(monkeypatch)
    assert tune(log, runner, trials=None, seconds=18).trials == 18  # the last batch in overtime
    assert runner.batches == [12, 12]


def test_only_a_gpu_that_is_measured_takes_candidates_at_once():
    gpu = parse_target("cuda:sm_90")
    for plan, target, at_once in [
        (SearchPlan(jobs=12), dataclasses.replace(gpu, present=True), 12),
        (SearchPlan(jobs=12), gpu, 1),
        (SearchPlan(strategy="analytic", jobs=12), dataclasses.replace(gpu, present=True), 1),
        (SearchPlan(jobs=12), cpu_target(), 1),
    ]:
        assert plan.at_once(target) == at_once


def test_seconds_stop_within_a_batch_and_the_start_of_workers_does_not_count(log, monkeypatch):
    result = tune(log, SlowRunner(monkeypatch, long_trial=6), plan=AFRESH, trials=None, seconds=18)
    assert result.stopped is Stop.SECONDS and result.trials == 6 and result.best is not None
    assert tune(log, SlowRunner(monkeypatch, long_trial=1), plan=AFRESH, trials=None, seconds=18).trials == 1
    runner = SlowRunner(monkeypatch, long_trial=1)
    result = tune(log, runner, plan=SearchPlan(resume=False), trials=None, seconds=18)
    assert result.stopped is Stop.SECONDS and result.trials > 9
    assert tune(log, SlowRunner(monkeypatch), plan=AFRESH, trials=None, seconds=0.1).trials >= 1


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
    waiting, heard, ended = threading.Event(), threading.Event(), threading.Event()
    monkeypatch.setattr(log, "_say_that_it_waits", waiting.set)

    def interrupt_once(*_):
        if not heard.is_set():
            heard.set()
            raise KeyboardInterrupt

    def press_ctrl_c():
        waiting.wait(600)
        for _ in range(6000):  # again, if it came just before the thread began to wait
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            if heard.wait(0.1):
                break
        ended.wait(600)
        os.close(holder)  # or it would wait for ever

    presser, before = threading.Thread(target=press_ctrl_c), signal.signal(signal.SIGINT, interrupt_once)
    presser.start()
    try:
        result = tune(log, fake.FakeRunner())
    finally:
        ended.set()
        presser.join()
        signal.signal(signal.SIGINT, before)
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


def test_when_nothing_works_the_result_says_why(log):
    runner = fake.FakeRunner(fails=lambda config: Status.COMPILE_ERROR)
    result = tune(log, runner, trials=None, patience=16)
    assert result.best is None and result.percent_of_limit is None
    assert result.failures == {"compile_error": 16}
    assert result.failure_detail == "compile_error: line one"
    assert runner.confirmed == []


def test_no_template_and_a_log_that_cannot_be_written_are_raised(log):
    with pytest.raises(NoTemplate, match="wgrad"):
        tune_workload(fake.WORKLOAD.for_pass("wgrad"), fake.TARGET, log=log)
    log.path.mkdir()
    with pytest.raises(LogError):
        tune(log, fake.FakeRunner(), plan=AFRESH)


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


def test_where_all_finalists_are_wrong_the_rest_is_for_the_next_run(log, monkeypatch):
    runner = fake.FakeRunner(confirmed=lambda config: None)
    tune(log, runner)
    assert len(runner.confirmed) == 4 * FINALISTS < len(runner.measured)
    again = fake.FakeRunner()
    result = tune(log, again)
    assert again.measured == [] and len(again.confirmed) == FINALISTS and result.best.confirmed
    assert not set(again.confirmed) & set(runner.confirmed)
    monkeypatch.setattr(search_loop, "_CONFIRM_S", 0.0)
    tune(log, late := fake.FakeRunner(confirmed=lambda config: None), plan=AFRESH)
    assert len(late.confirmed) == FINALISTS, "after some time no others begin"


def test_where_no_finalist_passes_the_next_best_are_confirmed(log):
    runner = fake.FakeRunner(confirmed=lambda config: None if len(runner.confirmed) <= FINALISTS else 700.0)
    result = tune(log, runner)
    assert len(runner.confirmed) == 2 * FINALISTS
    assert result.best.config in runner.confirmed[FINALISTS:] and result.median_us == 700.0, "others looked faster"
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
