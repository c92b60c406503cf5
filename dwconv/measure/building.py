"""Inside a build worker: build a candidate, and check that an answer is an artifact of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

from dwconv.errors import BrokenInstallation
from dwconv.kernels import nvrtc
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.entry import message
from dwconv.measure.processes.worker import locate
from dwconv.problems.target import Target
from dwconv.schedules.template import Candidate

BUILD = "dwconv.kernels:build"
BUILD_CACHED = "dwconv.kernels.cache:build_cached"
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
    workload, named = candidate.workload, [argument.name for argument in (*artifact.inputs, *artifact.results)]
    return "" if named == [*workload.inputs, *workload.results] else f"a kernel of {', '.join(named)}"


_NICE = 5
"""Builds make way for the measuring worker, which verifies beside them: a parallel loop waits for its slowest
thread."""


class Builder:
    """Handler of a build worker: a Candidate in, an Artifact out."""

    def __init__(self, setup: BuildSetup) -> None:
        os.nice(_NICE)
        self._target = setup.target
        self._build: Callable[[Candidate, Target], Artifact] = locate(setup.build)
        if setup.build in (BUILD, BUILD_CACHED):
            _import_tvm(setup.target)

    def __call__(self, candidate: Candidate) -> Artifact:
        return self._build(candidate, self._target)


def _import_tvm(target: Target) -> None:
    """Now: it takes a second or two, which should not count as the first candidate's time. Without PyTorch, which TVM
    would import, three times the work of its own import: no build needs it, where it need not find NVRTC."""
    if target.kind == "cpu" or _has_nvrtc():
        sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
    import tvm  # noqa: F401


def _has_nvrtc() -> bool:
    try:
        nvrtc.library()
    except BrokenInstallation:
        return False
    return True
