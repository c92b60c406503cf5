"""What a worker of test_simulate does: run a kernel that breaks its process, or never ends."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from dwconv.kernels.entry import message
from dwconv.measure.simulator.simulate import Simulation, source_only, verified
from dwconv.problems.target import CudaTarget
from dwconv.schedules.template import Candidate


@message
@dataclass(frozen=True, kw_only=True)
class HandlerSetup:
    target: CudaTarget
    folder: str
    """Of compiled kernels."""


class Vandal:
    """Runs a kernel that never ends or, at a workload of several channels, one that breaks the process."""

    def __init__(self, setup: HandlerSetup) -> None:
        self._target = setup.target
        self._folder = Path(setup.folder)

    def __call__(self, candidate: Candidate) -> Simulation:
        artifact = source_only(candidate, self._target)
        planted = "while (n > 0) {}" if candidate.workload.channels == 1 else "__builtin_trap();"
        source = artifact.source.replace("int n) {", f"int n) {{ {planted}", 1)
        artifact = dataclasses.replace(artifact, source=source)
        verdict, _ = verified(artifact, candidate.workload, folder=self._folder)
        return Simulation(verdict=verdict, resources={})
