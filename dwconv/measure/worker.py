"""Inside a worker process: read a request, do it, answer; until the parent is gone.

The work is done by a handler: a class made once from the setup message and then called with each request. Whatever it
raises becomes an answer; whatever kills this process costs the parent one request.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import select
import shutil
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from dwconv import settings
from dwconv.build.wire import message
from dwconv.measure import channel
from dwconv.measure.environment import shortage_of

Handler = Callable[[Any], Any]

MOST_EXTENSION = 5
"""A time limit does not count the time in which a worker waits for a core. It ends after this many times as long."""

# How long after that a worker ends itself, should the parent not have done it.
_GRACE_S = 2.0


@message
@dataclass(frozen=True, kw_only=True)
class Request:
    """What to do, and how long it may take. ``number`` is any, and another each time."""

    number: int
    body: Any
    timeout_s: float


@message
@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the handler returned, with the number of the request; 0 with None: it is ready for the first."""

    number: int
    body: Any


@message
@dataclass(frozen=True, kw_only=True)
class Failure:
    """What the handler raised: the exception's name and its first line, and what the machine was short of (a
    ``Shortage``'s value), if that is why."""

    number: int
    kind: str
    reason: str
    shortage: str | None


READY = Request(number=0, body=None, timeout_s=settings.WORKER_START_TIMEOUT_S)
"""The answer to it is that the handler is made."""


def main(descriptor: int, role: str, folder: str) -> None:
    """Serve the parent at the other end of the socket ``descriptor`` with the handler ``role`` (``module:name``).
    ``folder`` is for this worker's temporary files, and goes with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is the parent's business
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _be_first_to_go_when_memory_runs_out()
    connection = socket.socket(fileno=descriptor)
    threading.Thread(target=_end_with_parent, args=(descriptor, folder), daemon=True).start()
    try:
        _serve(connection, role)
        status = 1
    except (EOFError, OSError):  # the parent is gone, or has no more to ask
        shutil.rmtree(folder, ignore_errors=True)
        status = 0
    except BaseException:  # noqa: BLE001  nobody is left to handle it: the parent finds it among the last words
        traceback.print_exc()
        sys.stderr.flush()
        status = 1
    os._exit(status)  # no destructors: what a bad kernel has broken must not hang here


def locate(dotted: str) -> Any:
    """The object that ``module:name`` names; the name may have dots."""
    module, _, names = dotted.partition(":")
    found: Any = importlib.import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    return found


def one_line(error: BaseException) -> str:
    """The first line of an exception's message, or its name if it has none."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)[:300]


def _serve(connection: socket.socket, role: str) -> None:
    def make_handler(_: None) -> Handler:
        make = locate(role)  # before the setup is read: the import makes the handler's messages known
        handler: Handler = make(channel.receive(connection))
        return handler

    made = _answer(make_handler, READY)
    if isinstance(made, Failure):
        channel.send(connection, made)
        return
    channel.send(connection, Answer(number=READY.number, body=None))
    while True:
        request = channel.receive(connection)
        with _limit(request.timeout_s * MOST_EXTENSION + _GRACE_S):
            answer = _answer(made.body, request)
        try:
            channel.send(connection, answer)
        except TypeError as error:  # the handler answered with what is no message
            channel.send(connection, _failure(request, error))


def _answer(handler: Handler, request: Request) -> Answer | Failure:
    try:
        return Answer(number=request.number, body=handler(request.body))
    except Exception as error:  # noqa: BLE001  the one place where everything is caught: a bad candidate costs itself
        return _failure(request, error)


def _failure(request: Request, error: Exception) -> Failure:
    shortage = shortage_of(error)
    return Failure(
        number=request.number,
        kind=type(error).__name__,
        reason=one_line(error),
        shortage=None if shortage is None else shortage.value,
    )


@contextlib.contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """After ``seconds`` the kernel ends this process, even if no Python can run any more."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _end_with_parent(descriptor: int, folder: str) -> None:
    """Wait for the parent to close its end, by intention or by dying; then end this process and all it started."""
    poller = select.poll()
    poller.register(descriptor, 0)  # hang-up is reported unasked
    poller.poll()
    shutil.rmtree(folder, ignore_errors=True)
    kill_with_children(os.getpid())


def kill_with_children(worker: int) -> None:
    """Kill a worker process, its process group, and those of its children that left the group."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(worker).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker, signal.SIGKILL)


def _be_first_to_go_when_memory_runs_out() -> None:
    with contextlib.suppress(OSError):  # Linux only
        Path("/proc/self/oom_score_adj").write_text("1000")
