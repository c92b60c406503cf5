"""IsolatedProcess: a process that answers requests. Code that crashes or hangs in it, or takes all memory, costs one
request, never the caller."""

from __future__ import annotations

import contextlib
import math
import secrets
import signal
import socket
import time
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any

from dwconv import settings
from dwconv.errors import (
    RequestFailed,
    Shortage,
    WorkerCannotStart,
    WorkerDied,
    WorkerError,
    WorkerTimeout,
)
from dwconv.measure.processes.shortages import shortage_in, shortage_of
from dwconv.measure.processes.started_process import Running
from dwconv.measure.processes.worker import (
    MOST_EXTENSION,
    READY,
    Request,
    WorkerAnswer,
    first_line,
    receive,
    send,
)
from dwconv.system import interpreter, memory

Misfit = Callable[[Any, Any], str]
"""From a request and its answer to the reason why the answer does not fit; empty if it fits."""

MOST_PRINTED_BYTES = 64 << 20
"""A worker that prints more than this in one request is ended: the disk is not its own."""
MEMORY_SHARE = 0.75
"""The share of the available memory that a request may take, including everything that its process starts."""

_STARTS = 3  # attempts before a worker counts as unable to start
_LOOK_EVERY_S = 0.2


class IsolatedProcess:
    """Answers requests with the handler ``role`` (``module:name``), made from ``setup`` in a process of its own.

    It starts with the first request, or with ``start``, and again after it died. It has its own process group: ctrl-C
    does not reach it, and all processes that it started end with it. It ends when this object or this process does.
    ``starts`` counts its starts. ``misfit`` says what is wrong with an answer; ``memory_share`` is the share of the
    available memory that a request may take; ``vector_set`` bounds the vectors that PyTorch uses in it; ``gpu``
    is the number of the one that it has.
    """

    def __init__(
        self,
        role: str,
        setup: object,
        *,
        threads: int,
        vector_set: str | None = None,
        gpu: int = 0,
        misfit: Misfit = lambda request, answer: "",
        memory_share: float = MEMORY_SHARE,
    ) -> None:
        self._role = role
        self._setup = setup
        self._threads = threads
        self._vector_set = vector_set
        self._gpu = gpu
        self._misfit = misfit
        self._memory_share = memory_share
        self.starts = 0
        self._cpu_s: dict[int, float] = {}
        """By the number of the start, as far as it was looked at."""
        self._running: Running | None = None
        self._end: weakref.finalize[Any, IsolatedProcess] | None = None
        self._ready = False
        self._request: Request | None = None
        self._answer: Any = None
        self._error: WorkerError | None = None
        self._failed_starts = 0
        self._began_s = self._deadline_s = self._looked_s = 0.0
        self._most_bytes = math.inf
        self._little_memory = False

    @property
    def running(self) -> bool:
        """False before the first start, and from a death until the next request."""
        return self._running is not None

    @property
    def cpu_s(self) -> float:
        """What it has taken of a core so far, with all of its starts and children that have ended."""
        if self._running is not None:
            self._cpu_s[self.starts] = max(self._running.cpu_s, self._cpu_s.get(self.starts, 0.0))
        return sum(self._cpu_s.values())

    @property
    def settled(self) -> bool:
        """False while a request is being answered."""
        return self._request is None

    @property
    def connection(self) -> socket.socket:
        """Readable when the process has sent something, or died."""
        assert self._running is not None
        return self._running.connection

    def start(self) -> None:
        """Start it if it is not running, without waiting. If it cannot start, the next request says why."""
        with contextlib.suppress(WorkerCannotStart):
            if self._running is None:
                self._launch()

    def call(self, body: object, *, timeout_s: float) -> Any:
        """The answer to a request. Raises what ``collect`` raises."""
        self.submit(body, timeout_s=timeout_s)
        return self.collect()

    def submit(self, body: object, *, timeout_s: float) -> None:
        """Send a request, without waiting for the answer. ``timeout_s`` does not count the time in which the process
        waits for a core."""
        assert self.settled
        if self._ready and wait([self.connection], timeout=0):  # it died after its last answer, or sent more
            self.kill()
        self._request = Request(number=secrets.randbits(63) | 1, body=body, timeout_s=timeout_s)
        self._answer = self._error = None
        self._failed_starts = 0
        try:
            self._advance()
        except BaseException:  # ctrl-C: half a request may be on its way
            self.kill()
            raise

    def collect(self) -> Any:
        """Wait for the answer. Raises RequestFailed with the reason if the handler raised, WorkerTimeout if it took
        too long, WorkerDied if the process died or sent no answer; after these two the next request starts another
        process. Raises WorkerCannotStart if the process cannot start."""
        try:
            wait_for_any([self])
        except BaseException:  # ctrl-C: an answer may still be on its way
            self.kill()
            raise
        if self._error is not None:
            raise self._error
        return self._answer

    def kill(self) -> None:
        """End it with all its children. The next request starts another process."""
        if self._end is not None:
            self._end()
        self._forget()

    def leave(self) -> None:
        """In a forked child: the process is the parent's, and is not to end with this object."""
        if self._end is not None:
            self._end.detach()
        if self._running is not None:
            self._running.connection.close()
        self._forget()

    def _forget(self) -> None:
        self._running = self._end = self._request = None
        self._ready = False

    # -- a request on its way ------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Start the process; or, if it is ready, hand it the request."""
        try:
            if self._running is None:
                self._launch()
            elif self._ready:
                self._hand_over()
        except WorkerError as error:
            self._lose(error)

    def _launch(self) -> None:
        if why := interpreter.why_none():
            raise WorkerCannotStart(f"a worker cannot start: {why}")
        try:
            self._running = Running.start(self._role, threads=self._threads, vector_set=self._vector_set, gpu=self._gpu)
        except OSError as error:
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise WorkerCannotStart(f"a worker cannot start: {reason}", shortage=shortage_of(error)) from None
        self._end = weakref.finalize(self, self._running.end)
        self._ready = False
        self.starts += 1
        self._most_bytes = math.inf
        self._allow(settings.WORKER_START_TIMEOUT_S)
        with contextlib.suppress(OSError):  # if it is dead already, that is noticed soon
            send(self.connection, self._setup, deadline=self._deadline_s)

    def _hand_over(self) -> None:
        assert self._running is not None and self._request is not None
        self._running.scratch.forget_printed()
        self._allow(self._request.timeout_s)
        share_bytes = self._memory_share * memory.available_bytes()
        self._little_memory = share_bytes < memory.LITTLE_BYTES
        self._most_bytes = self._running.watch.resident_bytes + max(share_bytes, memory.LITTLE_BYTES)
        self._exchange(lambda connection: send(connection, self._request, deadline=self._deadline_s))

    def _allow(self, timeout_s: float) -> None:
        assert self._running is not None
        self._began_s = self._looked_s = time.monotonic()
        self._deadline_s = self._began_s + timeout_s
        self._running.watch.begin()

    def look(self, *, arrived: bool) -> None:
        """Read a message if one has ``arrived``, else check the limits; then move the request on."""
        try:
            if arrived:
                self._take(self._exchange(lambda connection: receive(connection, deadline=self._deadline_s)))
            elif self.patience_s == 0:
                self._looked_s = time.monotonic()
                self._keep_limits()
        except WorkerError as error:
            self._lose(error)

    @property
    def patience_s(self) -> float:
        """Time until ``look`` has something to do even if nothing arrives."""
        return max(0.0, min(self._looked_s + _LOOK_EVERY_S, self._deadline_s) - time.monotonic())

    def _take(self, message: Any) -> None:
        assert self._request is not None
        expected = self._request if self._ready else READY
        if not isinstance(message, WorkerAnswer) or message.number != expected.number:
            raise _nonsense("a message that answers nothing")
        if message.error:
            raise RequestFailed(message.error, shortage=Shortage(message.shortage) if message.shortage else None)
        if not self._ready:
            self._ready = True
            self._advance()
        elif misfit := self._misfit(self._request.body, message.body):
            raise _nonsense(misfit)
        else:
            self._answer, self._request = message.body, None

    def _keep_limits(self) -> None:
        assert self._running is not None
        self._running.watch.look()
        if self._running.watch.resident_bytes > self._most_bytes:
            shortage = Shortage.MEMORY if self._little_memory else None
            raise WorkerDied(f"it took more than {self._most_bytes / 2**30:.1f} GiB of memory", shortage=shortage)
        if self._running.scratch.printed_bytes > MOST_PRINTED_BYTES:
            raise WorkerDied(f"it printed more than {MOST_PRINTED_BYTES >> 20} MiB")
        now_s = time.monotonic()
        if now_s < self._deadline_s:
            return
        own_s = now_s - self._began_s - self._running.watch.waited_s
        latest_s = self._began_s + MOST_EXTENSION * self._timeout_s
        if own_s >= self._timeout_s or now_s >= latest_s:
            raise self._too_late(starved=own_s < self._timeout_s)
        self._deadline_s = min(now_s + self._timeout_s - own_s, latest_s)

    @property
    def _timeout_s(self) -> float:
        return self._request.timeout_s if self._ready and self._request else settings.WORKER_START_TIMEOUT_S

    # -- failures -----------------------------------------------------------------------------------------------

    def _lose(self, error: WorkerError) -> None:
        """End the request in ``error``. If the process died while starting, try again: it may have been chance."""
        request, starting = self._request, not self._ready
        if starting or not isinstance(error, RequestFailed):
            self.kill()  # its next message would not be an answer
        if starting and not isinstance(error, WorkerCannotStart):
            self._failed_starts += 1
            if type(error) is WorkerDied and self._failed_starts < _STARTS:
                self._request = request
                self._advance()
                return
            error = WorkerCannotStart(f"a worker cannot start: {error}", shortage=error.shortage)
        self._error, self._request = error, None

    def _exchange(self, exchange: Callable[[socket.socket], Any]) -> Any:
        """Send or receive. Raises WorkerDied if that fails."""
        try:
            return exchange(self.connection)
        except TimeoutError:
            raise self._too_late() from None
        except (EOFError, OSError):
            raise self._bury() from None
        except ValueError as error:
            raise _nonsense(str(error)) from None

    def _too_late(self, *, starved: bool = False) -> WorkerTimeout:
        return WorkerTimeout(f"no answer after {self._timeout_s:g} s", shortage=Shortage.CORES if starved else None)

    def _bury(self) -> WorkerDied:
        """Clean up after a dead process, and return what is known about its death."""
        assert self._running is not None and self._end is not None
        words = self._running.scratch.last_words()
        status = self._end()
        if status == -signal.SIGALRM:  # it noticed its time limit before we did
            return self._too_late()
        cause = f"killed by {signal.Signals(-status).name}" if status and status < 0 else f"exit status {status}"
        # We kill only processes that we have given up, so the system killed it, for lack of memory.
        shortage = Shortage.MEMORY if status == -signal.SIGKILL else shortage_in(words)
        return WorkerDied(f"{cause}: {words}" if words else cause, shortage=shortage)


def _nonsense(what: str) -> WorkerDied:
    return WorkerDied(f"its answer is invalid: {what}", is_nonsense=True)


def wait_for_any(processes: Sequence[IsolatedProcess]) -> list[IsolatedProcess]:
    """The processes whose requests have ended, as soon as there is one."""
    while not (settled := [process for process in processes if process.settled]):
        arrived = wait(
            [process.connection for process in processes], timeout=min(process.patience_s for process in processes)
        )
        for process in processes:
            process.look(arrived=process.connection in arrived)
    return settled
