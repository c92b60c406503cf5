"""The compiler works in a thread: no call blocks on it, and nothing of it outlives the process, or a fork of it."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import psutil
import pytest
import torch

import dwconv
from dwconv import native
from dwconv.errors import BuildError, DwconvWarning
from dwconv.native import attempt, background
from dwconv.native.compile import load_compiled
from tests import forked
from tests.planted_records import plant, workload_of
from tests.stub_compiler import COPY, StubCompiler
from tests.waiting import eventually, gone


def test_calls_do_not_block_until_it_is_compiled(compiler: StubCompiler, caplog: pytest.LogCaptureFixture) -> None:
    compiler.waits_and_does(COPY)
    for _ in range(2):
        assert native.soon() is None and native.native(may_compile=False) is None
    assert native.module is None and native.run() is None and native.why_not == "it is being compiled"
    assert eventually(lambda: compiler.calls == 1)
    assert native.native(limit_s=0.1) is None and native.why_not == "it is being compiled"
    compiler.go.touch()
    assert eventually(lambda: native.module is not None)
    assert native.soon() is native.native() is native.module and native.run() == 42 and native.why_not == ""
    assert caplog.messages == ["dwconv: compiling the C++ of calls in the background: about half a minute, once"]
    assert caplog.records[0].levelno >= logging.WARNING  # seen without any configuration
    assert compiler.calls == 1 and load_compiled(may_compile=False) is not None


def test_a_caller_that_needs_it_blocks_on_the_thread(compiler: StubCompiler) -> None:
    compiler.waits_and_does(COPY)
    assert native.soon() is None
    given = []
    waiting = threading.Thread(target=lambda: given.append(native.native()))
    waiting.start()
    assert eventually(lambda: compiler.calls == 1) and not given
    compiler.go.touch()
    waiting.join()
    assert given == [native.module] and native.module is not None and compiler.calls == 1


def test_it_takes_the_cpu_that_others_leave(
    compiler: StubCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless somebody waits for it."""
    monkeypatch.setattr(attempt, "_NICENESS", 19)
    compiler.does(f'nice >> "{tmp_path}/nice"\nexit 1')
    assert native.soon() is None and native.is_expected()
    assert eventually(lambda: "failed" in native.why_not)
    assert not native.is_expected()
    for failed in tmp_path.rglob("*.failed"):
        failed.unlink()
    with pytest.raises(BuildError, match="failed"):
        load_compiled()
    here = os.nice(0)  # the tests may have another one than 0
    assert (tmp_path / "nice").read_text().split() == [str(min(here + 19, 19)), str(here)]


def test_what_is_in_the_cache_is_there_at_once(compiler: StubCompiler) -> None:
    load_compiled()
    assert native.soon() is not None and native.run() == 42 and native._background is None and compiler.calls == 1


def test_calls_do_not_block_while_another_thread_loads_it(compiler: StubCompiler) -> None:
    """As with ``native()`` in one thread and a call in another."""
    with native._lock:
        assert native.soon() is None and native.native(may_compile=False) is None
    assert compiler.calls == 0 and native._background is None
    assert native.native() is not None and compiler.calls == 1


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("echo 'x.cpp:1: error: no' >&2; exit 1", "stub-c++ failed: x.cpp:1: error: no"),
        ('echo junk > "$(while [ "$1" != -o ]; do shift; done; echo "$2")"', "invalid ELF header|file too short"),
    ],
)
def test_a_failure_is_noted_and_not_repeated(compiler: StubCompiler, does: str, told: str) -> None:
    compiler.does('while [ $# -gt 0 ] && [ "$1" != -o ]; do shift; done\n' + does)
    assert native.soon() is None
    with pytest.warns(DwconvWarning, match="calls go through Python"):
        assert native.native() is None  # waits
    assert any(each in native.why_not for each in told.split("|")), native.why_not
    assert native.soon() is None and compiler.calls == 1


def test_the_next_call_tells_of_a_failure(compiler: StubCompiler, logs: Path) -> None:
    """Once, though it was known before, and needs nothing compiled."""
    plant(logs / "log.jsonl", [workload_of()], baseline_us=1e6)
    compiler.waits_and_does("exit 1")
    x, w = torch.randn(2, 8, 9, 7).to(memory_format=torch.channels_last), torch.randn(8, 1, 3, 3)
    for _ in range(2):
        dwconv.conv2d(x, w, padding=1)
    compiler.go.touch()
    assert eventually(lambda: "failed" in native.why_not)
    with pytest.warns(DwconvWarning, match="failed: exit status 1; to leave it at that: DWCONV_NATIVE=0"):
        dwconv.conv2d(x, w, padding=1)
    dwconv.conv2d(x, w, padding=1)


def test_without_a_compiler_no_thread_is_started(compiler: StubCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "nowhere-c++")
    assert not native.is_expected()
    assert native.soon() is None and "there is no C++ compiler nowhere-c++" in native.why_not
    assert native._background is None


def test_without_a_thread_calls_go_through_python(compiler: StubCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert native.soon() is None and native.why_not == "no thread can compile it: can't start new thread"


def test_a_process_that_left_it_out_does_not_get_it_later(compiler: StubCompiler) -> None:
    compiler.waits_and_does(COPY)
    assert native.soon() is None and native._background is not None
    assert eventually(lambda: compiler.calls == 1)
    native.leave_out("a race is timed")
    compiler.go.touch()
    native._background.thread.join()
    assert native.module is None and native.why_not == "a race is timed"


def test_a_caller_is_warned_that_it_is_not_kept(compiler: StubCompiler, tmp_path: Path) -> None:
    """In the thread of a call, not in the one that compiles; once."""
    (tmp_path / "cache").write_text("in the way")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert native.soon() is None
        assert eventually(lambda: native.module is not None)
    with pytest.warns(DwconvWarning, match="compiled for this process alone.*DWCONV_CACHE"):
        assert native.soon() is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert native.soon() is not None and native.native() is not None


# -- the end of a process --------------------------------------------------------------------------------------------

# Each process is forked from one that has imported PyTorch, and has asked for nothing yet.
ENDS = """
import os, signal, sys, tempfile, time
from pathlib import Path
import torch.utils.cpp_extension
from dwconv import native
from dwconv.native import attempt

attempt._NICENESS = 0

def be_there_until(path):
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    while not path.exists():
        time.sleep(0.02)
    os._exit(0)

def run(how, folder):
    os.environ["DWCONV_CACHE"] = tempfile.tempdir = str(folder)
    assert native.soon() is None
    while not (folder / "child").exists():
        time.sleep(0.01)
    if how == "_exit":
        os._exit(0)
    if how == "SIGKILL, and a child lives on" and os.fork() == 0:
        be_there_until(folder / "end")
    if how.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, how.partition(",")[0]))
        time.sleep(60)
    if how == "after a child of it":
        if os.fork() == 0:
            assert native.soon() is None and native.native() is None and "forked" in native.why_not
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
        (folder / "go").touch()
        assert native.native() is not None and native.run() == 42

for how in sys.argv[2:]:
    folder = Path(sys.argv[1], how)
    folder.mkdir(parents=True)
    os.environ["DWCONV_TESTED"] = str(folder)
    child = os.fork()
    if child == 0:
        run(how, folder)
        sys.exit(0)
    print(how, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), sep=": ", flush=True)
"""
LIVES_ON = "SIGKILL, and a child lives on"
WAYS = {
    "sys.exit": 0, "_exit": 0, "SIGINT": -signal.SIGINT, "SIGTERM": -signal.SIGTERM, "SIGKILL": -signal.SIGKILL,
    "after a child of it": 0, LIVES_ON: -signal.SIGKILL,
}  # fmt: skip


GO_ON = ("sys.exit", "SIGINT")
"""Where Python ends the process."""


def test_the_compiler_ends_with_its_process(compiler: StubCompiler, tmp_path: Path) -> None:
    """However that ends; with the children that do the work, and with all files. That is no failure to remember. Where
    the process was not killed, another one begins anew, blocks no call, and keeps what it made."""
    compiler.does(
        'sleep 600 & echo $! > "$DWCONV_TESTED/new"; echo > "$TMPDIR/half"; '
        'test -e "$DWCONV_TESTED/child" && name=again || name=child; mv "$DWCONV_TESTED/new" "$DWCONV_TESTED/$name"; '
        'while [ ! -e "$DWCONV_TESTED/go" ]; do sleep 0.01; done; kill $!\n' + COPY
    )
    folder = tmp_path / "ways"
    try:
        done = forked.run([sys.executable, "-c", ENDS, str(folder), *WAYS], text=True, timeout=300)
        told = dict(line.split(": ") for line in done.stdout.splitlines())
        assert told == {way: str(status) for way, status in WAYS.items()}, done.stderr
        for way in GO_ON:
            assert eventually(lambda way=way: (folder / way / "again").exists()), way  # type: ignore[misc]
            (lock,) = (folder / way).rglob("*.background")
            assert not is_free(lock), "one compiles"
            again = {**os.environ, "DWCONV_CACHE": str(folder / way), "DWCONV_TESTED": str(tmp_path / "nobody")}
            command = [sys.executable, "-c", "from dwconv.native.background import go_on; go_on()"]
            assert forked.run(command, env=again, timeout=60).returncode == 0
            (folder / way / "go").touch()
            assert eventually(lambda way=way: list((folder / way).rglob("*.sealed"))), way  # type: ignore[misc]
            assert eventually(lambda lock=lock: is_free(lock)), way  # type: ignore[misc]
        for way in WAYS:
            assert (folder / way / "again").exists() == (way in GO_ON), way
            assert gone(int((folder / way / "child").read_text())), way
            assert eventually(lambda way=way: not list((folder / way).glob("dwconv-*"))), way  # type: ignore[misc]
            kept = {path.suffix for path in (folder / way).rglob("dwconv_native-*")}
            finished = {".sealed"} if way in (*GO_ON, "after a child of it") else set()
            assert kept == {".lock", ".background"} | finished, way
        assert compiler.calls == len(WAYS) + len(GO_ON)
        (lock,) = (folder / LIVES_ON).rglob("*.background")
        assert eventually(lambda: is_free(lock))  # though that child had it open
    finally:
        (folder / LIVES_ON / "end").touch()
        for process in psutil.process_iter(["environ"]):
            if str(tmp_path) in (process.info["environ"] or {}).get("DWCONV_TESTED", ""):
                process.kill()


@pytest.mark.parametrize(("executable", "frozen"), [("/opt/app/program", False), ("", False), (sys.executable, True)])
def test_a_program_with_python_inside_is_not_started_again(monkeypatch, executable, frozen) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(sys, "frozen", frozen, raising=False)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("it would run the program"))
    background.leave_to_another_process()


def is_free(lock: Path) -> bool:
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
