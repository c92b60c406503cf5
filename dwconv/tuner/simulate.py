"""SimulateRunner: candidates for a GPU that is not here, verified by running their source on the CPU.

Its records say whether a candidate is right, how many bank conflicts it has and how many sectors it touches; their
times are computed, as PredictRunner's are.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dwconv import settings
from dwconv.build import build
from dwconv.build.wire import message
from dwconv.measure.simulator.compile import check_compiler, compile_runtime
from dwconv.measure.simulator.simulate import Simulation, simulate
from dwconv.records.record import Status, TuningRecord
from dwconv.schedules.template import Candidate
from dwconv.target import CudaTarget
from dwconv.tuner.absent_gpu import AbsentGpuRunner, computed
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

    def fill(self, known: TuningRecord) -> TuningRecord:
        verdict = self.simulation.verdict
        known = dataclasses.replace(known, verdict=verdict, resources=self.resources)
        if not verdict.right:
            return dataclasses.replace(known, status=Status.WRONG, detail=verdict.reason)
        if not math.isfinite(self.microseconds):
            return dataclasses.replace(known, status=Status.COMPILE_ERROR, detail="a block does not fit on an SM")
        return dataclasses.replace(known, measurement=computed(self.microseconds))


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


class SimulateRunner(AbsentGpuRunner):
    """Verifies candidates in the simulator, and computes what they cost. Raises BrokenInstallation without g++."""

    def __init__(
        self,
        workload: Workload,
        target: CudaTarget,
        *,
        jobs: int = 1,
        timeout_s: float = settings.BUILD_TIMEOUT_S + settings.RUN_TIMEOUT_S,
    ) -> None:
        check_compiler()
        handler, setup = "dwconv.tuner.simulate:Simulator", SimulateSetup(target=target)
        super().__init__(workload, target, handler=handler, setup=setup, jobs=jobs, timeout_s=timeout_s)
