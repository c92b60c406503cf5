"""A build of half a minute is made by one process of this user at a time, and kept for the others.

    name.sealed       what was made
    name.lock         locked by the process that makes it; the system unlocks it when that process ends
    name.background   the same, for the process that makes it in the background
    name.failed       why the last attempt failed: no process tries again for ten minutes

A process that finds the lock taken waits for what the other makes. If the other fails, the same reason counts; if the
other dies, it takes its place while there is time. All of this is one attempt with one time limit. No result within the
limit is not noted as a failure: the machine was busy. On a file system without locks each process makes its own.

In the background it may take an hour on a busy machine. So the foreground does not wait for the background, only the
other way round.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dwconv.errors import BuildError, NotKept
from dwconv.native.attempt import Attempt, OutOfTime
from dwconv.system import forks, private_files

try:
    import fcntl
except ModuleNotFoundError:  # Windows, where nothing is made
    fcntl = None  # type: ignore[assignment]

FAILURE_COUNTS_S = 600.0
"""Long enough for all processes of one run; short enough once the cause is mended."""

_WORTH_S = 60.0  # with less time left than this, no process takes the place of one that died
_POLL_S = 0.1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Made:
    content: bytes
    not_kept: str = ""
    """Why the next process has to make it again; empty if it will find it."""


def made_once(
    path: Path, make: Callable[[float], bytes], *, what: str, attempt: Attempt, instead_of: bytes | None = None
) -> Made:
    """The result of ``make``, which gets the seconds that it may take; or what another process made meanwhile, unless
    it is ``instead_of``. ``what`` it is, for the progress line. Raises what ``make`` raises, OutOfTime when time is up,
    BuildError for a failure not long ago."""
    deadline = time.monotonic() + attempt.limit_s
    where = " in the background" if attempt.in_background else ""
    suffixes = (".background", ".lock") if attempt.in_background else (".lock",)
    try:
        locks = [forks.Descriptor(private_files.open_lock(path.with_suffix(suffix))) for suffix in suffixes]
    except NotKept as error:
        _log.warning("dwconv: compiling %s%s for this process alone: about half a minute", what, where)
        return Made(content=make(attempt.limit_s), not_kept=str(error))
    with _turn(*locks, what=what, attempt=attempt, deadline=deadline) as waited:
        found = private_files.read_sealed(path)
        if found is not None and found != instead_of:
            return Made(content=found)
        if failure := _failure(path):
            raise BuildError(failure)
        left_s = deadline - time.monotonic()
        if waited and left_s < _WORTH_S:
            raise OutOfTime(
                "the process that compiled it ended without a result; the next process to start tries again"
            )
        _log.warning("dwconv: compiling %s%s: about half a minute, once", what, where)
        try:
            made = make(left_s)
        except OutOfTime:
            raise
        except BuildError as error:
            note_failure(path, error)
            raise
        try:
            with attempt.uninterrupted():
                private_files.write_sealed(path, made, durable=True)
        except NotKept as error:
            return Made(content=made, not_kept=str(error))
        return Made(content=made)


@contextlib.contextmanager
def _turn(
    own: forks.Descriptor, *others: forks.Descriptor, what: str, attempt: Attempt, deadline: float
) -> Iterator[bool]:
    """Has the lock ``own`` when ``others`` have been free. Closes all. Whether any was another process's at first."""
    waiting = list(others)
    try:
        with _locked(own, what=what, attempt=attempt, deadline=deadline) as waited:
            while waiting:
                with _locked(waiting.pop(), what=what, attempt=attempt, deadline=deadline) as waited_more:
                    waited = waited or waited_more
            yield waited
    finally:
        for lock in waiting:
            lock.close()


@contextlib.contextmanager
def _locked(lock: forks.Descriptor, *, what: str, attempt: Attempt, deadline: float) -> Iterator[bool]:
    """Closes ``lock`` in the end. Whether another process had it at first. Raises OutOfTime."""
    waited = False
    then = "used here when it is ready" if attempt.in_background else "this process waits for it, about half a minute"
    try:
        while not try_lock(lock.number):
            if not waited:
                _log.warning("dwconv: another process compiles %s: %s", what, then)
            waited = attempt.waits = True
            if time.monotonic() > deadline:
                raise OutOfTime("another process has been compiling it for too long")
            attempt.pause(_POLL_S)
        attempt.waits = False
        yield waited
    finally:
        if lock.is_open:
            with contextlib.suppress(OSError):
                fcntl.flock(lock.number, fcntl.LOCK_UN)  # a child that was just being forked may hold the file open
            lock.close()


def try_lock(lock: int) -> bool:
    """False if another process has it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no locks here: each for himself
        return True
    return True


def _failure(path: Path) -> str:
    """Why it failed not long ago; empty if it did not."""
    note = private_files.read_sealed(path.with_suffix(".failed"))
    when, _, reason = (note or b"0 ").decode(errors="replace").partition(" ")
    ago_s = time.time() - float(when)
    return f"{reason} ({ago_s:.0f} s ago)" if 0 <= ago_s < FAILURE_COUNTS_S else ""


def note_failure(path: Path, error: Exception) -> None:
    """For the next ten minutes no process makes what belongs at ``path``."""
    with contextlib.suppress(NotKept):
        note = f"{int(time.time())} {error}".encode(errors="replace")
        private_files.write_sealed(path.with_suffix(".failed"), note, durable=False)
