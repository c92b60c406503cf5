"""Parameters of a test, some of which are slow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """These values, only where slow tests run."""
    return pytest.param(*values, marks=pytest.mark.slow)


def every(count: int, values: Sequence[Any]) -> list[Any]:
    """One of ``count`` of these values is quick, each a tuple if a test takes several."""
    return [
        value if number % count == 0 else slow(*(value if isinstance(value, tuple) else (value,)))
        for number, value in enumerate(values)
    ]


def in_turns(first: Sequence[Any], second: Sequence[Any], *, quick_of: int = 1) -> list[Any]:
    """Each of ``first`` with each of ``second``. Quick is one in ``quick_of`` of the first list, each with one of the
    second, which take turns."""
    return [
        pytest.param(one, other)
        if number % quick_of == 0 and number // quick_of % len(second) == turn
        else slow(one, other)
        for number, one in enumerate(first)
        for turn, other in enumerate(second)
    ]


def alternating(first: Sequence[Any], second: Sequence[Any], *, quick_of: int = 1) -> list[Any]:
    """Each of ``first`` with one of ``second``, which take turns. One in ``quick_of`` is quick."""
    pairs = [(one, second[number % len(second)]) for number, one in enumerate(first)]
    return every(quick_of, pairs)
