"""All pairs of two lists as parameters of a test, of which the quick ones meet every entry of the first list once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def in_turns(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """Each of ``first`` with each of ``second``: with one of them, which take turns, quick, with the others slow."""
    return [
        pytest.param(one, other, marks=() if number % len(second) == turn else (pytest.mark.slow,))
        for number, one in enumerate(first)
        for turn, other in enumerate(second)
    ]
