"""Inside a build worker: a candidate becomes an artifact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dwconv.build.artifact import Artifact
from dwconv.build.wire import message
from dwconv.measure.worker import locate
from dwconv.schedules.template import Candidate
from dwconv.target import Target

BUILD = "dwconv.build:build"


@message
@dataclass(frozen=True, kw_only=True)
class BuildSetup:
    target: Target
    build: str = BUILD
    """``module:name`` of what builds; the tests plant faults here."""


class Builder:
    """Handler of a build worker: a Candidate in, an Artifact out."""

    def __init__(self, setup: BuildSetup) -> None:
        self._target = setup.target
        self._build: Callable[[Candidate, Target], Artifact] = locate(setup.build)
        if setup.build == BUILD:
            import tvm  # noqa: F401  takes a second or two, which the first candidate should not be charged with

    def __call__(self, candidate: Candidate) -> Artifact:
        return self._build(candidate, self._target)
