"""IsolatedProcess: a process that answers requests. What crashes or hangs in it costs one request, never the caller."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from dwconv import settings
from dwconv.errors import DwconvError, RequestFailed, WorkerDied, WorkerTimeout
from dwconv.measure import channel
from dwconv.measure.worker import Failure, Request, kill_with_children

# The worker imports from where this process does: with -m it would take what lies in the current folder.
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from dwconv.measure.worker import main; main(int(sys.argv[2]), *sys.argv[3:])"
)


@dataclass(frozen=True, kw_only=True)
class _Running:
    """A process that was started, and this side of the socket to it."""

    process: subprocess.Popen[bytes]
    connection: socket.socket
    folder: str
    """For its temporary files and what it prints."""

    def end(self) -> int:
        """End it with everything it started; return its exit status."""
        self.connection.close()
        kill_with_children(self.process.pid)  # not reaped yet, so the number still is its own
        status = self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        return status

    def last_words(self) -> str:
        """The last line that it printed."""
        try:
            printed = (Path(self.folder) / "output").read_bytes()[-4096:]
        except OSError:
            return ""
        lines = [line.strip() for line in printed.decode(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "")[:200]


class IsolatedProcess:
    """Answers requests with the handler ``role`` (``module:name``), made from ``setup`` in a process of its own.

    It starts with the first request, or with ``start``, and again after it died. It has its own process group: ctrl-C
    does not reach it, and ending it ends what it started. It ends when this object or this process does.
    ``starts`` counts its starts.
    """

    def __init__(self, role: str, setup: object, *, threads: int) -> None:
        self._role = role
        self._setup = setup
        self._threads = threads
        self._running: _Running | None = None
        self._ready = False
        self._deadline = 0.0
        self._timeout_s = 0.0
        self.starts = 0
        self._end: weakref.finalize[Any, IsolatedProcess] | None = None

    @property
    def running(self) -> bool:
        """False before the start, and after a death until the next request."""
        return self._running is not None

    def start(self) -> None:
        """Start it, if it is not running, and do not wait for it."""
        if self._running is not None:
            return
        ours, theirs = socket.socketpair()
        folder = tempfile.mkdtemp(prefix="dwconv-worker-")
        path = [entry or str(Path.cwd()) for entry in sys.path]
        with theirs, (Path(folder) / "output").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, json.dumps(path), str(theirs.fileno()), self._role, folder],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**settings.worker_environment(threads=self._threads), "TMPDIR": folder},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._running = _Running(process=process, connection=ours, folder=folder)
        self._end = weakref.finalize(self, self._running.end)
        self._ready = False
        self.starts += 1
        with contextlib.suppress(OSError):  # if it is dead already, the first request says so
            channel.send(ours, self._setup, deadline=time.monotonic() + settings.WORKER_START_TIMEOUT_S)

    def call(self, body: object, *, timeout_s: float) -> Any:
        """The answer to a request. Raises what ``submit`` and ``collect`` raise."""
        self.submit(body, timeout_s=timeout_s)
        return self.collect()

    def submit(self, body: object, *, timeout_s: float) -> None:
        """Hand over a request, starting the process if need be. Raises WorkerDied if it cannot start."""
        used = self._ready and self.running
        request = Request(body=body, timeout_s=timeout_s)
        try:
            self._hand_over(request)
        except WorkerDied:
            if not used:
                raise
            self._hand_over(request)  # it died after its last answer: not through this request

    def _hand_over(self, request: Request) -> None:
        self.start()
        if not self._ready:
            self._wait_until_ready()
        self._allow(request.timeout_s)
        self._exchange(lambda connection: channel.send(connection, request, deadline=self._deadline))

    def _wait_until_ready(self) -> None:
        self._allow(settings.WORKER_START_TIMEOUT_S)
        try:
            self._receive()
        except (RequestFailed, WorkerDied) as error:
            self.kill()
            raise WorkerDied(f"a worker cannot start: {error}") from error
        self._ready = True

    def _allow(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s

    def collect(self) -> Any:
        """Wait for the answer. Raises RequestFailed with the reason if the handler raised, WorkerTimeout if it took
        too long, WorkerDied if the process died; after these two the next request starts another process."""
        return self._receive()

    def kill(self) -> None:
        """End it, with all its children. The next request starts another."""
        if self._end is not None:
            self._end()
        self._running = self._end = None

    @property
    def connection(self) -> socket.socket:
        """Readable when an answer has arrived, or the process has died."""
        assert self._running is not None
        return self._running.connection

    @property
    def seconds_left(self) -> float:
        """Until the request in hand is too late."""
        return max(0.0, self._deadline - time.monotonic())

    def _receive(self) -> Any:
        answer = self._exchange(lambda connection: channel.receive(connection, deadline=self._deadline))
        if isinstance(answer, Failure):
            raise RequestFailed(f"{answer.kind}: {answer.reason}")
        return answer.body

    def _exchange(self, exchange: Callable[[socket.socket], Any]) -> Any:
        """Send or receive; on any trouble end the process, for what it would say next answers nothing."""
        assert self._running is not None
        try:
            return exchange(self._running.connection)
        except TimeoutError as error:
            self.kill()
            raise WorkerTimeout(f"no answer after {self._timeout_s:g} s") from error
        except (EOFError, OSError) as error:
            raise self._bury() from error
        except ValueError as error:
            self.kill()
            raise WorkerDied(f"it answered nonsense: {error}") from error
        except BaseException:  # ctrl-C: an answer may still be on its way
            self.kill()
            raise

    def _bury(self) -> WorkerDied:
        """Clear away what is dead, and say what is known of its death."""
        assert self._running is not None and self._end is not None
        words = self._running.last_words()
        status = self._end()
        self._running = self._end = None
        if status == -signal.SIGALRM:  # it kept the time better than we did
            return WorkerTimeout(f"no answer after {self._timeout_s:g} s")
        cause = f"killed by {signal.Signals(-status).name}" if status and status < 0 else f"exit status {status}"
        return WorkerDied(f"{cause}: {words}" if words else cause)


class Pool:
    """Isolated processes of one role that share requests."""

    def __init__(self, role: str, setup: object, *, size: int, threads: int) -> None:
        self._processes = [IsolatedProcess(role, setup, threads=threads) for _ in range(size)]

    def start(self) -> None:
        """Start them all, and do not wait."""
        for process in self._processes:
            process.start()

    def map(self, bodies: Sequence[object], *, timeout_s: float) -> Iterator[tuple[int, Any | DwconvError]]:
        """Yield (position, answer) of every request as it is known; the answer of one that failed is its error.

        Raises WorkerDied if a process cannot start."""
        for process in self._processes[: len(bodies)]:
            process.start()
        idle, busy = list(self._processes), dict[IsolatedProcess, int]()
        waiting = deque(enumerate(bodies))
        try:
            while waiting or busy:
                while waiting and idle:
                    process = idle.pop(0)
                    position, body = waiting.popleft()
                    process.submit(body, timeout_s=timeout_s)
                    busy[process] = position
                patience_s = min(process.seconds_left for process in busy)
                ready = wait([process.connection for process in busy], timeout=patience_s)
                for process in [p for p in busy if p.connection in ready or p.seconds_left == 0]:
                    position = busy.pop(process)
                    answer = _outcome(process)
                    idle.append(process)
                    yield position, answer
        finally:
            for process in busy:  # the caller has lost interest
                process.kill()

    def kill(self) -> None:
        """End them all. The next request starts them again."""
        for process in self._processes:
            process.kill()


def _outcome(process: IsolatedProcess) -> Any | DwconvError:
    try:
        return process.collect()
    except (RequestFailed, WorkerDied) as error:
        return error
