"""Inside a worker process: read a request, do it, answer, until the parent is gone.

A handler does the work: a class that is made once from the setup message and then called with each request. An
exception becomes an answer; a crash of this process costs the parent one request. Both sides send whole messages
through a socket.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pkgutil
import resource
import select
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from dwconv import settings
from dwconv.kernels import entry
from dwconv.kernels.entry import message
from dwconv.measure.processes.shortages import shortage_of

_START = b"dwconv\x00\x01"  # anything else was not sent by ``send``
_LENGTH_BYTES = 8
_INSTANT_S = 1e-3
_LONGEST = 2**30  # a longer message comes from a worker gone wild


def send(connection: socket.socket, message: object, *, deadline: float | None = None) -> None:
    """Send a message. Raises TimeoutError after ``deadline`` (of time.monotonic), OSError if the other side is gone."""
    data = entry.encode(message)
    _end_at(connection, deadline)
    connection.sendall(_START + len(data).to_bytes(_LENGTH_BYTES, "big") + data)


def receive(connection: socket.socket, *, deadline: float | None = None) -> Any:
    """The next message. Raises TimeoutError after ``deadline``, EOFError or OSError if the other side is gone,
    ValueError if it is no message."""
    start = _receive_exactly(connection, len(_START), deadline)
    if start != _START:
        raise ValueError(f"{start!r} starts no message")
    length = int.from_bytes(_receive_exactly(connection, _LENGTH_BYTES, deadline), "big")
    if length > _LONGEST:
        raise ValueError(f"a message of {length} bytes")
    return entry.decode(_receive_exactly(connection, length, deadline))


def _receive_exactly(connection: socket.socket, count: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < count:
        _end_at(connection, deadline)
        part = connection.recv(min(count - len(data), 1 << 20))
        if not part:
            raise EOFError("the other side is gone")
        data += part
    return bytes(data)


def _end_at(connection: socket.socket, deadline: float | None) -> None:
    """Make the next call on ``connection`` end at the deadline. Data that has arrived by then can still be read."""
    connection.settimeout(None if deadline is None else max(deadline - time.monotonic(), _INSTANT_S))


Handler = Callable[[Any], Any]

MOST_EXTENSION = 5
"""A time limit does not count the time in which a worker waits for a core, up to this many times the limit."""

# A worker ends itself this long after that, if the parent has not done it.
_GRACE_S = 0.5


@message
@dataclass(frozen=True, kw_only=True)
class Request:
    """The work to do, and how long it may take. ``number`` is random, and different each time."""

    number: int
    body: Any
    timeout_s: float


@message
@dataclass(frozen=True, kw_only=True)
class WorkerAnswer:
    """The value that the handler returned, with the number of the request; or the name and the first line of the
    exception that it raised, and the value of a ``Shortage`` if that was the reason. Number 0 means: ready."""

    number: int
    body: Any = None
    error: str = ""
    shortage: str | None = None


READY = Request(number=0, body=None, timeout_s=settings.WORKER_START_TIMEOUT_S)
"""Stands for the first message: it is answered when the handler is made."""


def main(descriptor: int, role: str, folder: str) -> None:
    """Serve the parent at the other end of the socket ``descriptor`` with the handler ``role`` (``module:name``).
    ``folder`` is for this worker's temporary files, and is removed with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is the parent's business
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _be_first_to_go_when_memory_runs_out()
    connection = socket.socket(fileno=descriptor)
    threading.Thread(target=_end_with_parent, args=(descriptor, folder), daemon=True).start()
    try:
        _serve(connection, role)
        status = 1
    except (EOFError, OSError):  # the parent is gone, or has no more requests
        shutil.rmtree(folder, ignore_errors=True)
        status = 0
    except BaseException:  # noqa: BLE001  nothing is left to handle it; the parent reads it in the output
        traceback.print_exc()
        sys.stderr.flush()
        status = 1
    os._exit(status)  # no destructors: they could hang on memory that a bad kernel broke


locate = pkgutil.resolve_name
"""The object that ``module:name`` names; the name may have dots."""


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, or its name if it has none."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)[:300]


def _serve(connection: socket.socket, role: str) -> None:
    def make_handler(_: None) -> Handler:
        make = locate(role)  # before the setup is read: the import registers the handler's messages
        return make(receive(connection))

    gc.disable()  # what imports make stays: to look through it again and again takes half a second
    made = _answer(make_handler, READY)
    gc.freeze()
    gc.enable()
    if made.error:
        send(connection, made)
        return
    send(connection, WorkerAnswer(number=READY.number, body=None))
    while True:
        request = receive(connection)
        with _limit(request.timeout_s * MOST_EXTENSION + _GRACE_S):
            answer = _answer(made.body, request)
        try:
            send(connection, answer)
        except TypeError as error:  # the handler's answer is no message
            send(connection, _failed(request, error))


def _answer(handler: Handler, request: Request) -> WorkerAnswer:
    try:
        return WorkerAnswer(number=request.number, body=handler(request.body))
    except Exception as error:  # noqa: BLE001  the one place where everything is caught: a bad candidate costs itself
        return _failed(request, error)


def _failed(request: Request, error: Exception) -> WorkerAnswer:
    shortage = shortage_of(error)
    reason = f"{type(error).__name__}: {first_line(error)}"
    return WorkerAnswer(number=request.number, error=reason, shortage=shortage.value if shortage else None)


@contextlib.contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """After ``seconds`` the operating system ends this process, even if Python code can no longer run."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _end_with_parent(descriptor: int, folder: str) -> None:
    """Wait until the parent closes its end, or dies; then end this process and all that it started."""
    poller = select.poll()
    poller.register(descriptor, 0)  # a hang-up is always reported
    poller.poll()
    shutil.rmtree(folder, ignore_errors=True)
    kill_with_children(os.getpid())


def kill_with_children(worker: int) -> None:
    """Kill a worker process, its process group, and its children that left the group."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(worker).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker, signal.SIGKILL)


def _be_first_to_go_when_memory_runs_out() -> None:
    with contextlib.suppress(OSError):  # Linux only
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="utf-8")
