"""ComputeRunner: records of computed costs, for a GPU that is not in this machine.

Workers build each candidate, compute its cost, and run its source on the CPU, in the simulator, to verify it.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dwconv import settings
from dwconv.errors import BuildError, WorkerError
from dwconv.kernels import build
from dwconv.kernels.entry import message
from dwconv.measure.processes.pool import Pool
from dwconv.measure.requests import new_record, status_after
from dwconv.measure.runner import Runner
from dwconv.measure.simulator.host_compile import available, compile_runtime
from dwconv.measure.simulator.simulate import simulate
from dwconv.problems.target import CudaTarget
from dwconv.records.record import Measurement, Status, TuningRecord, Verdict
from dwconv.schedules.template import Candidate
from dwconv.tuner.gpu_cost import computed_cost


@message
@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The computed cost of a candidate."""

    microseconds: float
    resources: dict[str, int]
    """Reported by the compiler."""
    verdict: Verdict | None = None
    """None if the candidate was not checked."""


class Predictor:
    """Handler of a worker: a Candidate in, a Prediction out. Kernels that crash or hang take it with them. Each is run
    in the simulator, too, where there is a compiler for that."""

    def __init__(self, target: CudaTarget) -> None:
        self._target = target
        self._folder: Path | None = None
        if available():
            self._temporary = tempfile.TemporaryDirectory(prefix="dwconv-simulator-")  # in the worker's own folder
            self._folder = Path(self._temporary.name)
            compile_runtime(self._folder)
        import tvm  # noqa: F401  takes a second or two, which should not count as the first candidate's time

    def __call__(self, candidate: Candidate) -> Prediction:
        artifact = build(candidate, self._target)
        cost = computed_cost(artifact, candidate.workload, self._target)
        if not math.isfinite(cost.microseconds):
            limiter = cost.slowest.price.occupancy.limiter
            raise BuildError(f"a block does not fit on an SM: {limiter} of {artifact.resources}")
        computed = Prediction(
            microseconds=float(cost.microseconds),  # NumPy's floats cannot pass between processes
            resources=artifact.resources,
        )
        if self._folder is None:
            return computed
        verdict = simulate(artifact, self._target, folder=self._folder)
        for compiled in self._folder.glob("*.so"):
            compiled.unlink()
        return dataclasses.replace(computed, verdict=verdict)


class ComputeRunner(Runner):
    """Raises WorkerCannotStart if no worker can start, since then no candidate could ever be built, and
    EnvironmentFailure if the machine stays short of memory, disk space or the like."""

    def __init__(
        self,
        target: CudaTarget,
        *,
        jobs: int = 1,
        timeout_s: float = settings.BUILD_TIMEOUT_S + settings.RUN_TIMEOUT_S,
    ) -> None:
        self._target = target
        self._timeout_s = timeout_s
        self._workers = Pool("dwconv.tuner.compute_runner:Predictor", target, size=jobs, misfit=_misfit)

    def measure(self, candidates: Sequence[Candidate]) -> Iterator[TuningRecord]:
        """One record a candidate, as soon as it is known, its time computed."""
        for position, outcome in self._workers.map(candidates, timeout_s=self._timeout_s):
            yield record_of(candidates[position], outcome, self._target)

    def confirm(self, candidates: Sequence[Candidate]) -> Iterator[TuningRecord]:
        """No records: computing the same cost again would give nothing new."""
        return iter(())

    def close(self) -> None:
        """End the worker processes."""
        self._workers.kill()


def record_of(candidate: Candidate, outcome: Prediction | WorkerError, target: CudaTarget) -> TuningRecord:
    """What is known of a candidate from its prediction, or from the error in its place."""
    if isinstance(outcome, WorkerError):
        status = status_after(outcome, otherwise=Status.COMPILE_ERROR)
        return dataclasses.replace(new_record(candidate, target, status=status), detail=str(outcome))
    verdict = outcome.verdict
    status = Status.OK if verdict is None or verdict.right else Status.WRONG
    known = new_record(candidate, target, status=status)
    known = dataclasses.replace(known, verdict=verdict, resources=outcome.resources)
    if verdict is not None and not verdict.right:
        return dataclasses.replace(known, detail=verdict.reason)
    time = Measurement(median_us=outcome.microseconds, spread_us=0.0, rounds=0, computed=True)
    return dataclasses.replace(known, measurement=time)


def _misfit(candidate: Candidate, answer: object) -> str:
    if not isinstance(answer, Prediction):
        return f"{type(answer).__name__} is not a prediction of {candidate.config}"
    return "" if 0 < answer.microseconds < math.inf else f"{answer.microseconds} µs, which no kernel takes"
