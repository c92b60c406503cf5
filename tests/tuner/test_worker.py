"""The side of a node: what it keeps until it is acknowledged, and when it times the reference kernel."""

from __future__ import annotations

import dataclasses
import threading
from types import SimpleNamespace

import pytest

from dwconv.records.line import decode, encode
from dwconv.records.record import Measurement
from dwconv.schedules import template as template_module
from dwconv.tuner.choices import Choices
from dwconv.tuner.cluster import worker as worker_module
from dwconv.tuner.cluster.node import Line, Report, Setup, Task
from dwconv.tuner.cluster.worker import Outbox, Reference, SentLog, Worker
from dwconv.tuner.search import loop
from dwconv.tuner.search.search_result import Stop
from tests import fake_tuning as fake
from tests.tuner.fake_cluster import Clock

REFERENCE = Measurement(median_us=100.0, spread_us=1.0, rounds=9)
RECORD = fake.record(fake.WORKLOAD, fake.space(fake.WORKLOAD, fake.TARGET).default, median_us=10.0)


def line(number):
    return Line(record=b"%d" % number, reference=REFERENCE)


def test_what_is_not_acknowledged_is_sent_again():
    outbox = Outbox()
    for number in range(4):
        outbox.add(line(number))
    assert outbox.report(0, wait_s=0.0).lines == tuple(map(line, range(4)))
    assert outbox.report(0, wait_s=0.0).lines == tuple(map(line, range(4)))
    assert outbox.report(3, wait_s=0.0).lines == (line(3),)
    outbox.add(line(4))
    assert outbox.report(4, wait_s=0.0).lines == (line(4),)
    assert outbox.report(5, wait_s=0.0) == Report()


def test_news_and_the_end_are_sent_at_once():
    outbox = Outbox()
    threading.Timer(0.05, outbox.add, [line(0)]).start()
    assert outbox.report(0, wait_s=60.0).lines == (line(0),)
    threading.Timer(0.05, outbox.end, [Report(ended=True)]).start()
    assert outbox.report(1, wait_s=60.0) == Report(ended=True)


def test_the_reference_kernel_is_timed_now_and_then_and_after_finalists(monkeypatch):
    clock, timed = Clock(), []
    monkeypatch.setattr(worker_module, "time", clock)

    def measure():
        timed.append(clock.now_s)
        return dataclasses.replace(REFERENCE, median_us=100.0 + len(timed))

    outbox = Outbox()
    log = SentLog(outbox, measure)
    confirmed = dataclasses.replace(RECORD, confirmed=True)
    for now_s, record in [(1.0, RECORD), (9.0, RECORD), (11.0, RECORD), (12.0, RECORD)]:
        clock.now_s = now_s
        log.append(record)
    assert timed == [0.0, 11.0]
    for now_s in (12.1, 12.2, 12.3):
        clock.now_s = now_s
        log.append(confirmed)
    assert timed == [0.0, 11.0, 12.1], "once for those that were measured together"
    clock.now_s = 20.0
    log.append(confirmed)
    assert timed[3:] == [20.0]
    sent = outbox.report(0, wait_s=0.0).lines
    assert [each.reference.median_us for each in sent] == [101, 101, 102, 102, 103, 103, 103, 104]
    assert [decode(each.record).confirmed for each in sent] == [False] * 4 + [True] * 4


def ready_worker(monkeypatch, runner):
    """On a fake device, with ``runner``."""
    monkeypatch.setattr(template_module, "all_templates", lambda: {"fake.fprop": fake.template()})
    monkeypatch.setattr(loop, "make_runner", lambda *_, **__: runner)
    monkeypatch.setattr(worker_module, "with_true_limits", lambda outcomes, _: outcomes)
    worker = Worker("cpu")
    worker._setup = Setup(target="cpu", fast_math=False, choices=Choices(trials=8))
    worker._target = fake.TARGET
    worker._reference = SimpleNamespace(measure=lambda: REFERENCE)
    worker._workers = SimpleNamespace(measurer=SimpleNamespace(running=True))
    return worker


def end_of(worker):
    """All records, and the last report."""
    lines = []
    while True:
        report = worker.report(len(lines), 5.0)
        lines += report.lines
        if report.ended and not worker.report(len(lines), 0.0).lines:
            return [decode(each.record) for each in lines], report


def test_a_search_goes_on_from_the_records_of_its_task(monkeypatch, others):
    first = fake.FakeRunner()
    worker = ready_worker(monkeypatch, first)
    worker.begin(Task(workload=fake.WORKLOAD, seconds=None, records=(), others=()))
    records, report = end_of(worker)
    assert [record.config for record in records] == [*first.measured, *first.confirmed]
    assert report.state.stopped is Stop.TRIALS and report.state.trials == 8 and report.state.best.confirmed
    known = [encode(record) for record in records if not record.confirmed][:5]
    second = fake.FakeRunner()
    worker = ready_worker(monkeypatch, second)
    worker.begin(Task(workload=fake.WORKLOAD, seconds=None, records=tuple(known), others=()))
    _, report = end_of(worker)
    assert (report.state.trials, report.state.resumed, len(second.measured)) == (8, 5, 3)
    assert not set(second.measured) & set(first.measured[:5])


def test_the_result_says_why_a_search_ended(monkeypatch, others):
    def fails(config):
        raise MemoryError("no more")

    worker = ready_worker(monkeypatch, fake.FakeRunner(fails=fails))
    worker.begin(Task(workload=fake.WORKLOAD, seconds=None, records=(), others=()))
    assert end_of(worker)[1].failure == "MemoryError: no more"
    other_pass = fake.WORKLOAD.for_pass("wgrad")
    worker.begin(Task(workload=other_pass, seconds=None, records=(), others=()))
    report = end_of(worker)[1]
    assert report.reason and not report.failure and report.state is None


@pytest.mark.slow
def test_the_reference_kernel_takes_about_as_long_twice():
    from dwconv.problems.target import cpu_target

    reference = Reference(cpu_target())
    try:
        first, second = reference.measure(), reference.measure()
    finally:
        reference.close()
    assert first.rounds > 1 and 1 / 20 < first.median_us / second.median_us < 20
