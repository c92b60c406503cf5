"""Kernels that many layers share: built on all cores and checked as they come, before anything is timed.

    build workers       build A, B │ build C, D │ build E │
    measuring worker    start      │ check A, B │ check C, D, E │

The check is that of a first use in training, at many sizes. Its result is kept with the kernel, so that neither a later
race nor a training run repeats it, and no process has to start for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from dwconv import settings
from dwconv.errors import RequestFailed, WorkerCannotStart, WorkerError
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.cache import checked, remember_checked
from dwconv.measure.requests import CheckAtAllSizesRequest
from dwconv.measure.runner import WorkerProcesses
from dwconv.problems.target import CpuTarget
from dwconv.schedules.template import Candidate


def built_and_checked(candidates: Iterator[Candidate], workers: WorkerProcesses) -> list[Artifact]:
    """The kernels of any size that could be built, for a CPU. The measuring worker checks those that were not checked
    here before.

    Raises WorkerCannotStart if no worker can start, EnvironmentFailure if the machine stays short of something."""
    made, checks = [], _Checks(workers)
    workers.measurer.start()  # takes as long as the first builds
    try:
        for ended in workers.builders.stream(
            lambda: next(candidates, None), timeout_s=settings.BUILD_TIMEOUT_S, beside=workers.measurer
        ):
            if ended is not None and isinstance(ended[1], Artifact):
                made.append(ended[1])
                checks.add(ended[1])
            checks.go_on()
        checks.finish()
    except BaseException:  # ctrl-C, or no worker can start: the answer is not needed
        workers.measurer.kill()
        raise
    return made


class _Checks:
    """Checks by the measuring worker, one after the other."""

    def __init__(self, workers: WorkerProcesses) -> None:
        self._measurer, self._target = workers.measurer, workers.target
        self._threads = {self._target.threads, 1} if isinstance(self._target, CpuTarget) else {1}
        self._waiting = deque[Artifact]()
        self._running: Artifact | None = None

    def add(self, artifact: Artifact) -> None:
        known = checked(artifact, self._target)
        if known is None or not known.tells(self._threads):
            self._waiting.append(artifact)

    def go_on(self) -> None:
        """Keep what has ended, and begin the next one."""
        if self._running is not None and self._measurer.settled:
            self._keep(self._running)
        if self._running is None and self._waiting:
            self._running = self._waiting.popleft()
            self._measurer.submit(CheckAtAllSizesRequest(artifact=self._running), timeout_s=settings.RUN_TIMEOUT_S)

    def finish(self) -> None:
        """Wait for all of them."""
        while self._running is not None or self._waiting:
            if self._running is not None:
                self._keep(self._running)
            self.go_on()

    def _keep(self, artifact: Artifact) -> None:
        self._running = None
        try:
            verdict = self._measurer.collect().verdict
        except WorkerCannotStart:
            raise
        except WorkerError as error:
            if error.may_be_the_machine or isinstance(error, RequestFailed):  # its first use checks it
                return
            fault = f"the check failed: {error}"
        else:
            fault = "" if verdict.right else verdict.reason
        remember_checked(artifact, self._target, threads=self._threads, fault=fault)
        if fault:
            self._measurer.kill()  # it may have written anywhere
