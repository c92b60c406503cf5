"""PredictRunner: what candidates would cost on a GPU that is not here. It builds them, and computes what they cost.

Its records are marked as predicted: they rank candidates, and never count as measured.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType

from dwconv import settings
from dwconv.build import build
from dwconv.build.wire import message
from dwconv.errors import BuildError, DwconvError, WorkerDied, WorkerTimeout
from dwconv.measure.process import Pool
from dwconv.measure.runner import versions_for
from dwconv.records.record import Measurement, Status, TuningRecord
from dwconv.schedules.template import Candidate
from dwconv.target import CudaTarget
from dwconv.tuner.cost_model import computed_cost
from dwconv.workload import Workload


@message
@dataclass(frozen=True, kw_only=True)
class PredictSetup:
    target: CudaTarget


@message
@dataclass(frozen=True, kw_only=True)
class Prediction:
    microseconds: float
    resources: dict[str, int]


class Predictor:
    """Handler of a worker: a Candidate in, a Prediction out."""

    def __init__(self, setup: PredictSetup) -> None:
        self._target = setup.target
        import tvm  # noqa: F401  takes a second or two, which the first candidate should not be charged with

    def __call__(self, candidate: Candidate) -> Prediction:
        artifact = build(candidate, self._target)
        cost = computed_cost(artifact, candidate.workload, self._target)
        if not math.isfinite(cost.microseconds):
            raise BuildError(f"a block does not fit on an SM: {cost.occupancy.limiter} of {artifact.resources}")
        return Prediction(
            microseconds=float(cost.microseconds), resources=artifact.resources
        )  # NumPy's floats are no data


class PredictRunner:
    """A Runner for a GPU that is not in this machine. A context manager; ``close`` ends its worker processes.

    Raises WorkerDied if no worker can start: then no candidate could ever be built."""

    def __init__(
        self,
        workload: Workload,
        target: CudaTarget,
        *,
        jobs: int = 1,
        build_timeout_s: float = settings.BUILD_TIMEOUT_S,
    ) -> None:
        self._workload = workload
        self._target = target
        self._build_timeout_s = build_timeout_s
        self._workers = Pool("dwconv.tuner.predict:Predictor", PredictSetup(target=target), size=jobs, threads=1)

    def measure(self, candidates: Sequence[Candidate]) -> Iterator[TuningRecord]:
        """One record a candidate, as soon as it is known, its time computed."""
        for position, outcome in self._workers.map(candidates, timeout_s=self._build_timeout_s):
            yield self._record(candidates[position], outcome)

    def confirm(self, candidates: Sequence[Candidate]) -> Iterator[TuningRecord]:
        """Nothing: computing a cost once more would tell nothing new."""
        return iter(())

    def close(self) -> None:
        """End the worker processes."""
        self._workers.kill()

    def __enter__(self) -> PredictRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _record(self, candidate: Candidate, outcome: Prediction | DwconvError) -> TuningRecord:
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
        computed = Measurement(median_us=outcome.microseconds, spread_us=0.0, rounds=0, predicted=True)
        return dataclasses.replace(known, measurement=computed, resources=outcome.resources)


def _status(error: DwconvError) -> Status:
    if isinstance(error, WorkerTimeout):
        return Status.TIMEOUT
    return Status.CRASHED if isinstance(error, WorkerDied) else Status.COMPILE_ERROR
