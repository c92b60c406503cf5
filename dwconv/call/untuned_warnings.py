"""Warnings of calls, each given once in a process. Of layers of a kind a line names the first."""

from __future__ import annotations

from collections.abc import Mapping

from dwconv.dispatch.decision import DispatchDecision
from dwconv.errors import warn
from dwconv.problems.as_written import tune_command
from dwconv.problems.problem import Problem
from dwconv.problems.workload import Pass
from dwconv.system import versions

_named: set[str] = set()
"""The warnings that were given."""


def untuned(problem: Problem, decisions: Mapping[Pass, DispatchDecision], *, fate: str) -> str:
    """What becomes of untuned passes, why, and the command that tunes them."""
    reasons = "; ".join(dict.fromkeys(each.reason for each in decisions.values()))
    command = tune_command(problem.workload("fprop"), list(decisions))
    return f"{', '.join(decisions)} of {problem} {fate}: {reasons}; tune them{versions.where_to_tune()}: {command}"


def is_first(name: str) -> bool:
    """True the first time in this process."""
    first = name not in _named
    _named.add(name)
    return first


def warn_of_first(kind: str, message: str) -> None:
    """Warn once of what may happen in every layer of a model."""
    if is_first(kind):
        warn(f"{message}; others are not named: dwconv.report(model) lists those of a model")


def kind_of(fault: str) -> str:
    """The fault of a kernel, without the part that differs between kernels."""
    return fault.partition(":")[0]


def warn_once(message: str) -> None:
    """Warn, the first time in this process, where the user called."""
    if is_first(message):
        warn(message)


def forget() -> None:
    """Give all warnings again."""
    _named.clear()
