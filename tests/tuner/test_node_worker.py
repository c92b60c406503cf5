"""The side of a node: what it has for the driver, and how its searches begin and end."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from dwconv.records.line import decode, encode
from dwconv.schedules import template as template_module
from dwconv.tuner.cluster.node import NodeReport, NodeTask
from dwconv.tuner.cluster.node_worker import NodeWorker, Outbox
from dwconv.tuner.search import search_loop
from dwconv.tuner.search.search_result import Stop
from dwconv.tuner.user_choices import UserChoices
from tests import fake_tuning as fake

BUDGET = UserChoices(trials=8).budget(fake.TARGET, seconds=None)
RECORD = fake.record(fake.WORKLOAD, fake.space(fake.WORKLOAD, fake.TARGET).default, median_us=10.0)


def test_each_record_is_sent_once_and_news_and_the_end_at_once():
    outbox = Outbox()
    threading.Timer(0.05, outbox.append, [RECORD]).start()
    assert outbox.report(60.0).lines == (encode(RECORD),)
    assert outbox.report(0.0) == NodeReport()
    threading.Timer(0.05, outbox.end, [NodeReport(ended=True)]).start()
    assert outbox.report(60.0) == NodeReport(ended=True)


def ready_worker(monkeypatch, runner):
    """On a fake device, with ``runner``."""
    monkeypatch.setattr(template_module, "all_templates", lambda: {"fake.fprop": fake.template()})
    monkeypatch.setattr(search_loop, "make_runner", lambda *_, **__: runner)
    worker = NodeWorker("cpu")
    worker._ready = UserChoices(), fake.TARGET, SimpleNamespace(measurer=SimpleNamespace(running=True))
    return worker


def end_of(worker, workload=fake.WORKLOAD, *, records=()):
    """All records, and the last report."""
    worker.begin(NodeTask(workload=workload, budget=BUDGET, records=tuple(records), others=()))
    lines = []
    while not (report := worker.report(5.0)).ended:
        lines += report.lines
    return [decode(line) for line in (*lines, *report.lines)], report


def test_a_search_goes_on_from_the_records_of_its_task(monkeypatch, others):
    first = fake.FakeRunner()
    records, report = end_of(ready_worker(monkeypatch, first))
    assert [record.config for record in records] == [*first.measured, *first.confirmed]
    assert report.state.stopped is Stop.TRIALS and report.state.trials == 8 and report.state.best.confirmed
    second = fake.FakeRunner()
    _, report = end_of(ready_worker(monkeypatch, second), records=map(encode, records[:5]))
    assert (report.state.trials, report.state.resumed, len(second.measured)) == (8, 5, 3)
    assert not set(second.measured) & set(first.measured[:5])


def test_the_result_says_why_a_search_ended(monkeypatch, others):
    def fails(config):
        raise MemoryError("no more")

    worker = ready_worker(monkeypatch, fake.FakeRunner(fails=fails))
    assert end_of(worker)[1].failure == "MemoryError: no more"
    report = end_of(worker, fake.WORKLOAD.for_pass("wgrad"))[1]
    assert report.reason and not report.failure and report.state is None
