"""What a forked child has of its parent: neither locks that are never released nor files that are not its own."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dwconv.system import forks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


def in_child(act: Callable[[], bool]) -> bool:
    """What a child says that is forked now; False if it hangs."""
    child = os.fork()
    if child == 0:
        said = False
        try:
            signal.alarm(600)
            said = act()
        finally:
            os._exit(0 if said else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@contextmanager
def another_thread(has: Any) -> Iterator[threading.Event]:
    """A thread that has a lock until the block ends, or until the event is set."""
    inside, go = threading.Event(), threading.Event()

    def hold() -> None:
        with has:
            inside.set()
            go.wait(600)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(600)
    yield go
    go.set()
    thread.join(600)


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock])
def test_a_lock_that_a_thread_of_the_parent_has_is_free_in_a_child(make: Callable[[], Any]) -> None:
    lock = forks.Lock(make)

    def is_free() -> bool:
        before = lock.abandoned and not lock.locked()
        with lock:
            return before and lock.locked()

    with another_thread(lock):
        assert in_child(is_free)
        assert lock.locked() and not lock.abandoned and not lock.acquire(timeout=0.01)
    assert lock.acquire(timeout=600) and in_child(lambda: not lock.abandoned)


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock])
def test_a_lock_of_the_thread_that_forks_stays_its_own(make: Callable[[], Any]) -> None:
    lock = forks.Lock(make)

    def leave() -> bool:
        had = lock.locked() and not lock.abandoned
        lock.release()
        return had and not lock.locked() and lock.acquire(blocking=False)

    with lock:
        assert in_child(leave)


def test_a_lock_is_one_for_all_threads() -> None:
    lock = forks.Lock(threading.RLock)
    with lock, lock, another_thread(threading.Lock()):
        taken = []
        thread = threading.Thread(target=lambda: taken.append(lock.acquire(timeout=0.01)))
        thread.start()
        thread.join(600)
        assert taken == [False] and lock.locked()
    assert not lock.locked()


@pytest.fixture
def held_up(monkeypatch: pytest.MonkeyPatch) -> forks.Lock:
    monkeypatch.setattr(forks, "_held_up_by", [])
    monkeypatch.setattr(forks, "MOST_WAIT_S", 600.0)
    return forks.Lock(threading.RLock, holds_up_forks=True)


def test_a_fork_blocks_while_a_lock_is_held(held_up: forks.Lock) -> None:
    half: list[str] = []
    with another_thread(held_up) as go:
        half.append("begun")
        ender = threading.Timer(0.2, lambda: (half.clear(), go.set()))
        ender.start()
        assert in_child(lambda: half == [] and not held_up.abandoned and held_up.acquire(blocking=False))
    with held_up:
        assert in_child(lambda: held_up.locked() and not held_up.abandoned)
        assert held_up.locked()
    assert not held_up.locked()


def test_a_fork_waits_no_longer_for_a_thread_that_has_hung(
    held_up: forks.Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "MOST_WAIT_S", 0.5)
    with another_thread(held_up):
        began = time.monotonic()
        assert in_child(lambda: held_up.abandoned and held_up.acquire(blocking=False))
        assert time.monotonic() - began >= 0.5
        monkeypatch.setattr(forks, "MOST_WAIT_S", 600.0)  # the next fork does not wait again
        assert in_child(lambda: held_up.abandoned and held_up.acquire(blocking=False))
    assert in_child(lambda: not held_up.abandoned)


def test_a_fork_waits_for_the_next_turn_of_a_lock_that_has_hung(
    held_up: forks.Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "MOST_WAIT_S", 0.0)
    with another_thread(held_up):
        assert in_child(lambda: held_up.abandoned)
    monkeypatch.setattr(forks, "MOST_WAIT_S", 600.0)
    with another_thread(held_up) as go:
        threading.Timer(0.2, go.set).start()
        assert in_child(lambda: not held_up.abandoned)


def test_a_descriptor_is_closed_once_and_in_a_child_at_once() -> None:
    read, write = map(forks.Descriptor, os.pipe())

    def is_closed() -> bool:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(write.number)
        others = list(map(os.dup, [0] * 20))  # one of them has its number
        write.close()
        return write.number in others and not write.is_open and bool(list(map(os.fstat, others)))

    assert in_child(is_closed) and write.is_open
    os.write(write.number, b"x")
    write.close()
    other = os.dup(0)
    assert other == write.number
    write.close()
    os.fstat(other)
    read.close()
    os.close(other)


def test_unused_locks_are_forgotten() -> None:
    remembered = [weakref.ref(forks.Lock()), weakref.ref(forks.Descriptor(-1))]
    gc.collect()
    assert [each() for each in remembered] == [None, None]


class Slow:
    inside, go = threading.Event(), threading.Event()

    @forks.cached_property
    def it(self) -> int:
        self.inside.set()
        self.go.wait(600)
        return 42


def test_what_a_thread_of_the_parent_computes_is_computed_in_a_child() -> None:
    slow, other = Slow(), Slow()
    thread = threading.Thread(target=lambda: slow.it)
    thread.start()
    assert Slow.inside.wait(600)

    def compute() -> bool:
        Slow.go = threading.Event()
        Slow.go.set()
        return slow.it == other.it == 42

    assert in_child(compute)
    Slow.go.set()
    thread.join(600)
    assert slow.it == 42
