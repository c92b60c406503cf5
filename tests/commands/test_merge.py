"""merge: the new log is there with all its records, or not at all."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dwconv.errors import LogError
from dwconv.merge import main
from dwconv.records.log import TuningLog
from tests.planted_records import record_of, workload_of

WORKLOADS = [workload_of(shape=(batch, 8, 9, 7)) for batch in (1, 2, 3)]


@pytest.fixture
def paths(tmp_path):
    """A log of three workloads, and where the merged one goes."""
    log = TuningLog(tmp_path / "log.jsonl")
    for workload in WORKLOADS:
        log.append(record_of(workload))
    return log.path, tmp_path / "new" / "out.jsonl"


def merge(paths):
    return main([str(paths[0]), "--out", str(paths[1])])


def left_in(folder):
    return sorted(path.name for path in folder.iterdir())


def at_fsync(monkeypatch, act):
    """``act`` when something is first made safe on disk: its last byte is written, and nothing was printed."""
    fsync = os.fsync

    def acted(file):
        monkeypatch.setattr(os, "fsync", fsync)
        act()
        fsync(file)

    monkeypatch.setattr(os, "fsync", acted)


def raising(error):
    def act():
        raise error

    return act


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            2,
            "error: out={} cannot be written: No space",
        ),
    ],
    ids=["ctrl-C", "no space"],
)
def test_what_is_cut_short_leaves_nothing(paths, monkeypatch, capsys, error, code, said):
    at_fsync(monkeypatch, raising(error))
    assert merge(paths) == code
    assert left_in(paths[1].parent) == []
    err = capsys.readouterr().err
    assert err.startswith(said.format(paths[1])) and err.count("\n") == 1
    assert merge(paths) == 0 and len(TuningLog(paths[1]).load().records) == 3


def test_what_is_killed_leaves_nothing_that_looks_like_a_log(paths):
    program = (
        "import os, signal, sys\n"
        "from dwconv.merge import main\n"
        "os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)\n"
        "main([sys.argv[1], '--out', sys.argv[2]])\n"
    )
    killed = subprocess.run([sys.executable, "-c", program, *map(str, paths)], timeout=1200)
    assert killed.returncode == -signal.SIGKILL
    assert not [name for name in left_in(paths[1].parent) if name.endswith(".jsonl")]
    assert merge(paths) == 0


def test_a_log_that_another_merge_makes_meanwhile_is_not_touched(paths, monkeypatch, capsys):
    at_fsync(monkeypatch, lambda: Path(paths[1]).write_text("the other's\n"))
    assert merge(paths) == 2
    assert capsys.readouterr().err == f"error: out={paths[1]} exists already; name another file\n"
    assert paths[1].read_text() == "the other's\n"
    assert left_in(paths[1].parent) == ["out.jsonl"]


@pytest.mark.parametrize("taken", [False, True])
def test_it_works_on_a_file_system_without_links(paths, monkeypatch, capsys, taken):
    def refused(*_):
        if taken:
            Path(paths[1]).write_text("the other's\n")
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    assert merge(paths) == (2 if taken else 0)
    assert left_in(paths[1].parent) == ["out.jsonl"]
    if taken:
        assert "exists already" in capsys.readouterr().err
        assert paths[1].read_text() == "the other's\n"
    else:
        assert len(TuningLog(paths[1]).load().records) == 3


def test_the_parent_may_be_no_folder(paths, capsys):
    assert main([str(paths[0]), "--out", str(paths[0] / "out.jsonl")]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: out={paths[0]}/out.jsonl cannot be written: ") and err.count("\n") == 1


def test_a_log_that_cannot_be_looked_at_is_one_line(paths, capsys):
    name = "round.jsonl"
    paths[0].with_name(name).symlink_to(name)
    assert main([str(paths[0].with_name(name)), "--out", str(paths[1])]) == 2
    err = capsys.readouterr().err
    assert f"{name} cannot be read: " in err and err.count("\n") == 1
    with pytest.raises(LogError, match=r"cannot be (read|written): "):
        TuningLog(paths[0].with_name(name)).check_writable()


def test_what_the_logs_say_is_printed_harmlessly(paths, capsys):
    """A field that is unknown is named by whoever wrote it."""
    with paths[0].open("ab") as file:
        file.write(paths[0].read_bytes().splitlines()[0].replace(b'"batch":1', b'"batch":1,"\\u001b[2J":1') + b"\n")
    assert merge(paths) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable() and "1 damaged line set aside; line 4: not a tuning record" in line


def test_a_name_that_is_no_text_is_printed_all_the_same(paths):
    out = os.fsencode(paths[1].with_name("out")) + b"\xff.jsonl"
    done = subprocess.run([sys.executable, "-m", "dwconv.merge", paths[0], "--out", out], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"out\\udcff.jsonl: " in done.stdout
