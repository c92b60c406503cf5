"""Pool: isolated processes with one role, which share the requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dwconv.errors import WorkerCannotStart, WorkerError
from dwconv.measure.processes.process import MEMORY_SHARE, IsolatedProcess, Misfit, wait_for_any
from dwconv.measure.processes.shortages import Patience


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
