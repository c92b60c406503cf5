"""Inside a build worker: build a candidate, and check that an answer is an artifact of it."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

from dwconv.errors import BrokenInstallation
from dwconv.kernels import nvrtc
from dwconv.kernels.artifact import BATCH, Argument, Artifact, sized
from dwconv.kernels.entry import message
from dwconv.measure.processes.worker import locate
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.schedules.template import Candidate

BUILD = "dwconv.kernels:build"
BUILD_FOR_RACE = "dwconv.kernels.cache:build_for_race"
"""Takes kernels from the cache folder, and puts them there."""


@message
@dataclass(frozen=True, kw_only=True)
class BuildSetup:
    target: Target
    build: str = BUILD
    """``module:name`` of the function that builds; the tests plant faults here."""


def misfit(candidate: Candidate, artifact: object, *, target: Target) -> str:
    """Why ``artifact`` cannot come from building ``candidate``; empty if it can."""
    if not isinstance(artifact, Artifact):
        return f"{type(artifact).__name__} is not an artifact"
    if artifact.candidate != candidate:
        return f"the artifact of another candidate, {artifact.candidate.config}"
    if artifact.kind != target.kind:
        return f"an artifact for {artifact.kind}, not for {target.kind}"
    workload, named = candidate.workload, [argument.name for argument in artifact.arguments]
    tensors = (*workload.inputs, *workload.results)
    others = named[len(tensors) :]
    if named[: len(tensors)] != [*tensors] or not all(name.startswith("workspace") for name in others):
        return f"a kernel of {', '.join(named)}"
    for argument in artifact.arguments:
        is_tensor = argument.name in tensors
        for batch in (1, 2):
            has = _elements(argument, workload, batch)
            fits = has in _wanted(argument.name, workload, batch) if is_tensor else has > 0
            if not fits or (is_tensor and argument.dtype != workload.dtype_of(argument.name)):
                return f"a kernel of {argument} for {workload.key}"
    return ""


def _wanted(name: str, workload: Workload, batch: int) -> tuple[int, ...]:
    """The elements of a tensor. A template may take the whole tensor of which x is a slice, or x alone."""
    elements = math.prod(workload.with_batch(batch).shape_of(name))
    if name != "x" or not workload.x_pitch:
        return (elements,)
    return elements, elements // workload.channels * workload.x_pitch


def _elements(argument: Argument, workload: Workload, batch: int) -> int:
    """0 for a shape that no batch of the workload has."""
    sizes = {**(workload.image_sizes if workload.any_size else {}), BATCH: batch}
    try:
        shape = [sized(size, sizes) for size in argument.shape]
    except ZeroDivisionError:
        return 0
    return math.prod(size if isinstance(size, int) and size > 0 else 0 for size in shape)


_NICE = 5
"""Builds make way for the measuring worker, which verifies beside them: a parallel loop waits for its slowest
thread."""


class BuildHandler:
    """Handler of a build worker: a Candidate in, an Artifact out."""

    def __init__(self, setup: BuildSetup) -> None:
        os.nice(_NICE)
        self._target = setup.target
        self._build: Callable[[Candidate, Target], Artifact] = locate(setup.build)
        if setup.build in (BUILD, BUILD_FOR_RACE):
            import_tvm(setup.target)

    def __call__(self, candidate: Candidate) -> Artifact:
        return self._build(candidate, self._target)


def import_tvm(target: Target) -> None:
    """Now: it takes a second or two, which should not count as the first candidate's time. Without PyTorch, which TVM
    would import, three times the work of its own import: no build needs it, where it need not find NVRTC."""
    hides = "torch" not in sys.modules and (target.kind == "cpu" or _has_nvrtc())
    if hides:
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        import tvm  # noqa: F401
    finally:
        if hides:
            del sys.modules["torch"]


def _has_nvrtc() -> bool:
    try:
        nvrtc.library()
    except BrokenInstallation:
        return False
    return True
