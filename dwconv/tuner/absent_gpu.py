"""What runners for a GPU that is not in this machine have in common: workers in parallel, one answer a candidate.

Their records are marked as predicted: they rank candidates, and never count as measured.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Protocol

from dwconv.errors import DwconvError, WorkerDied, WorkerTimeout
from dwconv.measure.process import Pool
from dwconv.measure.runner import versions_for
from dwconv.records.record import Measurement, Status, TuningRecord
from dwconv.schedules.template import Candidate
from dwconv.target import CudaTarget
from dwconv.workload import Workload


class Answer(Protocol):
    """What a worker finds out about a candidate."""

    def fill(self, known: TuningRecord) -> TuningRecord:
        """``known``, whose candidate was built, with what was found out."""
        ...


class AbsentGpuRunner:
    """A Runner. A context manager; ``close`` ends its worker processes.

    ``handler`` (``module:name``) is made in each worker from ``setup``, and answers a Candidate with an Answer. Raises
    WorkerDied if no worker can start: then no candidate could ever be built."""

    def __init__(
        self, workload: Workload, target: CudaTarget, *, handler: str, setup: Any, jobs: int, timeout_s: float
    ) -> None:
        self._workload = workload
        self._target = target
        self._timeout_s = timeout_s
        self._workers = Pool(handler, setup, size=jobs, threads=1)

    def measure(self, candidates: Sequence[Candidate]) -> Iterator[TuningRecord]:
        """One record a candidate, as soon as it is known, its time computed."""
        for position, outcome in self._workers.map(candidates, timeout_s=self._timeout_s):
            yield self._record(candidates[position], outcome)

    def confirm(self, candidates: Sequence[Candidate]) -> Iterator[TuningRecord]:
        """Nothing: the same once more would tell nothing new."""
        return iter(())

    def close(self) -> None:
        """End the worker processes."""
        self._workers.kill()

    def __enter__(self) -> AbsentGpuRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _record(self, candidate: Candidate, outcome: Answer | DwconvError) -> TuningRecord:
        known = TuningRecord(
            workload=self._workload,
            config=candidate.config,
            device=self._target.device,
            status=Status.OK,
            versions=versions_for(self._target),
            created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        )
        if isinstance(outcome, DwconvError):
            return dataclasses.replace(known, status=_status(outcome), detail=str(outcome))
        return outcome.fill(known)


def computed(microseconds: float) -> Measurement:
    """A time that nobody measured."""
    return Measurement(median_us=microseconds, spread_us=0.0, rounds=0, predicted=True)


def _status(error: DwconvError) -> Status:
    if isinstance(error, WorkerTimeout):
        return Status.TIMEOUT
    return Status.CRASHED if isinstance(error, WorkerDied) else Status.COMPILE_ERROR
