"""Pool: isolated processes with one role, which share the requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from dwconv.errors import WorkerCannotStart, WorkerError
from dwconv.measure.processes.environment import Patience
from dwconv.measure.processes.process import MEMORY_SHARE, IsolatedProcess, Misfit, wait_for_any


class Pool:
    """``size`` processes that answer requests with the handler ``role``, made from ``setup``. ``misfit`` says what is
    wrong with an answer. Together they may take as much memory as one process alone."""

    def __init__(
        self, role: str, setup: object, *, size: int, threads: int, misfit: Misfit = lambda request, answer: ""
    ) -> None:
        self._processes = [
            IsolatedProcess(role, setup, threads=threads, misfit=misfit, memory_share=MEMORY_SHARE / size)
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
        doubtful: list[tuple[int, WorkerError]] = []
        for position, outcome in self._side_by_side(bodies, timeout_s=timeout_s):
            if isinstance(outcome, WorkerError) and outcome.may_be_the_machine:
                doubtful.append((position, outcome))
            else:
                yield position, outcome
        for position, error in doubtful:
            yield position, self._alone(bodies[position], after=error, timeout_s=timeout_s)

    def kill(self) -> None:
        """End all processes. The next request starts them again."""
        for process in self._processes:
            process.kill()

    def _side_by_side(self, bodies: Sequence[object], *, timeout_s: float) -> Iterator[tuple[int, Any | WorkerError]]:
        """Try each request once. A process that cannot start is left out as long as there are others."""
        idle, busy = deque(self._processes), dict[IsolatedProcess, int]()
        waiting = deque(range(len(bodies)))
        patience = Patience()
        for process in self._processes[: len(bodies)]:
            process.start()
        try:
            while waiting or busy:
                while waiting and idle:
                    process = idle.popleft()
                    busy[process] = waiting.popleft()
                    process.submit(bodies[busy[process]], timeout_s=timeout_s)
                for process in wait_for_any(list(busy)):
                    position = busy.pop(process)
                    outcome = _outcome(process)
                    if not isinstance(outcome, WorkerCannotStart):
                        idle.append(process)
                        yield position, outcome
                        continue
                    waiting.appendleft(position)
                    if not idle and not busy and patience.again(outcome):
                        idle.extend(self._processes)
        finally:
            for process in busy:  # the caller stopped listening
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
