"""Small kernels as text, run in the simulator; and what a worker does that runs one that breaks its process."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import torch

from dwconv.kernels.artifact import Argument, Artifact, Extent, Launch
from dwconv.kernels.entry import message
from dwconv.measure.simulator.machine import FaultKind, SimulatedGpu, SimulatorReport
from dwconv.measure.simulator.simulate import source_only, verified
from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.records.record import Verdict
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate

_ANY = Candidate(
    Workload(pass_="fprop", batch=1, channels=1, input_size=(1, 1), kernel=(1, 1)), Config.of("cuda.fprop_nchw")
)


@dataclass(frozen=True, kw_only=True)
class Ran:
    report: SimulatorReport
    y: torch.Tensor

    @property
    def kinds(self) -> set[FaultKind]:
        return {fault.kind for fault in self.report.faults}


def kernel(body: str, *, name: str = "k", element: str = "float", extra: str = "") -> str:
    return (
        f'{extra}\nextern "C" __global__ void __launch_bounds__(1024) {name}({element}* __restrict__ x_ptr, '
        f"{element}* __restrict__ w_ptr, {element}* __restrict__ y_ptr, float* __restrict__ workspace_ptr) {{\n"
        f"  const int t = (int)threadIdx.x;\n  const int b = (int)blockIdx.x;\n{body}\n}}\n"
    )


def run(
    source: str,
    folder: Path,
    *,
    threads: int = 64,
    blocks: int = 1,
    size: int = 64,
    dtype: str = "float32",
    kernels: tuple[str, ...] = ("k",),
    shared_bytes: int = 0,
    x: torch.Tensor | None = None,
) -> Ran:
    """x, w, y and workspace have ``size`` elements; x counts from 0, w is 2 everywhere."""
    arguments = tuple(Argument(name, dtype, (Extent(), size)) for name in "xwy")
    arguments += (Argument("workspace", "float32", (Extent(), size)),)
    launches = tuple(
        Launch(kernel=name, grid=(blocks, 1, 1), block=(threads, 1, 1), shared_bytes=shared_bytes, arguments=arguments)
        for name in kernels
    )
    artifact = Artifact(candidate=_ANY, kind="cuda", source=source, arguments=arguments, launches=launches)
    kind = getattr(torch, dtype)
    x = torch.arange(size).to(kind) if x is None else x
    y = torch.full((1, size), float("nan"), dtype=kind)
    with SimulatedGpu(artifact, folder=folder) as machine:
        tensors = x.contiguous(), torch.full((size,), 2.0, dtype=kind), y, torch.full((size,), float("nan"))
        machine(1, *(tensor.data_ptr() for tensor in tensors))
        assert machine.report is not None
        return Ran(report=machine.report, y=y.flatten())


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

    def __call__(self, candidate: Candidate) -> Verdict:
        artifact = source_only(candidate, self._target)
        planted = "while (n > 0) {}" if candidate.workload.channels == 1 else "__builtin_trap();"
        source = artifact.source.replace("int n) {", f"int n) {{ {planted}", 1)
        artifact = dataclasses.replace(artifact, source=source)
        verdict, _ = verified(artifact, candidate.workload, folder=self._folder)
        return verdict
