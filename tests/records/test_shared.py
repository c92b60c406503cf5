"""What a team has measured counts as measured here; what cannot be read costs a line, and a little time."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem

import dwconv
from dwconv import merge, settings
from dwconv.dispatch.decide import decide_on
from dwconv.errors import DwconvWarning, LogError, RemoteError
from dwconv.problems.target import cpu_target
from dwconv.records import shared
from dwconv.records.database import Database
from dwconv.records.line import encode
from dwconv.records.record import Status
from dwconv.schedules.template import templates_for
from dwconv.system import remote_files
from tests.planted_records import record_of, workload_of
from tests.servers import closed_port, hanging_server, http_server
from tests.waiting import eventually

WORKLOAD = workload_of()
"""Of a layer that nothing else here has records of."""


@pytest.fixture(autouse=True)
def limits(monkeypatch, tmp_path, logs):
    """A cache of its own, and no log but those of the team. A busy machine takes seconds to import what reads them."""
    for name in ("SHARED_READ_TIMEOUT_S", "SHARED_WRITE_TIMEOUT_S", "SHARED_AGE_S", "SHARED_RETRY_S"):
        monkeypatch.setattr(settings, name, 3600.0)
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "team").mkdir()


@pytest.fixture
def team(monkeypatch, tmp_path):
    """The folder of the team."""
    monkeypatch.setenv("DWCONV_SHARED_RECORDS", str(tmp_path / "team"))
    return tmp_path / "team"


def measured(**changes):
    """A record of a kernel that is ten times as fast as PyTorch's op."""
    (template,) = (each for each in templates_for(WORKLOAD, cpu_target()) if each.layout == "nhwc")
    config = template.space(WORKLOAD, cpu_target()).default
    return dataclasses.replace(record_of(WORKLOAD, config=config, baseline_us=500.0), **changes)


def put(url, *records, device="team-cpu-2t"):
    """As one run elsewhere leaves them."""
    run = shared.SharedRun(str(url), device=device)
    for record in records:
        run.add(record)
    assert run.put() == len(records)
    return run


def decided():
    return decide_on(cpu_target(), WORKLOAD, known=Database.usual(), predicts=False)


# -- what counts -------------------------------------------------------------------------------------------------------


def test_what_the_team_measured_on_this_device_is_measured_here(team):
    assert decided().provider == "pytorch"
    put(team, measured())
    assert decided().provider == "pytorch", "the copy is new enough, and no request is sent"
    assert Database.behind_log(team / "none", alone=False).of_own_places.best(WORKLOAD, cpu_target().device)
    decision = decided()
    assert decision.provider == "dwconv" and decision.reason.startswith("10.00× as fast as onednn-nhwc")


def test_the_users_own_measurements_go_before_the_teams(team, logs):
    put(team, measured())
    slower = measured(measurement=dataclasses.replace(measured().measurement, median_us=5000.0), confirmed=True)
    (logs / "own.jsonl").write_bytes(encode(slower) + b"\n")
    assert "is faster" in decided().reason


# -- many writers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["memory://two-writers", None])
def test_two_writers_at_once_lose_no_line(team, url, monkeypatch):
    """Of the same device, in the same second, each of which puts again and again."""
    url = url or str(team)
    monkeypatch.setenv("DWCONV_SHARED_RECORDS", url)
    runs = [shared.SharedRun(url, device="same-cpu-2t") for _ in range(2)]

    def write(number):
        for turn in range(20):
            runs[number].add(measured(created=f"writer {number}, record {turn}"))
            runs[number].put()

    with ThreadPoolExecutor(2) as both:
        list(both.map(write, range(2)))
    found = {record.created for record in Database.usual()}
    assert found == {f"writer {number}, record {turn}" for number in range(2) for turn in range(20)}


def test_a_log_that_grows_is_read_again_and_one_that_is_gone_is_forgotten(team):
    run = put(team, measured(created="first"))
    other = put(team, measured(created="other"))
    assert len(list(Database.usual())) == 2
    run.add(measured(created="second"))
    run.put()
    (team / other.name).unlink()
    created = {record.created for record in Database.behind_log(team / "none", alone=False)}
    assert created == {"first", "second"}


def test_what_was_only_computed_is_not_shared(team):
    run = shared.SharedRun(str(team), device="sm_90")
    run.add(record_of(WORKLOAD, computed=True))
    run.add(record_of(WORKLOAD, status=Status.WRONG))
    assert run.put() == 1


# -- what others may have put there ------------------------------------------------------------------------------------


def test_torn_lines_and_hostile_objects_are_set_aside(team, monkeypatch):
    monkeypatch.setattr(shared, "MOST_BYTES", 100_000)
    put(team, measured())
    whole = encode(measured(created="before the tear")) + b"\n"
    (team / "torn.jsonl").write_bytes(whole + whole[:-200])
    (team / "$(reboot)\x1b[2J .jsonl").write_bytes(b"\x80\x05cposix\nsystem\n(S'reboot'\ntR.\n" * 5)
    (team / "large.jsonl").write_bytes(b"x" * 200_000)
    (team / "notes.txt").write_text("not a log")
    os.mkfifo(team / "pipe.jsonl")
    (team / "folder.jsonl").mkdir()
    found = Database.usual()
    assert {record.created for record in found} == {"", "before the tear"}
    assert decided().provider == "dwconv"
    assert all(problem.isprintable() for problem in found.problems)
    torn, hostile, large = sorted(found.problems, key=lambda line: ("large" in line, "reboot" in line))
    assert "1 damaged line set aside; line 2" in torn
    assert "damaged lines set aside; line 1: not a tuning record" in hostile and "/reboot-2J-" in hostile
    assert "large.jsonl has more than" in large


def test_a_log_without_end_is_read_no_further_than_it_may_be(tmp_path, monkeypatch):
    pytest.importorskip("aiohttp")
    monkeypatch.setattr(shared, "MOST_BYTES", 3 * 2**20)
    with http_server(tmp_path, endless=True) as url:
        monkeypatch.setenv("DWCONV_SHARED_RECORDS", url)
        (problem,) = Database.usual().problems
    assert "endless.jsonl has more than 3145728 bytes" in problem


# -- what cannot be reached --------------------------------------------------------------------------------------------


def said_by_calls():
    """What two calls of different layers say."""
    dwconv.reset()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for channels in (8, 16):
            dwconv.conv2d(torch.randn(1, channels, 6, 6), torch.randn(channels, 1, 3, 3), padding=1)
    return [str(each.message) for each in caught if issubclass(each.category, DwconvWarning)]


def test_a_server_that_never_answers_costs_a_line_and_the_limit_once(monkeypatch, logs):
    pytest.importorskip("aiohttp")
    with hanging_server() as server:
        time_is_up_at_the_request(monkeypatch, server)
        monkeypatch.setenv("DWCONV_SHARED_RECORDS", server.url)
        (logs / "own.jsonl").write_bytes(encode(measured()) + b"\n")
        assert decided().provider == "dwconv", "the logs of this machine count"
        asked = len(server.accepted)
        assert asked
        lines = [line for line in said_by_calls() if "shared records" in line]
        assert len(lines) == 1 and f"{server.url} cannot be read: no answer within 3" in lines[0]
        assert len(server.accepted) == asked, "no request follows so soon"
        monkeypatch.setattr(settings, "SHARED_RETRY_S", 0.0)
        Database.usual()
        assert len(server.accepted) > asked


def time_is_up_at_the_request(monkeypatch, server):
    """The time to read is over as soon as ``server`` is reached, however long that takes."""

    class Done(threading.Event):
        def __init__(self):
            super().__init__()
            self.before = len(server.accepted)

        def wait(self, timeout=None):
            assert eventually(lambda: len(server.accepted) > self.before)
            return self.is_set()

    monkeypatch.setattr(remote_files, "threading", SimpleNamespace(Event=Done, Thread=threading.Thread))


def test_a_process_does_not_wait_for_a_server_that_hangs_when_it_ends():
    pytest.importorskip("aiohttp")
    program = (
        "from dwconv import settings\nsettings.SHARED_READ_TIMEOUT_S = 0.3\n"
        "from dwconv.records.database import Database\nprint(*Database.usual().problems)\n"
        "import time; print(time.time())"
    )
    with hanging_server() as server:
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=1200,
            env=os.environ | {"DWCONV_SHARED_RECORDS": server.url},
        )  # fmt: skip
        ended = time.time()
    problem, last_line = done.stdout.splitlines()
    assert done.returncode == 0 and "no answer within 0." in problem and done.stderr == ""
    assert ended - float(last_line) < 240, "it would wait for five minutes"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://user:secret@127.0.0.1:{port}/records?key=secret", "Cannot connect"),
        ("nosuch://team/records", "Protocol not known: nosuch"),
        ("s3://team/records", "s3fs"),
    ],
)
def test_what_cannot_be_reached_is_one_line_without_secrets(monkeypatch, url, reason):
    if url.startswith("http"):
        pytest.importorskip("aiohttp")
    if url.startswith("s3"):
        monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.setenv("DWCONV_SHARED_RECORDS", url.format(port=closed_port()))
    (problem,) = Database.usual().problems
    assert reason in problem and "\n" not in problem and "secret" not in problem
    with pytest.raises(RemoteError, match=reason):
        put(settings.shared_records(), measured())


def test_a_folder_that_is_not_there_is_not_made(team, tmp_path, monkeypatch):
    """It is mistyped, or its disk is not mounted; and what was read before still counts."""
    put(team, measured())
    assert decided().provider == "dwconv"
    team.rename(tmp_path / "unmounted")
    monkeypatch.setattr(settings, "SHARED_AGE_S", 0.0)
    monkeypatch.setattr(settings, "SHARED_RETRY_S", 0.0)
    for name in (str(team), team.as_uri(), str(tmp_path / "mistyped" / "deep")):
        monkeypatch.setenv("DWCONV_SHARED_RECORDS", name)
        (problem,) = Database.usual().problems
        assert "there is no /" in problem and "make that folder, or mount its disk" in problem
        with pytest.raises(RemoteError, match="make that folder, or mount its disk"):
            put(name, measured())
    assert not team.exists() and not (tmp_path / "mistyped").exists()
    monkeypatch.setenv("DWCONV_SHARED_RECORDS", str(team))
    assert len(list(Database.usual())) == 1
    team.mkdir()
    assert Database.usual().problems == [], "an empty one is a beginning"


def test_the_last_copy_counts_while_the_server_is_away(tmp_path, monkeypatch):
    pytest.importorskip("aiohttp")
    put(tmp_path / "team", measured())
    with http_server(tmp_path / "team") as url:
        monkeypatch.setenv("DWCONV_SHARED_RECORDS", url)
        assert decided().provider == "dwconv"
    monkeypatch.setattr(settings, "SHARED_AGE_S", 0.0)
    found = Database.usual()
    assert len(found.problems) == 1 and "Cannot connect" in found.problems[0]
    assert len(list(found)) == 1


def test_where_nothing_can_be_kept_the_logs_of_this_machine_count(team, tmp_path, monkeypatch):
    put(team, measured())
    (tmp_path / "no-folder").touch()
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path / "no-folder"))
    found = Database.usual()
    assert list(found) == [] and "no copy can be kept" in found.problems[0]


# -- merging -----------------------------------------------------------------------------------------------------------


def test_merge_reads_and_writes_urls(capsys):
    MemoryFileSystem.store.clear()
    for created in ("first", "second"):
        put("memory://merge", measured(created=created))
    assert merge.main(["memory://merge", "--out", "memory://merge/merged.jsonl"]) == 0
    assert "memory://merge/merged.jsonl: 1 of 2 records, 1 workloads" in capsys.readouterr().out
    assert merge.main(["memory://merge/merged.jsonl", "--out", "memory://merge/merged.jsonl"]) == 2
    assert "cannot be written: it exists already" in capsys.readouterr().err
    assert merge.main(["memory://nothing", "--out", "memory://merge/other.jsonl"]) == 2
    assert "log=memory://nothing has no logs" in capsys.readouterr().err


def test_a_file_named_by_its_url_must_be_there_whole():
    with pytest.raises(LogError, match=r"log=nosuch://team cannot be read: .*; try again, or name another"):
        shared.fetched("nosuch://team")
