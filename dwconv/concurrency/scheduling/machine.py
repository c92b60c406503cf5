"""The machine that a schedule is made for, as plain numbers: cores, and what handing over and changing counts cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ExtraSlots:
    """Places beside the cores where one-thread tasks run while the cores are busy: second hardware threads of the
    cores, or a second stream of a GPU."""

    count: int = 0
    slowdown: float = 1.0
    """How many times as long a task takes there as alone on a core."""
    neighbour_slowdown: float = 1.0
    """How many times as long a task takes on the cores while an extra slot is busy."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What list scheduling needs to know."""

    cores: int
    handover_us: float = 0.0
    """From the end of a task until a task that waits for it begins on another worker."""
    change_us: float = 0.0
    """By how much a task takes longer if its worker ran with another number of threads before."""
    slots: ExtraSlots = ExtraSlots()
