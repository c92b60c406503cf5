"""ComputeRunner: the computed cost of candidates on a GPU that is not in this machine.

Workers build each candidate, compute its cost, and run its source on the CPU, in the simulator,
to verify it. The records are marked as computed: they rank candidates, and never count as measured.
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
from dwconv.measure.outcomes import new_record, status_after
from dwconv.measure.processes.pool import Pool
from dwconv.measure.simulator.compile import check_compiler, compile_runtime
from dwconv.measure.simulator.simulate import simulate
from dwconv.problems.target import CudaTarget
from dwconv.records.record import Measurement, Status, TuningRecord, Verdict
from dwconv.schedules.template import Candidate
from dwconv.tuner.gpu_cost.cost_model import computed_cost


@message
@dataclass(frozen=True, kw_only=True)
class PredictSetup:
    target: CudaTarget
    check: bool


@message
@dataclass(frozen=True, kw_only=True)
class Prediction:
    microseconds: float
    resources: dict[str, int]
    """Reported by the compiler and, if the candidate was checked, by the simulator."""
    verdict: Verdict | None = None
    """None if the candidate was not checked."""


class Predictor:
    """Handler of a worker: a Candidate in, a Prediction out. Kernels that crash or hang take it with them."""

    def __init__(self, setup: PredictSetup) -> None:
        self._target = setup.target
        self._folder: Path | None = None
        if setup.check:
            self._temporary = tempfile.TemporaryDirectory(prefix="dwconv-simulator-")  # in the worker's own folder
            self._folder = Path(self._temporary.name)
            compile_runtime(self._folder)
        import tvm  # noqa: F401  takes a second or two, which should not count as the first candidate's time

    def __call__(self, candidate: Candidate) -> Prediction:
        artifact = build(candidate, self._target)
        cost = computed_cost(artifact, candidate.workload, self._target)
        if not math.isfinite(cost.microseconds):
            raise BuildError(f"a block does not fit on an SM: {cost.occupancy.limiter} of {artifact.resources}")
        computed = Prediction(
            microseconds=float(cost.microseconds),  # NumPy's floats cannot pass between processes
            resources=artifact.resources,
        )
        if self._folder is None:
            return computed
        simulation = simulate(artifact, self._target, folder=self._folder)
        for compiled in self._folder.glob("*.so"):
            compiled.unlink()
        resources = {**computed.resources, **simulation.resources}
        return dataclasses.replace(computed, verdict=simulation.verdict, resources=resources)


class ComputeRunner:
    """A Runner. A context manager; ``close`` ends its worker processes.

    ``check``: run each candidate in the simulator too. Raises BrokenInstallation if the g++ that this needs is missing,
    WorkerCannotStart if no worker can start, since then no candidate could ever be built, and EnvironmentFailure if the
    machine stays short of memory, disk space or the like."""

    def __init__(
        self,
        target: CudaTarget,
        *,
        check: bool,
        jobs: int = 1,
        timeout_s: float = settings.BUILD_TIMEOUT_S + settings.RUN_TIMEOUT_S,
    ) -> None:
        if check:
            check_compiler()
        self._target = target
        self._timeout_s = timeout_s
        setup = PredictSetup(target=target, check=check)
        self._workers = Pool(
            "dwconv.tuner.gpu_cost.compute_runner:Predictor", setup, size=jobs, threads=1, misfit=_misfit
        )

    def measure(self, candidates: Sequence[Candidate]) -> Iterator[TuningRecord]:
        """One record a candidate, as soon as it is known, its time computed."""
        for position, outcome in self._workers.map(candidates, timeout_s=self._timeout_s):
            yield self._record(candidates[position], outcome)

    def confirm(self, candidates: Sequence[Candidate]) -> Iterator[TuningRecord]:
        """No records: computing the same cost again would give nothing new."""
        return iter(())

    def close(self) -> None:
        """End the worker processes."""
        self._workers.kill()

    def __enter__(self) -> ComputeRunner:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _record(self, candidate: Candidate, outcome: Prediction | WorkerError) -> TuningRecord:
        if isinstance(outcome, WorkerError):
            status = status_after(outcome, otherwise=Status.COMPILE_ERROR)
            return dataclasses.replace(new_record(candidate, self._target, status=status), detail=str(outcome))
        verdict = outcome.verdict
        status = Status.OK if verdict is None or verdict.right else Status.WRONG
        known = new_record(candidate, self._target, status=status)
        known = dataclasses.replace(known, verdict=verdict, resources=outcome.resources)
        if verdict is not None and not verdict.right:
            return dataclasses.replace(known, detail=verdict.reason)
        time = Measurement(median_us=outcome.microseconds, spread_us=0.0, rounds=0, computed=True)
        return dataclasses.replace(known, measurement=time)


def _misfit(candidate: Candidate, answer: object) -> str:
    return "" if isinstance(answer, Prediction) else f"{type(answer).__name__} is no prediction of {candidate.config}"
