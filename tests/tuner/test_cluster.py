"""The driver of a cluster: who tunes what, what is written, and what happens to nodes that are lost, slow or others."""

from __future__ import annotations

import pytest

from dwconv import settings
from dwconv.errors import LogError, NoCluster
from dwconv.records.database import Database
from dwconv.records.line import decode
from dwconv.records.log import TuningLog
from dwconv.schedules import template as template_module
from dwconv.system import versions
from dwconv.tuner import agenda as agenda_module
from dwconv.tuner.choices import Choices
from dwconv.tuner.cluster import driver
from dwconv.tuner.cluster.node import Setup
from dwconv.tuner.expected_gain import most_to_win_first
from dwconv.tuner.search.search_result import Stop
from tests import fake_tuning as fake
from tests.tuner.fake_cluster import LAYERS, RECORDS, Clock, FakeCluster, FakeNode

COUNTS = {layer: count for count, layer in enumerate(LAYERS, start=1)}


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for module in (driver, agenda_module):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def tune(monkeypatch, logs, clock):
    """Tunes the layers on some nodes, into the only log folder."""
    monkeypatch.setattr(template_module, "all_templates", lambda: {"fake.fprop": fake.template()})

    def tune(*nodes, interrupt_s=float("inf"), **choices):
        setup = Setup(target="auto", fast_math=False, choices=Choices(**choices))
        cluster = FakeCluster(nodes, clock, interrupt_s=interrupt_s)
        return driver.tune_on(cluster, COUNTS, setup, network=True)

    return tune


def records_in(logs, device=fake.TARGET.device):
    return TuningLog(logs / f"{device}.jsonl").load().records


def notes_in(capsys):
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]


# -- who tunes what --------------------------------------------------------------------------------------------------


def test_workloads_with_most_to_win_go_first_to_a_free_node(tune, logs, clock):
    fast, slow = FakeNode("fast", takes_s=4.0), FakeNode("slow", takes_s=11.0)
    tuned = tune(fast, slow)
    first, second, third, fourth = most_to_win_first(COUNTS, fake.TARGET, Database.of([]))
    assert [first, second, third, fourth] != list(COUNTS), "the order is not that of the counts anyway"
    assert (fast.tuned, slow.tuned) == ([first, third, fourth], [second])
    assert clock.now_s == pytest.approx(12.0, abs=0.1)
    assert (tuned.left, tuned.lost, tuned.worked, tuned.interrupted) == (0, False, True, False)
    assert [outcome.workload for outcome in tuned.outcomes] == [first, third, second, fourth]
    assert len(records_in(logs)) == len(LAYERS) * RECORDS


@pytest.mark.parametrize("size", [1, 2, 4])
def test_nothing_waits_while_a_node_is_free(tune, clock, size):
    tune(*(FakeNode(f"node {number}") for number in range(size)))
    assert clock.now_s == pytest.approx(10.0 * len(LAYERS) / size)


def test_a_node_gets_the_records_of_its_workload_and_of_others(tune):
    node = FakeNode("node")
    tune(node, seconds=7)
    assert [task.seconds for task in node.tasks] == [7] * len(LAYERS)
    assert node.tasks[0].records == node.tasks[0].others == ()
    assert node.tasks[-1].records == ()
    known = [decode(line) for line in node.tasks[-1].others]
    assert {record.workload for record in known} == set(node.tuned[:-1])
    assert all(record.confirmed for record in known)
    again = FakeNode("again")
    tune(again)
    assert len(again.tasks[0].records) == RECORDS


def test_devices_of_each_name_tune_for_themselves(tune, logs):
    nodes = [FakeNode("a"), FakeNode("b", device="other-cpu-4t"), FakeNode("c", device="other-cpu-4t")]
    tuned = tune(*nodes)
    assert set(nodes[0].tuned) == set(LAYERS)
    assert sorted(map(str, nodes[1].tuned + nodes[2].tuned)) == sorted(map(str, LAYERS))
    assert [each.target.device for each in tuned.devices] == ["fake-cpu-2t", "other-cpu-4t"]
    for device in ("fake-cpu-2t", "other-cpu-4t"):
        records = records_in(logs, device)
        assert len(records) == len(LAYERS) * RECORDS and {record.device for record in records} == {device}
    assert "fake-cpu-2t\n" in str(tuned) and "other-cpu-4t\n" in str(tuned)
    assert [each["device"] for each in tuned.as_data()["devices"]] == ["fake-cpu-2t", "other-cpu-4t"]


# -- what is written -------------------------------------------------------------------------------------------------


def test_a_record_is_acknowledged_when_it_is_on_disk(tune, logs, clock, monkeypatch, capsys):
    """The log fails while it writes the sixth line, and once more."""
    lines = []

    def append_line(log, line, *, usual=TuningLog.append_line):
        lines.append(line)
        if len(lines) in (6, 7):
            raise LogError("log=full: no space for a record")
        usual(log, line)

    monkeypatch.setattr(TuningLog, "append_line", append_line)
    tuned = tune(FakeNode("node", takes_s=100.0))
    assert lines[5] == lines[6] == lines[7]
    assert clock.slept_s == list(settings.RETRY_PAUSES_S)
    records = records_in(logs)
    assert len(records) == len({(r.workload, r.config) for r in records}) == len(LAYERS) * RECORDS
    assert tuned.left == 0
    assert [note for note in notes_in(capsys) if "no space" in note] == [
        f"note: log=full: no space for a record; trying again in {pause_s:g} s" for pause_s in settings.RETRY_PAUSES_S
    ]


def test_what_the_nodes_measure_is_shared_with_the_team(tune, logs, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DWCONV_SHARED_RECORDS", str(tmp_path / "team"))
    (tmp_path / "team").mkdir()
    tune(FakeNode("node"))
    count = len(LAYERS) * RECORDS
    assert any(note.startswith(f"note: {count} records shared: ") for note in notes_in(capsys))
    (there,) = (tmp_path / "team").glob("*.jsonl")
    assert TuningLog(there).load().records == records_in(logs)


def test_a_log_that_cannot_be_written_ends_it(tune, monkeypatch, logs):
    def append_line(log, line):
        raise LogError("log=full: no space for a record")

    monkeypatch.setattr(TuningLog, "append_line", append_line)
    with pytest.raises(LogError, match="no space"):
        tune(FakeNode("node"))
    assert records_in(logs) == []


def test_ctrl_c_keeps_what_is_acknowledged(tune, logs):
    tuned = tune(FakeNode("node"), interrupt_s=18.0)
    assert tuned.interrupted and tuned.left == len(LAYERS) - 2
    assert [outcome.result.stopped for outcome in tuned.outcomes] == [Stop.TRIALS, Stop.INTERRUPTED]
    assert len(records_in(logs)) == RECORDS + 3


# -- nodes that are lost ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [{"dies_s": 18.0}, {"silent_s": 18.0}], ids=["dies", "is silent"])
def test_what_a_lost_node_tuned_another_one_goes_on_with(tune, logs, capsys, lost):
    stays, goes = FakeNode("stays"), FakeNode("goes", **lost)
    tuned = tune(stays, goes)
    assert goes.ended and not stays.ended
    assert len(goes.tuned) == 2 and stays.tuned.count(goes.tuned[1]) == 1
    again = stays.tasks[stays.tuned.index(goes.tuned[1])]
    assert len(again.records) == 3, "what was acknowledged is known to the other one"
    assert set(again.records) <= {*(line for line in (logs / "fake-cpu-2t.jsonl").read_bytes().splitlines())}
    assert tuned.left == 0 and not tuned.lost and len(tuned.outcomes) == len(LAYERS)
    (note,) = notes_in(capsys)
    assert note.startswith("note: goes is lost: ") and note.endswith(" goes to another node")


def test_the_last_node_of_a_name_is_lost(tune, logs, capsys):
    tuned = tune(FakeNode("a", dies_s=18.0), FakeNode("b", device="other-cpu-4t"))
    assert tuned.lost and tuned.left == 3
    assert len(records_in(logs)) == RECORDS + 3 and len(records_in(logs, "other-cpu-4t")) == len(LAYERS) * RECORDS
    lost, none_left = notes_in(capsys)
    assert lost == "note: a is lost: it was unplugged"
    assert none_left.startswith("note: no node with fake-cpu-2t is left: 3 of 4 passes are not tuned; ")


def test_a_node_that_cannot_go_on_is_lost(tune, capsys):
    node = FakeNode("node", failure="out of memory")
    assert tune(node, FakeNode("other")).left == 0
    assert len(node.tasks) == 1 and "note: node is lost: out of memory" in notes_in(capsys)[0]


@pytest.mark.parametrize(
    "sends",
    [
        lambda line: line.replace(b"fake-cpu-2t", b"other-cpu-4t"),
        lambda line: line.replace(b'"batch":8', b'"batch":9'),
        lambda line: b'{"not": "a record"}',
    ],
    ids=["of another device", "of another workload", "no record"],
)
def test_a_node_that_sends_something_else_than_records_of_its_task_is_lost(tune, logs, capsys, sends):
    tuned = tune(FakeNode("forger", sends=sends), FakeNode("honest"))
    assert tuned.left == 0
    assert notes_in(capsys)[0].startswith("note: forger is lost: ")
    records = records_in(logs)
    assert {record.device for record in records} == {fake.TARGET.device}
    assert {record.workload for record in records} == set(LAYERS) and len(records) == len(LAYERS) * RECORDS


# -- nodes that are refused ------------------------------------------------------------------------------------------


def test_other_versions_are_refused(tune, capsys):
    installed = versions.installed()
    others = FakeNode("others", versions_there={**installed, "torch": "1.0"})
    without = FakeNode("without", versions_there={name: has for name, has in installed.items() if name != "tvm"})
    good = FakeNode("good")
    tune(others, without, good)
    assert others.ended and without.ended and others.tasks == without.tasks == []
    assert set(good.tuned) == set(LAYERS)
    assert notes_in(capsys) == [
        f"note: others is left out: there torch 1.0, here torch {installed['torch']}; install the same versions",
        f"note: without is left out: there tvm is missing, here tvm {installed['tvm']}; install the same versions",
    ]


def test_without_a_node_that_can_tune_there_is_no_result(tune):
    with pytest.raises(NoCluster, match=r"no node can tune: others: there .*torch 1\.0"):
        tune(FakeNode("others", versions_there={**versions.installed(), "torch": "1.0"}))


def test_two_nodes_of_one_machine_do_not_measure_side_by_side(tune, capsys):
    one, two = FakeNode("one", place="machine"), FakeNode("two", place="machine")
    tune(one, two)
    assert set(one.tuned) == set(LAYERS) and two.tasks == [] and two.ended
    assert notes_in(capsys) == ["note: two is left out: it is in the same place as one, and only one may measure there"]


# -- nodes that are slow ---------------------------------------------------------------------------------------------


def test_a_slow_node_rests_until_it_is_as_fast_as_the_others(tune, clock, capsys):
    slow = FakeNode("slow", reference_us=[(0.0, 182.0), (15.0, 104.0)])
    one, two = FakeNode("one"), FakeNode("two")
    tune(one, slow, two)
    assert len(slow.tasks) == 0 and len(one.tasks) == len(two.tasks) == 2, "all was done before it could be timed again"
    (note,) = notes_in(capsys)
    assert note.startswith("note: slow is slow: the reference kernel takes 1.82 times as long there as on other nodes")
    clock.now_s = 0.0
    one, slow = FakeNode("one", takes_s=20.0), FakeNode("slow", reference_us=[(0.0, 182.0), (15.0, 104.0)])
    tune(one, slow, resume=False)
    assert 0 < len(slow.tasks) < len(LAYERS)
    assert notes_in(capsys)[1] == "note: slow is as fast as the other nodes with fake-cpu-2t again"


def test_what_a_node_confirms_after_it_became_slow_is_contended_and_tuned_again(tune, logs, capsys):
    """Its reference kernel is timed after the finalists were measured, which is at 10 s."""
    sound, slow = FakeNode("sound"), FakeNode("slow", reference_us=[(0.0, 100.0), (9.0, 200.0)])
    tuned = tune(sound, slow)
    assert len(slow.tuned) == 1 and slow.tuned[0] in sound.tuned
    of_slow = [record for record in records_in(logs) if record.workload == slow.tuned[0]]
    before, doubted, after = of_slow[: RECORDS - 1], of_slow[RECORDS - 1], of_slow[RECORDS:]
    assert not any(record.contended for record in before)
    assert not doubted.confirmed and doubted.contention == 0.5
    assert [record.confirmed for record in after] == [False] * (RECORDS - 1) + [True]
    assert tuned.left == 0 and all(outcome.result.best.confirmed for outcome in tuned.outcomes)
    err = capsys.readouterr().err
    assert err.count("note: slow is slow") == 1 and err.count("a node that is not slow tunes it again") == 1


def test_without_another_node_records_of_a_slow_one_are_not_confirmed(tune, logs):
    slow = FakeNode("slow", reference_us=[(0.0, 100.0), (9.0, 200.0)], takes_s=10.0)
    dies = FakeNode("dies", contention=0.4, takes_s=500.0)
    tuned = tune(slow, dies)
    doubted = [outcome for outcome in tuned.outcomes if not outcome.result.best.confirmed]
    assert doubted and all(outcome.result.too_busy and outcome.result.best.contention == 0.5 for outcome in doubted)
    confirmed = {record.workload for record in records_in(logs) if record.confirmed}
    assert confirmed == {outcome.workload for outcome in tuned.outcomes} - {each.workload for each in doubted}


def test_a_busy_node_rests_while_another_one_is_free(tune, capsys):
    busy = FakeNode("busy", contention=0.4)
    tune(busy, FakeNode("free"))
    assert busy.tasks == []
    assert notes_in(capsys) == ["note: busy is busy: other work takes 40% of the time of the reference kernel"]
    tune(busy_alone := FakeNode("busy", contention=0.4))
    assert set(busy_alone.tuned) == set(LAYERS)
