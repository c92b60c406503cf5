"""Runs of stages of bench cuda on the CPU: workers that are not there, kernels that compute with the reference, a clock
on which every call takes as long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from bench.gpu.run import Pace, Run, State
from dwconv.errors import BuildError, RequestFailed
from dwconv.kernels.artifact import Argument, Artifact, Extent
from dwconv.measure.clock.timing import Lap
from dwconv.problems.reference import reference
from dwconv.problems.right_answers import right_answers
from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import IMAGES, Layout, Pass, Workload
from dwconv.schedules.template import Candidate

TARGET = CpuTarget(device="made-up-1t", threads=1, vector_bytes=32, cache_bytes=1 << 14)


faults: dict[str, str] = {}
"""What is wrong with the kernels of a template: ``wrong`` or ``raises``."""


def workload(pass_: Pass = "fprop", *, layout: Layout = "nhwc") -> Workload:
    """A small one."""
    return Workload(
        pass_=pass_, batch=2, channels=6, input_size=(9, 7), kernel=(3, 3), padding=((1, 1), (1, 1)), layout=layout
    )


class ReferenceKernel:
    """Right on any device, if slow; or wrong, as ``faults`` say."""

    def __init__(self, built: Artifact) -> None:
        self.artifact = built
        self._fault = faults.get(built.candidate.config.template)
        self._nhwc = built.candidate.template.layout == "nhwc"
        if self._fault == "raises":
            raise BuildError("CUDA driver: CUDA_ERROR_INVALID_VALUE")

    def __call__(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        first, *others = self._results(*inputs)
        return (first, *others) if others else first

    def _results(self, *inputs: Tensor) -> list[Tensor]:
        of = self.artifact.candidate.workload.with_batch(inputs[0].shape[0])
        found = [each.expected for each in right_answers(of, *inputs)] if of.block else reference(of, *inputs)
        results = [each.to(inputs[0].dtype) for each in found]
        if self._fault == "wrong":
            results[0][(0,) * results[0].dim()] += 1
        return results

    def run_into(self, inputs: Sequence[Tensor], results: Sequence[Tensor], workspaces: Sequence[Tensor]) -> None:
        computed = self._results(*(self._permuted(tensor, 0, 3, 1, 2) for tensor in inputs))
        for result, tensor in zip(results, computed, strict=True):
            result.copy_(self._permuted(tensor, 0, 2, 3, 1).reshape(result.shape))

    def _permuted(self, tensor: Tensor, *order: int) -> Tensor:
        return tensor.permute(order) if self._nhwc and tensor.dim() == 4 and tensor.shape[1] != 1 else tensor


load = ReferenceKernel


def artifact(candidate: Candidate) -> Artifact:
    """As if it was built."""
    of = candidate.workload
    channels_last = candidate.template.layout == "nhwc"

    def shape(name: str) -> tuple[Any, ...]:
        if name not in IMAGES:
            return of.shape_of(name)
        _, channels, *size = of.shape_of(name)
        return (Extent(), *size, channels) if channels_last else (Extent(), channels, *size)

    arguments = tuple(Argument(name, of.dtype, shape(name)) for name in (*of.inputs, *of.results))
    return Artifact(candidate=candidate, kind="cpu", source="", arguments=arguments, resources={})


def run_of(
    folder: Path, workloads: Sequence[Workload] = (), *, odd: Sequence[Workload] = (), pace: Pace | None = None
) -> Run:
    """In this process, with time enough."""
    return Run(
        target=TARGET, state=State.open(folder, device=TARGET.device), pace=pace or Pace(600, first_s=1),
        workloads=list(workloads), odd=list(odd), one_process=True, jobs=1,
    )  # fmt: skip


class NoWorkers:
    """For ``Workers``: builds in no time what is planted; candidates that ``unbuildable`` picks cannot be built."""

    def __init__(
        self, target: object, *, jobs: int, unbuildable: Callable[[Any], bool] = lambda candidate: False
    ) -> None:
        self.builders = self
        self._unbuildable = unbuildable

    def start(self) -> None: ...

    def __enter__(self) -> NoWorkers:
        return self

    def __exit__(self, *error: object) -> None: ...

    def map(self, bodies: Sequence[Any], *, timeout_s: float) -> Iterator[tuple[int, Any]]:
        for position, candidate in enumerate(bodies):
            refused = self._unbuildable(candidate)
            yield position, RequestFailed("BuildError: too many registers") if refused else artifact(candidate)


# -- a clock -----------------------------------------------------------------------------------------------------------


class StillClock:
    """Every call takes ten microseconds. What ``ready`` refuses is in ``uncapturable``, by number."""

    def __init__(self, *, uncapturable: tuple[int, ...] = ()) -> None:
        self.ready_for: list[object] = []
        self.laps = 0
        self.uncapturable = uncapturable

    def ready(self, call):
        self.ready_for.append(call)
        if len(self.ready_for) - 1 in self.uncapturable:
            raise BuildError("it cannot be captured: it waits for the device")
        return call

    def lap(self, call, *, times):
        self.laps += 1
        call()
        return Lap(seconds=times * 1e-5)

    def enough(self, effort):
        return effort

    def overall(self):
        return lambda: 0.0
