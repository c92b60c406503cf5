"""Warnings of calls, each given once in a process: a step calls thousands of times."""

from __future__ import annotations

from dwconv.errors import warn

_given: set[str] = set()
"""The warnings that were given."""


def is_first(name: str) -> bool:
    """True the first time in this process."""
    first = name not in _given
    _given.add(name)
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
    _given.clear()
