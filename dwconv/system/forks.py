"""What a forked process must not inherit from its parent. Data loaders fork, at any moment.

A forked child has its parent's memory, and of its threads only the one that forked. The unfinished work of other
threads stays unfinished: a lock is never released, a module stays half imported, a library of C++ half changed.
Descriptors are the parent's files, with the parent's locks on them.

    Lock         free in the child, whichever thread held it; with ``holds_up_forks`` a fork waits for its release
    Descriptor   closed in the child, and never twice
    in_child     what else is reset in a child
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

Value = TypeVar("Value")
MOST_WAIT_S = 10.0
"""A thread that holds it for longer has hung, or the machine is very busy."""

_locks: weakref.WeakSet[Lock] = weakref.WeakSet()
_held_up_by: list[Lock] = []
_descriptors: weakref.WeakSet[Descriptor] = weakref.WeakSet()


class Lock:
    """``threading.Lock()``, or another lock that ``make`` makes. In a forked child it is free.

    ``holds_up_forks``: what it guards cannot be begun anew by a child, as the import of a library cannot. A fork then
    waits for it, ``MOST_WAIT_S`` at most, and only once for a thread that has hung. It takes an RLock."""

    def __init__(self, make: Callable[[], Any] = threading.Lock, *, holds_up_forks: bool = False) -> None:
        self._make = make
        self._lock = make()
        self._holder: int | None = None
        self._depth = self._turns = 0
        self._hung: int | None = None
        """The turn that a fork has waited for in vain."""
        self._for_fork: set[int] = set()
        """Threads that are about to fork, and have it for that."""
        self.abandoned = False
        """True in a child that was forked while another thread held it."""
        _locks.add(self)
        if holds_up_forks:
            _held_up_by.append(self)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # as threading's
        if not self._lock.acquire(blocking, timeout):
            return False
        if self._depth == 0:
            self._holder = threading.get_ident()
            self._turns += 1
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._holder = None
        self._lock.release()

    def locked(self) -> bool:
        return self._depth > 0

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    def _before_fork(self) -> None:
        has_hung = self._depth > 0 and self._hung == self._turns
        if self.acquire(timeout=0 if has_hung else MOST_WAIT_S):
            self._for_fork.add(threading.get_ident())
        else:
            self._hung = self._turns

    def _after_fork(self) -> None:
        if (thread := threading.get_ident()) in self._for_fork:
            self._for_fork.discard(thread)
            self.release()

    def _in_child(self) -> None:
        self._after_fork()
        if self._holder != threading.get_ident():
            self.abandoned = self.abandoned or self._depth > 0
            self._lock, self._holder, self._depth = self._make(), None, 0


class Descriptor:
    """An open file of this process. It is closed once: its number may soon be another file's. A forked child closes its
    own copy at once, and with that gives up no lock of its parent's; while it had one, no other could lock the
    file."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._open = [number]
        _descriptors.add(self)

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def close(self) -> None:
        """From any thread, as often as it likes."""
        try:
            number = self._open.pop()
        except IndexError:
            return
        os.close(number)


class cached_property(functools.cached_property[Value]):  # as functools has it
    """Without a lock: before Python 3.12 that of functools holds one for all instances."""

    def __init__(self, make: Callable[[Any], Value]) -> None:
        super().__init__(make)
        if hasattr(self, "lock"):
            self.lock = Lock(threading.RLock)


def in_child(forget: Callable[[], None]) -> None:
    """Call ``forget`` in every child that is forked from now on, when its locks are free and its descriptors closed."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)


def _before() -> None:
    for lock in _held_up_by:
        lock._before_fork()


def _in_parent() -> None:
    for lock in _held_up_by:
        lock._after_fork()


def _in_child() -> None:
    for lock in tuple(_locks):
        lock._in_child()
    for descriptor in tuple(_descriptors):
        descriptor.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
