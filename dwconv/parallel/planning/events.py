"""Events of a step: one rank does one thing from one moment to another, simulated or measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

What = Literal["forward", "dgrad", "wgrad", "backward", "communication"]
"""``backward``: dgrad and wgrad in one, where they were not told apart."""
WHAT: tuple[What, ...] = get_args(What)


@dataclass(frozen=True, kw_only=True)
class Event:
    """Microseconds count from the beginning of the step. What no event covers is idle time."""

    rank: int
    stage: int
    microbatch: int | None
    """Numbered over the whole batch; None for gradients that are summed over ranks."""
    what: What
    start_us: float
    end_us: float
    detail: str = ""
    """For people, such as ``activations to rank 2``."""
