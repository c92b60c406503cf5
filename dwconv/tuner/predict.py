"""PredictRunner: what candidates would cost on a GPU that is not here. It builds them, and computes what they cost.

Its records are marked as predicted: they rank candidates, and never count as measured.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from dwconv import settings
from dwconv.build import build
from dwconv.build.wire import message
from dwconv.errors import BuildError
from dwconv.records.record import TuningRecord
from dwconv.schedules.template import Candidate
from dwconv.target import CudaTarget
from dwconv.tuner.absent_gpu import AbsentGpuRunner, computed
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

    def fill(self, known: TuningRecord) -> TuningRecord:
        return dataclasses.replace(known, measurement=computed(self.microseconds), resources=self.resources)


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
        # NumPy's floats cannot pass between processes.
        return Prediction(microseconds=float(cost.microseconds), resources=artifact.resources)


class PredictRunner(AbsentGpuRunner):
    """Builds candidates and computes what they cost."""

    def __init__(
        self,
        workload: Workload,
        target: CudaTarget,
        *,
        jobs: int = 1,
        build_timeout_s: float = settings.BUILD_TIMEOUT_S,
    ) -> None:
        handler, setup = "dwconv.tuner.predict:Predictor", PredictSetup(target=target)
        super().__init__(workload, target, handler=handler, setup=setup, jobs=jobs, timeout_s=build_timeout_s)
