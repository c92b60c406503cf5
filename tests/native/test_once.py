"""Several processes want the same: one makes it, whatever becomes of that one."""

from __future__ import annotations

import errno
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from dwconv import settings
from dwconv.errors import BuildError, NotKept
from dwconv.native import once
from dwconv.native.attempt import Attempt, OutOfTime
from dwconv.native.once import Made, made_once
from dwconv.system import private_files
from tests.waiting import eventually

LONG_S = 600.0


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it is kept, in a cache that starts empty."""
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return settings.cache_folder() / "native" / "it.sealed"


class Maker:
    """Makes it when ``go`` is set; counts how often."""

    def __init__(self, outcome: bytes | BaseException = b"made", *, at_once: bool = True) -> None:
        self.outcome, self.times = outcome, 0
        self.begun, self.go = threading.Event(), threading.Event()
        if at_once:
            self.go.set()

    def __call__(self, seconds: float) -> bytes:
        self.times += 1
        self.begun.set()
        assert 0 < seconds <= LONG_S and self.go.wait(LONG_S)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


def ask(
    path: Path, maker: Maker, *, limit_s: float = LONG_S, instead_of: bytes | None = None, in_background: bool = False
) -> Made:
    with Attempt(limit_s=limit_s, in_background=in_background) as attempt:
        return made_once(path, maker, what="the thing", attempt=attempt, instead_of=instead_of)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """To hold a lock in: one file opened twice is locked like a file of two processes."""
    with ThreadPoolExecutor() as executor:
        yield executor


def is_said(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    return eventually(lambda: any(words in line for line in caplog.messages))


def second_waits(
    path: Path, maker: Maker, threads: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> Future[Made]:
    """Asks while another is making it; returns when it says that it waits."""
    second = threads.submit(ask, path, maker)
    assert is_said(caplog, "another process compiles the thing: this process waits for it")
    return second


def test_it_is_made_once_and_says_so(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    maker = Maker()
    assert ask(path, maker) == ask(path, maker) == Made(content=b"made")
    assert maker.times == 1
    assert caplog.messages == ["dwconv: compiling the thing: about half a minute, once"]
    assert caplog.records[0].levelno >= logging.WARNING  # seen without any configuration


def test_the_second_process_blocks_until_the_first_has_made_it(path, threads, caplog):
    slow, second_maker = Maker(at_once=False), Maker(b"not this")
    first = threads.submit(ask, path, slow)
    assert slow.begun.wait(60)
    second = second_waits(path, second_maker, threads, caplog)
    slow.go.set()
    assert first.result() == second.result() == Made(content=b"made") and second_maker.times == 0


def test_a_process_takes_the_failure_of_the_other(path, threads, caplog, monkeypatch):
    slow, second_maker = Maker(BuildError("it does not compile"), at_once=False), Maker()
    first = threads.submit(ask, path, slow)
    assert slow.begun.wait(60)
    second = second_waits(path, second_maker, threads, caplog)
    slow.go.set()
    for asked in (first, second):
        with pytest.raises(BuildError, match="it does not compile"):
            asked.result()
    with pytest.raises(BuildError, match=r"it does not compile \(\d+ s ago\)"):
        ask(path, second_maker)
    assert second_maker.times == 0
    monkeypatch.setattr(once, "FAILURE_COUNTS_S", 0.0)
    assert ask(path, second_maker).content == b"made"


def test_being_slow_or_interrupted_is_no_failure_to_remember(path):
    for error in (OutOfTime("too slow"), KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")):
        with pytest.raises(type(error)):
            ask(path, Maker(error))
    assert ask(path, Maker()).content == b"made"


def test_background_work_blocks_on_others_but_no_call_blocks_on_it(path, threads, caplog):
    """On a busy machine it takes too long."""
    slow, second, third = Maker(at_once=False), Maker(at_once=False), Maker()
    first = threads.submit(ask, path, slow, in_background=True)
    assert slow.begun.wait(60)
    foreground = threads.submit(ask, path, second)
    assert second.begun.wait(60)
    slow.go.set()
    assert first.result() == Made(content=b"made")
    later = threads.submit(ask, path, third, in_background=True, instead_of=b"made")
    assert is_said(caplog, "another process compiles the thing: used here when")
    assert third.times == 0
    second.go.set()
    assert foreground.result() == later.result() == Made(content=b"made") and third.times == 1
    assert not any("waits for it" in line for line in caplog.messages)


def test_waiting_has_an_end(path, threads):
    slow = Maker(at_once=False)
    first = threads.submit(ask, path, slow)
    assert slow.begun.wait(60)
    try:
        with pytest.raises(OutOfTime, match="another process has been compiling it for too long"):
            ask(path, Maker(), limit_s=0.3)
    finally:
        slow.go.set()
    assert first.result().content == b"made"


def test_nothing_begins_that_can_no_longer_be_finished(path, threads, caplog):
    """The other ended without a result, and the time that is left is too short to make it."""
    slow, late = Maker(KeyboardInterrupt(), at_once=False), Maker()
    first = threads.submit(ask, path, slow)
    assert slow.begun.wait(60)
    second = threads.submit(ask, path, late, limit_s=once._WORTH_S)
    assert is_said(caplog, "waits for it")
    slow.go.set()
    with pytest.raises(OutOfTime, match="ended without a result"):
        second.result()
    with pytest.raises(KeyboardInterrupt):
        first.result()
    assert late.times == 0


ONE_OF_SEVERAL = """
import os, sys, time
from pathlib import Path
from dwconv import settings
from dwconv.native.attempt import Attempt
from dwconv.native.once import made_once

def make(seconds):
    with open(sys.argv[1], "a") as count:
        count.write(f"{os.getpid()}\\n")
    time.sleep(float(sys.argv[2]))
    return str(os.getpid()).encode()

path = settings.cache_folder() / "native" / "it.sealed"
print(made_once(path, make, what="the thing", attempt=Attempt(limit_s=600.0)).content.decode())
"""


def start(count: Path, *, taking_s: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", ONE_OF_SEVERAL, str(count), str(taking_s)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def test_of_several_processes_one_makes_it(path, tmp_path):
    count = tmp_path / "count"
    processes = [start(count, taking_s=0.5) for _ in range(3)]
    told = [process.communicate(timeout=300)[0].strip() for process in processes]
    assert len(count.read_text().split()) == 1
    assert set(told) == set(count.read_text().split())


def test_the_next_process_takes_the_place_of_a_killed_one(path, tmp_path, threads, caplog):
    count, maker = tmp_path / "count", Maker()
    holder = start(count, taking_s=LONG_S)
    try:
        assert eventually(lambda: count.exists() and count.read_text())
        second = second_waits(path, maker, threads, caplog)
    finally:
        holder.kill()
        holder.communicate()
    assert second.result().content == b"made" and maker.times == 1


def test_without_locks_each_makes_its_own(path, monkeypatch):
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(once.fcntl, "flock", flock)
    assert ask(path, Maker()) == Made(content=b"made")
    assert private_files.read_sealed(path) == b"made"


def test_what_turned_out_useless_is_made_again(path):
    ask(path, Maker(b"useless"))
    assert ask(path, Maker(), instead_of=b"useless").content == b"made"
    assert private_files.read_sealed(path) == b"made"
    assert ask(path, Maker(b"late"), instead_of=b"useless").content == b"made"


@pytest.mark.parametrize("cache", ["a file", "of another user"])
def test_where_it_cannot_be_kept_that_is_known_before(tmp_path, monkeypatch, path, caplog, cache):
    if cache == "a file":
        (tmp_path / "cache").write_text("in the way")
        told = r"cache=.*native cannot be used: Not a directory; name a folder of your own in DWCONV_CACHE"
    else:
        private_files.write_sealed(path, b"another's", durable=False)
        monkeypatch.setattr(private_files.os, "geteuid", lambda: path.stat().st_uid + 1)
        private_files._key_at.cache_clear()
        told = "cannot be used: it belongs to another user"
    maker = Maker()
    for times in (1, 2):
        made = ask(path, maker)
        assert made.content == b"made" and maker.times == times
    assert re.search(told, made.not_kept)
    assert caplog.messages[0] == "dwconv: compiling the thing for this process alone: about half a minute"


def test_a_disk_that_fills_up_meanwhile_costs_the_others_their_share(path, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise NotKept("cache=there cannot be used: No space left on device")

    monkeypatch.setattr(private_files, "write_sealed", full)
    made = ask(path, Maker())
    assert made == Made(content=b"made", not_kept="cache=there cannot be used: No space left on device")
    assert [found.name for found in path.parent.iterdir()] == ["it.lock"]


def test_a_relative_cache_is_one_of_the_working_folder(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DWCONV_CACHE", "near")
    own = settings.cache_folder() / "native" / "it.sealed"
    assert ask(own, Maker()).not_kept == ""
    assert (tmp_path / own).exists()
