"""SimulateRunner: candidates for a GPU that is not here, verified by running their source on the CPU.

Its records say whether a candidate is right, how many bank conflicts it has and how many sectors it touches; their
times are computed, as PredictRunner's are.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from dwconv import settings
from dwconv.build import build
from dwconv.build.wire import message
from dwconv.errors import DwconvError, WorkerDied, WorkerTimeout
from dwconv.measure.process import Pool
from dwconv.measure.runner import versions_for
from dwconv.measure.simulator.compile import check_compiler, compile_runtime
from dwconv.measure.simulator.simulate import Simulation, simulate
from dwconv.records.record import Measurement, Status, TuningRecord
from dwconv.schedules.template import Candidate
from dwconv.target import CudaTarget
from dwconv.tuner.cost_model import computed_cost
from dwconv.workload import Workload


@message
@dataclass(frozen=True, kw_only=True)
class SimulateSetup:
    target: CudaTarget


@message
@dataclass(frozen=True, kw_only=True)
class SimulatedCandidate:
    """What came of it, and its computed time."""

    simulation: Simulation
    microseconds: float
    resources: dict[str, int]
    """The compiler's and the simulator's."""


class Simulator:
    """Handler of a worker: a Candidate in, a SimulatedCandidate out. Kernels that crash or hang take it with them."""

    def __init__(self, setup: SimulateSetup) -> None:
        self._target = setup.target
        self._temporary = tempfile.TemporaryDirectory(prefix="dwconv-simulator-")  # in the worker's own folder
        self._folder = Path(self._temporary.name)
        compile_runtime(self._folder)
        import tvm  # noqa: F401  takes a second or two, which the first candidate should not be charged with

    def __call__(self, candidate: Candidate) -> SimulatedCandidate:
        artifact = build(candidate, self._target)
        simulation = simulate(artifact, self._target, folder=self._folder)
        for compiled in self._folder.glob("*.so"):
            compiled.unlink()
        return SimulatedCandidate(
            simulation=simulation,
            microseconds=float(computed_cost(artifact, candidate.workload, self._target).microseconds),
            resources={**artifact.resources, **simulation.resources},
        )


class SimulateRunner:
    """A Runner for a GPU that is not in this machine. A context manager; ``close`` ends its worker processes.

    Raises BrokenInstallation without g++, WorkerDied if no worker can start."""

    def __init__(
        self,
        workload: Workload,
        target: CudaTarget,
        *,
        jobs: int = 1,
        timeout_s: float = settings.BUILD_TIMEOUT_S + settings.RUN_TIMEOUT_S,
    ) -> None:
        check_compiler()
        self._workload = workload
        self._target = target
        self._timeout_s = timeout_s
        self._workers = Pool("dwconv.tuner.simulate:Simulator", SimulateSetup(target=target), size=jobs, threads=1)

    def measure(self, candidates: Sequence[Candidate]) -> Iterator[TuningRecord]:
        """One record a candidate, as soon as it is known: verified, its time computed."""
        for position, outcome in self._workers.map(candidates, timeout_s=self._timeout_s):
            yield self._record(candidates[position], outcome)

    def confirm(self, candidates: Sequence[Candidate]) -> Iterator[TuningRecord]:
        """Nothing: simulating once more would tell nothing new."""
        return iter(())

    def close(self) -> None:
        """End the worker processes."""
        self._workers.kill()

    def __enter__(self) -> SimulateRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _record(self, candidate: Candidate, outcome: SimulatedCandidate | DwconvError) -> TuningRecord:
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
        verdict = outcome.simulation.verdict
        known = dataclasses.replace(known, verdict=verdict, resources=outcome.resources)
        if not verdict.right:
            return dataclasses.replace(known, status=Status.WRONG, detail=verdict.reason)
        if not math.isfinite(outcome.microseconds):
            return dataclasses.replace(known, status=Status.COMPILE_ERROR, detail="a block does not fit on an SM")
        computed = Measurement(median_us=outcome.microseconds, spread_us=0.0, rounds=0, predicted=True)
        return dataclasses.replace(known, measurement=computed)


def _status(error: DwconvError) -> Status:
    if isinstance(error, WorkerTimeout):
        return Status.TIMEOUT
    return Status.CRASHED if isinstance(error, WorkerDied) else Status.COMPILE_ERROR
