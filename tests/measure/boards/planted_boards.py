"""Kernels for a board that have faults."""

from __future__ import annotations

import dataclasses
import math

from dwconv.kernels import library
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.library import build_for_board
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, templates_for

SLOW_S = 0.1


def wrong(candidate: Candidate, target: Target) -> Artifact:
    """Computes a convolution of other taps, on tensors of the same shapes."""
    other = dataclasses.replace(candidate.workload, padding=((2, 2), (2, 2)), dilation=(2, 2))
    return _of_another(candidate, Candidate(other, _default(other, target)), target)


def outside(candidate: Candidate, target: Target) -> Artifact:
    """Writes a byte behind y."""
    size_bytes = 4 * math.prod(candidate.workload.output_shape)
    code = f"  %beyond = getelementptr i8, ptr %address2, i64 {size_bytes}\n  store i8 7, ptr %beyond\n"
    return _before_it_runs(code, candidate, target)


def slow(candidate: Candidate, target: Target) -> Artifact:
    """Takes a tenth of a second, and is right."""
    return _before_it_runs(f"  %slept = call i32 @usleep(i32 {int(SLOW_S * 1e6)})\n", candidate, target)


def hanging(candidate: Candidate, target: Target) -> Artifact:
    """Never returns."""
    return _before_it_runs("  br label %forever\nforever:\n  call i32 @usleep(i32 10000)\n  br label %forever\n"
                           "never:\n", candidate, target)  # fmt: skip


def _default(workload: Workload, target: Target) -> Config:
    (template,) = (each for each in templates_for(workload, target) if each.layout == workload.layout)
    return template.space(workload, target).default


def _of_another(candidate: Candidate, other: Candidate, target: Target) -> Artifact:
    """The code of another candidate, in the place of this one's."""
    return dataclasses.replace(build_for_board(candidate, target), library=build_for_board(other, target).library)


def _before_it_runs(code: str, candidate: Candidate, target: Target) -> Artifact:
    entry = library._board_entry_ir

    def planted(count: int) -> str:
        ir = entry(count)
        run = "  %status = call i32 @dwconv.enter"
        assert run in ir
        return "declare i32 @usleep(i32)\n" + ir.replace(run, code + run)

    library._board_entry_ir = planted
    try:
        return build_for_board(candidate, target)
    finally:
        library._board_entry_ir = entry
