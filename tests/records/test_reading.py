"""Reading: what lies where a log is looked for may be anything; it is read in bounded time and memory."""

from __future__ import annotations

import codecs
import os
import signal
import socket
import tracemalloc
from pathlib import Path

import pytest

from dwconv.errors import LogError
from dwconv.records import log as log_module
from dwconv.records.database import Database
from dwconv.records.line import encode
from dwconv.records.log import MOST_DAMAGES, TuningLog
from tests.planted_records import record_of, workload_of

RECORD = record_of(workload_of())
LINE = encode(RECORD) + b"\n"


@pytest.fixture(autouse=True)
def _ends():
    """Fails what waits for ever, or works for ever: a minute by the clock, or twenty seconds of the CPU."""

    def fail(*_):
        pytest.fail("this never ends")

    usual = [(number, signal.signal(number, fail)) for number in (signal.SIGALRM, signal.SIGPROF)]
    signal.setitimer(signal.ITIMER_REAL, 60)
    signal.setitimer(signal.ITIMER_PROF, 20)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.setitimer(signal.ITIMER_PROF, 0)
    for number, handler in usual:
        signal.signal(number, handler)


def a_socket(name):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(name)


NO_FILES = {
    "a pipe": (os.mkfifo, "log=odd.jsonl is a pipe, where a file is needed; move it away, or name a file with --log"),
    "a socket": (a_socket, "log=odd.jsonl cannot be read: "),
    "a folder": (os.mkdir, "log=odd.jsonl is a folder; name a file in it"),
    "an endless device": (lambda name: Path(name).symlink_to("/dev/zero"), "log=odd.jsonl is a device"),
}


@pytest.mark.parametrize(("make", "said"), NO_FILES.values(), ids=list(NO_FILES))
def test_what_is_no_file_is_named_and_passed_over(tmp_path, monkeypatch, make, said):
    monkeypatch.chdir(tmp_path)
    make("odd.jsonl")
    TuningLog("good.jsonl").append(RECORD)
    found = Database.load([Path()])
    assert list(found) == [RECORD]
    (problem,) = found.problems
    assert problem.startswith(said)


def test_a_pipe_is_not_written_either(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    for act in (TuningLog.check_writable, lambda log: log.append(RECORD)):
        with pytest.raises(LogError, match="is a pipe, where a file is needed"):
            act(TuningLog(tmp_path / "pipe.jsonl"))


def test_the_null_device_is_an_empty_log_that_takes_everything():
    log = TuningLog(os.devnull)
    log.check_writable()
    log.append(RECORD)
    assert log.load().records == []


# -- any size ----------------------------------------------------------------------------------------------------------


def loaded_within(path, mib):
    """The content of the log; finding it out must not take more memory than ``mib``."""
    tracemalloc.start()
    try:
        loaded = TuningLog(path).load()
        assert tracemalloc.get_traced_memory()[1] < mib * 2**20
    finally:
        tracemalloc.stop()
    return loaded


@pytest.mark.parametrize(
    ("line", "times"),
    [(b"x\n", 50_000), (b"{}\n", 50_000), (b'{"format":1,"more":"%s"}\n' % (b"garbage" * 20), 10_000)],
    ids=["short", "JSON", "long"],
)
def test_damaged_lines_are_counted_and_the_first_described(tmp_path, line, times):
    path = tmp_path / "log.jsonl"
    path.write_bytes(LINE + line * times + b"\n \n" + LINE)
    loaded = loaded_within(path, 2)
    assert loaded.records == [RECORD, RECORD]
    assert loaded.damaged == times
    assert [damage.line for damage in loaded.damages] == list(range(2, 2 + MOST_DAMAGES))


def test_a_byte_order_mark_costs_no_record(tmp_path):
    """As some editors write it; and as it comes into the middle, where such files are put together."""
    path = tmp_path / "log.jsonl"
    path.write_bytes((codecs.BOM_UTF8 + LINE) * 2 + codecs.BOM_UTF8 + b"\r\n")
    loaded = TuningLog(path).load()
    assert loaded.records == [RECORD, RECORD] and not loaded.damages


def test_a_line_that_is_too_long_is_passed_over_without_being_held(tmp_path):
    path = tmp_path / "log.jsonl"
    with path.open("wb") as file:
        file.write(LINE)
        file.truncate(2**25)  # zeros, as a file system may leave them after a power cut
        file.seek(2**25)
        file.write(b"\n" + LINE)
    loaded = loaded_within(path, 8)
    assert loaded.records == [RECORD, RECORD]
    assert [(damage.line, damage.reason) for damage in loaded.damages] == [(2, "longer than 1 MiB, no tuning record")]


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_what_follows_a_line_near_the_limit_is_read(tmp_path, over):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"x" * (2**20 - 1 + over) + b"\n" + LINE)
    loaded = TuningLog(path).load()
    assert (len(loaded.records), [damage.line for damage in loaded.damages]) == (1, [1])


def test_a_huge_file_is_read_as_far_as_a_log_may_reach(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(LINE)
    os.truncate(path, 2**36)
    loaded = loaded_within(path, 8)
    assert loaded.records == [RECORD]
    assert loaded.damaged == 2
    assert loaded.damages[1].reason == "what comes after 256 MiB is not read"
    with pytest.raises(LogError, match=r"is full: no more than 256 MiB are read; use --log elsewhere$"):
        TuningLog(path).append(RECORD)
    assert path.stat().st_size == 2**36


def test_a_file_that_grows_while_it_is_read_ends_where_it_ended(tmp_path, monkeypatch):
    path = tmp_path / "log.jsonl"
    path.write_bytes(LINE * 3)
    checked, read = log_module.checked, []

    def check_and_write(line):
        read.append(line)
        assert len(read) <= 3, "it runs after the writer"
        with path.open("ab") as file:
            file.write(LINE * 100)
        return checked(line)

    monkeypatch.setattr(log_module, "checked", check_and_write)
    assert len(TuningLog(path).load().records) == 3
