"""Pool: isolated processes with one role, which share the requests.

Patience: how often to try again where the machine is short of something. That says nothing about the candidate that was
running.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dwconv import settings
from dwconv.errors import EnvironmentFailure, Shortage, WorkerCannotStart, WorkerError, say
from dwconv.measure.processes.process import MEMORY_SHARE, IsolatedProcess, Misfit, wait_for_any
from dwconv.system import memory


class Pool:
    """``size`` processes of one thread that answer requests with the handler ``role``, made from ``setup``. ``misfit``
    says what is wrong with an answer. Together they may take as much memory as one process alone."""

    def __init__(self, role: str, setup: object, *, size: int, misfit: Misfit = lambda request, answer: "") -> None:
        self._processes = [
            IsolatedProcess(role, setup, threads=1, misfit=misfit, memory_share=MEMORY_SHARE / size)
            for _ in range(size)
        ]

    def start(self) -> None:
        """Start all processes, without waiting."""
        for process in self._processes:
            process.start()

    def map(self, bodies: Sequence[object], *, timeout_s: float) -> Iterator[tuple[int, Any | WorkerError]]:
        """Yield (position, answer) of every request as soon as it is known; the answer of a failed request is its
        error. Requests that failed perhaps because of the machine are tried again at the end, one at a time.

        Raises WorkerCannotStart if no process can start, EnvironmentFailure if the machine stays short of something."""
        coming = iter(bodies)
        for process in self._processes[: len(bodies)]:
            process.start()
        for ended in self.stream(lambda: next(coming, None), timeout_s=timeout_s):
            assert ended is not None, "there is nothing beside"
            yield ended

    def stream(
        self, next_body: Callable[[], object | None], *, timeout_s: float, beside: IsolatedProcess | None = None
    ) -> Iterator[tuple[int, Any | WorkerError] | None]:
        """Answers to requests that are not known yet: ``next_body`` gives one whenever a process is idle, None if
        there is none now. Positions count them. While a request to ``beside`` is on its way, yield None as soon as
        that has ended. Ends when nothing is left."""
        idle, busy = deque(self._processes), dict[IsolatedProcess, tuple[int, object]]()
        again = deque[tuple[int, object]]()
        doubtful: list[tuple[int, object, WorkerError]] = []
        patience, taken = Patience(), 0
        try:
            while True:
                while idle:
                    if again:
                        request = again.popleft()
                    elif (body := next_body()) is not None:
                        request, taken = (taken, body), taken + 1
                    else:
                        break
                    process = idle.popleft()
                    busy[process] = request
                    process.submit(request[1], timeout_s=timeout_s)
                if not busy:
                    if not doubtful:
                        return
                    for position, body, error in doubtful:
                        yield position, self._alone(body, after=error, timeout_s=timeout_s)
                    doubtful.clear()
                    continue
                for process in wait_for_any([*busy, *([beside] if beside and not beside.settled else [])]):
                    if process is beside:
                        yield None
                        continue
                    request = busy.pop(process)
                    outcome = _outcome(process)
                    if isinstance(outcome, WorkerCannotStart):
                        again.append(request)
                        if not idle and not busy and patience.again(outcome):
                            idle.extend(self._processes)
                        continue
                    idle.append(process)
                    if isinstance(outcome, WorkerError) and outcome.may_be_the_machine:
                        doubtful.append((*request, outcome))
                    else:
                        yield request[0], outcome
        finally:
            for process in busy:  # the caller stopped listening
                process.kill()

    def kill(self) -> None:
        """End all processes. The next request starts them again."""
        for process in self._processes:
            process.kill()

    def _alone(self, body: object, *, after: WorkerError, timeout_s: float) -> Any | WorkerError:
        """The outcome of a request that is run alone, ``after`` it ended in that error beside others."""
        patience, outcome = Patience(), after
        while isinstance(outcome, WorkerError) and patience.again(outcome):
            process = self._processes[0]
            process.submit(body, timeout_s=timeout_s)
            outcome = _outcome(process)
        return outcome


def _outcome(process: IsolatedProcess) -> Any | WorkerError:
    try:
        return process.collect()
    except WorkerError as error:
        return error


class Patience:
    """Decides whether an error of one request is the request's own fault, the machine's, or not clear yet.

    ``needs_bytes``: the memory that the request is known to need."""

    def __init__(self, *, needs_bytes: int = 0) -> None:
        self._needs_bytes = needs_bytes
        self._failures = 0

    def again(self, error: WorkerError) -> bool:
        """True, after a pause, if the request should be tried again, this time alone; False if it is to blame.

        Raises EnvironmentFailure if the machine is to blame and does not recover. Raises ``error`` itself if no worker
        can start: no request is to blame for that."""
        if not self._worth_another_try(error):
            if isinstance(error, WorkerCannotStart):
                raise error
            return False
        if error.is_nonsense:
            return True
        if self._failures > len(settings.RETRY_PAUSES_S):
            raise EnvironmentFailure(f"the machine is short of {_name(error)}: {error}; {_way_out(error)}") from None
        pause_s = settings.RETRY_PAUSES_S[self._failures - 1]
        say(f"note: short of {_name(error)}: {error}; trying again in {pause_s:g} s")
        time.sleep(pause_s)
        return True

    def _worth_another_try(self, error: WorkerError) -> bool:
        self._failures += 1
        of_gpu = error.shortage is Shortage.GPU_MEMORY
        kind = "cuda" if of_gpu else "cpu"
        if not error.may_be_the_machine or 2 * self._needs_bytes > memory.whole_bytes(kind):
            return False
        if self._failures == 1:
            return True
        # It has run alone. If memory was short then and is not now, its own demand was the reason.
        enough = memory.free_bytes(kind) >= max(memory.LITTLE_BYTES, 2 * self._needs_bytes)
        return error.shortage is not None and not ((of_gpu or error.shortage is Shortage.MEMORY) and enough)


def _name(error: WorkerError) -> str:
    assert error.shortage is not None
    return error.shortage.value


def _way_out(error: WorkerError) -> str:
    match error.shortage:
        case Shortage.DISK:
            way = f"make room in {tempfile.gettempdir()} or set TMPDIR to another folder"
        case Shortage.MEMORY:
            way = "close other programs or use fewer --jobs"
        case Shortage.GPU_MEMORY:
            way = "end other programs on the GPU (nvidia-smi lists them) or tune a smaller batch"
        case Shortage.FILES:
            way = "raise the limit (ulimit -n)"
        case Shortage.PROCESSES:
            way = "raise the limit (ulimit -u) or use fewer --jobs"
        case _:
            way = "close other programs"
    return f"{way}, then run the same command again"
