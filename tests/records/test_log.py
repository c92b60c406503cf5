"""TuningLog: what was acknowledged survives, what is damaged is set aside."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dwconv import settings
from dwconv.errors import LogError
from dwconv.problems.target import cpu_target
from dwconv.records import log as log_module
from dwconv.records.line import encode
from dwconv.records.log import TuningLog, log_path
from dwconv.records.record import Measurement
from tests.planted_records import record_of, workload_of
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
RECORD = record_of(workload_of())
LINE = encode(RECORD)


def test_what_could_not_be_read_again_is_not_written(tmp_path):
    log = TuningLog(tmp_path / "log.jsonl")
    with pytest.raises(LogError, match="median_us"):
        log.append(dataclasses.replace(RECORD, measurement=Measurement(median_us=math.nan, spread_us=0, rounds=1)))
    assert log.load().records == []


def test_a_torn_last_line_costs_itself_only(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(LINE + b"\n" + LINE[:-7])
    log = TuningLog(path)
    assert (len(log.load().records), log.load().damaged) == (1, 1)
    log.append(RECORD)
    assert (len(log.load().records), log.load().damaged) == (2, 1)
    assert path.read_bytes().endswith(LINE + b"\n")


def test_a_missing_log_holds_nothing_and_is_made_with_its_folder(tmp_path):
    log = TuningLog(tmp_path / "new" / "folder" / "log.jsonl")
    assert log.load().records == []
    log.check_writable()
    assert log.load().records == []
    log.append(RECORD)
    assert log.load().records == [RECORD]


def test_the_default_log_is_the_users_own_or_the_first_that_is_listed(monkeypatch):
    target = cpu_target()
    monkeypatch.delenv("DWCONV_TUNING_LOGS", raising=False)
    own = log_path(target)
    assert own.name == f"{target.device}.jsonl" and own.is_absolute()
    assert own.parent == settings.tuning_log_paths()[0] and settings.shipped_log_folder() not in own.parents
    for listed, written in (("a:b", Path("a") / own.name), ("a.jsonl:b", Path("a.jsonl")), ("", own)):
        monkeypatch.setenv("DWCONV_TUNING_LOGS", listed.replace(":", os.pathsep))
        assert log_path(target) == written


# -- what the machine does to it -----------------------------------------------------------------------------------


def test_a_folder_is_no_log(tmp_path):
    with pytest.raises(LogError, match=f"^log={tmp_path} is a folder; name a file in it") as caught:
        TuningLog(tmp_path)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("folder", "reason"),
    [
        ("file", "cannot be written: .*/file is not a folder"),
        ("link/logs", "cannot be written: .*/link is a link that leads nowhere"),
        ("n" * 300, "File name too long"),
    ],
)
def test_a_folder_that_cannot_be_there_is_one_line(tmp_path, folder, reason):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "unmounted" / "disk")
    for act in (TuningLog.check_writable, lambda log: log.append(RECORD)):
        with pytest.raises(LogError, match=rf"^log={tmp_path}/{folder}/log.jsonl .*{reason}.*; name another .* --log$"):
            act(TuningLog(tmp_path / folder / "log.jsonl"))


def python(program: str, *arguments: object) -> subprocess.Popen[str]:
    head = (
        "import resource, sys\n"
        "sys.dont_write_bytecode = True\n"  # on a full disk it would be torn, and later imports would fail
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.planted_records import record_of, workload_of\n"
        "from dwconv.errors import LogError\n"
        "from dwconv.records.log import TuningLog\n"
        "log = TuningLog(sys.argv[1])\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", head + program, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


def test_a_full_disk_leaves_whole_lines_and_says_so(tmp_path):
    """The limit cuts the third record in its middle; what is written of it is taken back."""
    path = tmp_path / "log.jsonl"
    full = python(
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))\n"
        "for _ in range(3):\n"
        "    try:\n"
        "        log.append(record_of(workload_of()))\n"
        "    except LogError as error:\n"
        "        print(error)\n",
        path,
        2 * (len(LINE) + 1) + len(LINE) // 2,
    )
    said, _ = full.communicate(timeout=1200)
    assert full.returncode == 0
    assert said.count("\n") == 1
    assert said.startswith(f"log={path}")
    assert path.read_bytes() == (LINE + b"\n") * 2
    TuningLog(path).append(RECORD)
    assert TuningLog(path).load().records == [RECORD] * 3


def test_what_was_acknowledged_survives_kill_9(tmp_path):
    path = tmp_path / "log.jsonl"
    writer = python(
        "batch = 0\n"
        "while True:\n"
        "    batch += 1\n"
        "    log.append(record_of(workload_of(shape=(batch, 8, 9, 7))))\n"
        "    print(batch, flush=True)\n",
        path,
    )
    acknowledged = 0
    while acknowledged < 20:
        acknowledged = int(writer.stdout.readline())
    writer.send_signal(signal.SIGKILL)
    acknowledged = max([acknowledged, *map(int, writer.stdout.read().split())])
    writer.wait()
    loaded = TuningLog(path).load()
    read = [record.workload.batch for record in loaded.records]
    assert read == list(range(1, len(read) + 1))
    assert len(read) >= acknowledged
    assert loaded.damaged <= 1


# -- waiting for another writer --------------------------------------------------------------------------------------

fcntl = pytest.importorskip("fcntl", reason="there are no locks on Windows")


@pytest.fixture
def lock(tmp_path):
    """Locks the log as another process would; released in the end."""
    handles = []

    class Lock:
        path = tmp_path / "log.jsonl"

        def hold(self):
            handles.append(os.open(self.path, os.O_RDWR | os.O_CREAT))
            fcntl.flock(handles[-1], fcntl.LOCK_EX)

        def release(self):
            while handles:
                os.close(handles.pop())

    yield (taken := Lock())
    taken.release()


def test_a_writer_that_waits_says_so_once(lock, monkeypatch, capsys):
    log = TuningLog(lock.path)
    said, say = [], log._say_that_it_waits
    monkeypatch.setattr(log_module, "_SILENT_S", 0.01)
    monkeypatch.setattr(log, "_say_that_it_waits", lambda: (say(), said.append(1)))
    for times in (1, 2):
        lock.hold()
        writer = threading.Thread(target=log.append, args=(RECORD,), daemon=True)
        writer.start()
        assert eventually(lambda times=times: len(said) == times)
        assert writer.is_alive(), "it goes on waiting"
        lock.release()
        writer.join(600)
    assert log.load().records == [RECORD, RECORD]
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        line == f"note: log={lock.path} is locked by another process; waiting for it (end that, or use --log elsewhere)"
    )


def test_a_log_that_is_replaced_while_a_writer_waits_is_the_one_written(lock, monkeypatch):
    log, said = TuningLog(lock.path), []
    monkeypatch.setattr(log_module, "_SILENT_S", 0.01)
    monkeypatch.setattr(log, "_say_that_it_waits", lambda: said.append(1))
    lock.hold()
    writer = threading.Thread(target=log.append, args=(RECORD,), daemon=True)
    writer.start()
    assert eventually(lambda: said)
    other = TuningLog(lock.path.with_name("other.jsonl"))
    other.append(RECORD)
    other.path.replace(lock.path)
    lock.release()
    writer.join(600)
    assert log.load().records == [RECORD, RECORD]


# -- threads and forked processes ------------------------------------------------------------------------------------


def test_threads_that_share_a_log_write_into_no_other_file(tmp_path):
    """Another thread opens and closes files all the while: it gets the numbers of descriptors that are free."""
    log, others, over = TuningLog(tmp_path / "log.jsonl"), [], threading.Event()

    def write(name):
        for batch in range(1, 26):
            record = record_of(workload_of(shape=(batch, 8, 9, 7)), device=name)
            log.append(dataclasses.replace(record, detail="x" * 5_000))

    def open_files():
        while not over.is_set():
            others.append(tmp_path / f"other-{len(others)}")
            with others[-1].open("w") as file:
                file.write("mine")

    opener = threading.Thread(target=open_files)
    opener.start()
    with ThreadPoolExecutor(8) as writers:
        list(writers.map(write, "abcdefgh"))
    over.set()
    opener.join(600)
    loaded = log.load()
    assert loaded.damaged == 0
    for name in "abcdefgh":
        assert [each.workload.batch for each in loaded.records if each.device == name] == list(range(1, 26))
    assert {other.read_text() for other in others} == {"mine"}


def test_a_thread_has_the_file_to_itself(tmp_path):
    """Another one, which would find the file open and locked, waits for its turn."""
    log, waits, has_it = TuningLog(tmp_path / "log.jsonl"), threading.Event(), threading.Event()
    turn = log._turn

    class Turn:
        def __enter__(self):
            if threading.current_thread() is other:
                waits.set()
            return turn.__enter__()

        def __exit__(self, *error):
            return turn.__exit__(*error)

    def take():
        with log.locked():
            has_it.set()
        waits.set()

    other, log._turn = threading.Thread(target=take), Turn()
    with log.locked():
        other.start()
        assert waits.wait(600)
        assert not has_it.is_set()
        log.append(RECORD)
    other.join(600)
    assert has_it.is_set() and log.load().records == [RECORD]


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


def forked(act):
    """The exit status of a child that runs ``act``, and then ends without cleaning up, as PyTorch's data loaders do."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(600)
            status = act() or 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@needs_fork
def test_a_child_that_is_forked_while_a_thread_writes_writes_too(tmp_path):
    log, inside, go = TuningLog(tmp_path / "log.jsonl"), threading.Event(), threading.Event()

    def write():
        with log.locked():
            inside.set()
            go.wait(600)
            log.append(RECORD)

    writer = threading.Thread(target=write)
    writer.start()
    assert inside.wait(600)
    child = os.fork()
    if child == 0:
        signal.alarm(600)  # it waits for its parent, as another process does, but not for a thread that it has not
        log.append(RECORD)
        os._exit(0)
    go.set()
    writer.join(600)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    log.append(RECORD)
    assert (log.load().records, log.load().damaged) == ([RECORD] * 3, 0)


@needs_fork
def test_what_is_printed_to_a_closed_stream_does_not_go_to_the_log(tmp_path):
    log = TuningLog(tmp_path / "log.jsonl")

    def write():
        os.closerange(1, 3)
        with log.locked():
            for stream in (1, 2):
                with contextlib.suppress(OSError):
                    os.write(stream, b"of a library")
            log.append(RECORD)

    assert forked(write) == 0
    assert log.path.read_bytes() == LINE + b"\n"


@needs_fork
def test_parent_and_children_append_to_one_log(tmp_path):
    log = TuningLog(tmp_path / "log.jsonl")

    def write():
        for _ in range(20):
            log.append(dataclasses.replace(RECORD, detail="x" * 20_000))

    writer = threading.Thread(target=write)
    writer.start()
    statuses = [forked(write) for _ in range(3)]
    writer.join(600)
    assert statuses == [0, 0, 0]
    assert (len(log.load().records), log.load().damaged) == (80, 0)
