"""The driver of a cluster: which node tunes what, what is written, what happens to nodes that are lost or refused."""

from __future__ import annotations

import pytest

from dwconv import settings
from dwconv.errors import LogError, NoDevice
from dwconv.records.database import Database
from dwconv.records.line import decode
from dwconv.records.log import TuningLog
from dwconv.schedules import template as template_module
from dwconv.system import versions
from dwconv.tuner import agenda as agenda_module
from dwconv.tuner.cluster import driver
from dwconv.tuner.cluster.node import Setup
from dwconv.tuner.expected_gain import most_to_win_first
from dwconv.tuner.search.search_result import Stop
from dwconv.tuner.user_choices import UserChoices
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
        setup = Setup(target="auto", fast_math=False, choices=UserChoices(**choices))
        cluster = FakeCluster(nodes, clock, interrupt_s=interrupt_s)
        return driver.tune_on(cluster, COUNTS, setup, network=True)

    return tune


def records_in(logs, device=fake.TARGET.device):
    return TuningLog(logs / f"{device}.jsonl").load().records


def notes_in(capsys):
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]


# -- which node tunes what -------------------------------------------------------------------------------------------


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


def test_a_node_gets_the_records_of_its_workload_and_of_others(tune):
    node = FakeNode("node")
    tune(node, seconds=7)
    assert [task.budget.seconds for task in node.tasks] == [7] * len(LAYERS)
    assert node.tasks[0].records == node.tasks[0].others == ()
    assert node.tasks[-1].records == ()
    known = [decode(line) for line in node.tasks[-1].others]
    assert {record.workload for record in known} == set(node.tuned[:-1])
    assert all(record.confirmed for record in known)
    again = FakeNode("again")
    assert "tuning left: ≤ " in str(tune(again, until=0.95))
    assert len(again.tasks[0].records) == RECORDS
    untils = [task.budget.until for task in again.tasks]
    assert [(until.share, until.calls) for until in untils] == [(0.95, COUNTS[layer]) for layer in again.tuned]


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


def test_a_record_that_cannot_be_written_is_tried_again(tune, logs, clock, monkeypatch, capsys):
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

    def full(log, line):
        raise LogError("log=full: no space for a record")

    monkeypatch.setattr(TuningLog, "append_line", full)
    with pytest.raises(LogError, match="no space"):
        tune(FakeNode("node"), resume=False)


def test_what_the_nodes_measure_is_shared_with_the_team(tune, logs, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DWCONV_SHARED_RECORDS", str(tmp_path / "team"))
    (tmp_path / "team").mkdir()
    tune(FakeNode("node"))
    count = len(LAYERS) * RECORDS
    assert any(note.startswith(f"note: {count} records shared: ") for note in notes_in(capsys))
    (there,) = (tmp_path / "team").glob("*.jsonl")
    assert TuningLog(there).load().records == records_in(logs)


def test_ctrl_c_keeps_what_is_on_disk(tune, logs):
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
    assert len(again.records) == 3, "what is on disk is known to the other one"
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


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"failure": "out of memory"}, "out of memory"),
        ({"sends": lambda line: line.replace(b"fake-cpu-2t", b"other-cpu-4t")}, "something else than its task"),
        ({"sends": lambda line: line.replace(b'"batch":8', b'"batch":9')}, "something else than its task"),
        ({"sends": lambda line: b'{"not": "a record"}'}, "what it sent is "),
    ],
    ids=["fails", "another device", "another workload", "no record"],
)
def test_a_node_that_fails_or_sends_something_else_than_records_of_its_task_is_lost(tune, logs, capsys, wrong, said):
    tuned = tune(node := FakeNode("node", **wrong), FakeNode("honest"))
    assert tuned.left == 0 and len(node.tasks) == 1
    (note,) = notes_in(capsys)
    assert note.startswith("note: node is lost: ") and said in note
    records = {(record.workload, record.config) for record in records_in(logs)}
    assert len(records) == len(LAYERS) * RECORDS and {workload for workload, _ in records} == set(LAYERS)
    assert {record.device for record in records_in(logs)} == {fake.TARGET.device}


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
    with pytest.raises(NoDevice, match=r"no node can tune: others: there .*torch 1\.0"):
        tune(FakeNode("others", versions_there={**installed, "torch": "1.0"}))


def test_two_nodes_of_one_machine_do_not_measure_side_by_side(tune, capsys):
    one, two = FakeNode("one", place="machine"), FakeNode("two", place="machine")
    tune(one, two)
    assert set(one.tuned) == set(LAYERS) and two.tasks == [] and two.ended
    assert notes_in(capsys) == ["note: two is left out: it is in the same place as one, and only one may measure there"]
