"""merge: a small log decides as the large ones did."""

from __future__ import annotations

import dataclasses
import errno
import os

import pytest

from dwconv.errors import LogError
from dwconv.merge import main
from dwconv.records.condense import condensed, write_whole
from dwconv.records.database import Database
from dwconv.records.log import TuningLog
from dwconv.records.record import Status
from dwconv.schedules.space import Config
from tests.planted_records import record_of, workload_of

SMALL = workload_of(shape=(8, 16, 14, 14))
LARGE = workload_of(shape=(8, 16, 28, 28), pass_="wgrad")
CONFIGS = [Config.of("cpu.made_up", block_h=value) for value in (1, 2, 4, 8, 14)]


def write(path, records):
    log = TuningLog(path)
    for record in records:
        log.append(record)
    return path


@pytest.fixture
def logs(tmp_path):
    """Two logs: trials and finalists of one workload, mere trials of another, failures, predictions, two devices."""
    trials = [record_of(SMALL, device="here", config=c, median_us=9 - i) for i, c in enumerate(CONFIGS)]
    finalists = [
        dataclasses.replace(
            record_of(SMALL, device="here", config=c, median_us=20 + i, created="2026-02-01"), confirmed=True
        )
        for i, c in enumerate(CONFIGS[:2])
    ]
    return [
        write(tmp_path / "a.jsonl", [*trials, record_of(LARGE, device="there", config=CONFIGS[0])]),
        write(
            tmp_path / "b.jsonl",
            [
                *finalists,
                record_of(LARGE, device="here", config=CONFIGS[1], median_us=3),
                record_of(LARGE, device="here", config=CONFIGS[2], median_us=1, computed=True),
                record_of(LARGE, device="here", config=CONFIGS[3], status=Status.CRASHED),
            ],
        ),
    ]


def test_a_merged_log_decides_as_the_logs_did(logs, tmp_path, capsys):
    out = tmp_path / "out.jsonl"
    assert main([*map(str, logs), "--out", str(out)]) == 0
    assert "4 of 11 records, 3 workloads" in capsys.readouterr().out
    before, after = Database.load(logs), Database.load([out])
    for workload in (SMALL, LARGE):
        for device in ("here", "there"):
            assert after.best(workload, device) == before.best(workload, device)
    assert [record.config for record in after.ranked(SMALL, "here")] == CONFIGS[:2], "the confirmed, best first"
    assert [record.config for record in after.records(LARGE, "here")] == [CONFIGS[1]], "no failure, no prediction"


def test_keep_bounds_the_records_of_a_workload(logs, tmp_path):
    out = tmp_path / "out.jsonl"
    assert main([str(logs[0]), "--out", str(out), "--keep", "2"]) == 0
    assert [record.config for record in Database.load([out]).records(SMALL, "here")] == [CONFIGS[4], CONFIGS[3]]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["a.jsonl", "--out", "a.jsonl"], "out=a.jsonl exists already"),
        (["none.jsonl", "--out", "out.jsonl"], "log=none.jsonl does not exist"),
        (["a.jsonl", "--out", "out.jsonl", "--keep", "0"], "--keep: 0 is not a whole number of at least 1"),
        (["empty.jsonl", "--out", "out.jsonl"], "no measurement is in empty.jsonl"),
    ],
)
def test_bad_input_is_one_line(logs, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.jsonl").touch()
    try:
        code = main(arguments)
    except SystemExit as exit:
        code = exit.code
    said = capsys.readouterr().err
    assert code == 2 and message in said and said.count("\n") == 1 and not (tmp_path / "out.jsonl").exists()


def test_each_pair_of_versions_has_its_own_best(tmp_path):
    """Whoever reads the log may have any of them."""
    new, old = {"torch": "2.13.0", "tvm": "0.27"}, {"torch": "2.12.0", "tvm": "0.27"}

    def made(config, *, us, versions):
        record = record_of(SMALL, device="here", config=config, median_us=us)
        return dataclasses.replace(record, versions=versions, confirmed=True)

    records = [
        made(CONFIGS[0], us=9, versions={**new, "template": "10"}),
        made(CONFIGS[0], us=1, versions=old),  # of the same candidate
        made(CONFIGS[1], us=2, versions=old),
        made(CONFIGS[2], us=1, versions={**new, "template": "9"}),  # by an earlier program of the template
        made(CONFIGS[3], us=8, versions={**new, "template": "10"}),
    ]
    database = Database.load([write(tmp_path / "log.jsonl", records)])
    assert condensed(database, keep=1) == [records[1], records[4]]
    assert condensed(database, keep=9) == [records[1], records[2], records[4], records[0]], "each once"


def test_each_arithmetic_has_its_own_best(tmp_path):
    """A kernel that was tuned with --fast-math runs for no other, and none runs for it."""
    fast = {"math": "fast"}
    records = [
        dataclasses.replace(record_of(SMALL, device="here", config=config, median_us=us), versions=versions)
        for config, us, versions in (
            (CONFIGS[0], 5, {}),
            (CONFIGS[1], 1, fast),
            (CONFIGS[2], 6, {}),
            (CONFIGS[0], 9, fast),
        )
    ]
    database = Database.load([write(tmp_path / "log.jsonl", records)])
    assert condensed(database, keep=1) == [records[0], records[1]]
    assert condensed(database, keep=9) == [records[0], records[2], records[1], records[3]]


@pytest.mark.parametrize("refused", [None, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_log_is_written_whole_also_where_there_are_no_links(tmp_path, monkeypatch, refused):
    def link(*paths):
        raise OSError(refused, os.strerror(refused))

    if refused:
        monkeypatch.setattr(os, "link", link)
    records = [record_of(SMALL), record_of(LARGE)]
    path = tmp_path / "new" / "out.jsonl"
    write_whole(path, records)
    assert TuningLog(path).load().records == records
    with pytest.raises(LogError, match="exists already"):
        write_whole(path, records[:1])
    assert TuningLog(path).load().records == records and [*path.parent.iterdir()] == [path]


def test_a_log_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    def link(*paths):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(LogError, match=r"out=.*out\.jsonl cannot be written: No space left on device"):
        write_whole(tmp_path / "out.jsonl", [record_of(SMALL)])
    assert not [*tmp_path.iterdir()]
