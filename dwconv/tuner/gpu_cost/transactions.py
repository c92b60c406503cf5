"""Requests of the warps of a block: sectors and lines of global memory, turns of shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, LINE_BYTES, SECTOR_BYTES, WARP
from dwconv.schedules.cuda.gpu.memory import Turns, turns_of_warp

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Requests:
    """Sums over warps."""

    sectors: float
    lines: float
    ideal: float
    """Sectors, if the words of a warp lay side by side."""


def sectors_of(address: Array, active: Array, *, width: int) -> Requests:
    """One access of ``width`` bytes by each active thread; both arrays in the order of threads, whole warps."""
    ordered = np.sort(np.where(active, address, -1).reshape(-1, WARP), axis=1)
    words = _firsts(ordered).sum(axis=1) * width
    sectors = np.where(ordered < 0, -1, ordered // SECTOR_BYTES)
    lines = np.where(ordered < 0, -1, ordered // LINE_BYTES)
    return Requests(
        sectors=float(_firsts(sectors).sum()),
        lines=float(_firsts(lines).sum()),
        ideal=float((-(-words // SECTOR_BYTES)).sum()),
    )


def _firsts(ordered: Array) -> Array:
    """True for the first of equals in each row; −1 is nothing."""
    return np.concatenate([ordered[:, :1] >= 0, (np.diff(ordered, axis=1) != 0) & (ordered[:, 1:] >= 0)], axis=1)


def shared_turns(address: Array, active: Array, *, width: int) -> tuple[int, int]:
    """(turns that shared memory takes, least turns for as many words), summed over warps."""
    turns = least = 0
    for lanes, takes_part in zip(address.reshape(-1, WARP), active.reshape(-1, WARP), strict=True):
        if takes_part.any():
            relative = lanes[takes_part] - lanes[takes_part].min()
            of_warp = _turns_of_a_warp(relative.tobytes(), takes_part.tobytes(), width)
            turns, least = turns + of_warp.taken, least + of_warp.least
    return turns, least


@lru_cache(maxsize=65536)
def _turns_of_a_warp(relative: bytes, takes_part: bytes, width: int) -> Turns:
    """A constant offset changes nothing, so ``relative`` is without."""
    words = iter((np.frombuffer(relative, np.int64) // BANK_BYTES).tolist())
    places = [next(words) if takes else None for takes in np.frombuffer(takes_part, np.bool_)]
    return turns_of_warp(places, words=max(1, width // BANK_BYTES))
