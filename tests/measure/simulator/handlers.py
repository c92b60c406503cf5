"""What the workers of test_templates do: lower a candidate, run it in the simulator, and say what was found."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from dwconv.build.wire import message
from dwconv.measure.simulator.machine import Machine
from dwconv.measure.simulator.simulate import Simulation, verified
from dwconv.measure.simulator.smaller import source_only
from dwconv.records.record import Verdict
from dwconv.schedules.template import Candidate
from dwconv.target import CudaTarget


@message
@dataclass(frozen=True, kw_only=True)
class HandlerSetup:
    target: CudaTarget
    folder: str
    """Of compiled kernels."""


class Verifier:
    """A Candidate in; out comes what a whole run of it showed."""

    def __init__(self, setup: HandlerSetup) -> None:
        self._target = setup.target
        self._folder = Path(setup.folder)

    def __call__(self, candidate: Candidate) -> Simulation:
        verdict, report = verified(source_only(candidate, self._target), candidate.workload, folder=self._folder)
        counted = {**report.counts.resources(), "in_step": report.counts.in_step}
        return Simulation(verdict=verdict, resources=counted)


class Vandal(Verifier):
    """Runs a kernel that never ends or, at a workload of several channels, one that breaks the process."""

    def __call__(self, candidate: Candidate) -> Simulation:
        artifact = source_only(candidate, self._target)
        planted = "while (n > 0) {}" if candidate.workload.channels == 1 else "__builtin_trap();"
        source = artifact.source.replace("int n) {", f"int n) {{ {planted}", 1)
        artifact = dataclasses.replace(artifact, source=source)
        verdict, _ = verified(artifact, candidate.workload, folder=self._folder)
        return Simulation(verdict=verdict, resources={})


class Sampler(Verifier):
    """The same of a few blocks of a large workload, which is not verified."""

    def __call__(self, candidate: Candidate) -> Simulation:
        artifact = source_only(candidate, self._target)
        with Machine(artifact, folder=self._folder) as machine:
            report = machine.sample(batch=2, most_blocks=3)
        verdict = Verdict(right=report.clean, max_error=0.0, allowed_error=0.0, reason=str(report))
        return Simulation(verdict=verdict, resources=report.counts.resources())
