"""What the warps of a block ask of memory at a time: sectors and lines of global memory, turns of shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

SECTOR_BYTES = 32
LINE_BYTES = 128
WARP = 32
BANKS = 32
BANK_BYTES = 4

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Sums over warps."""

    sectors: float
    lines: float
    ideal: float
    """Sectors, if the words of a warp lay side by side."""


def sectors_asked(address: Array, active: Array, *, width: int) -> Asked:
    """One access of ``width`` bytes by each active thread; both arrays in the order of threads, whole warps."""
    ordered = np.sort(np.where(active, address, -1).reshape(-1, WARP), axis=1)
    words = _firsts(ordered).sum(axis=1) * width
    sectors = np.where(ordered < 0, -1, ordered // SECTOR_BYTES)
    lines = np.where(ordered < 0, -1, ordered // LINE_BYTES)
    return Asked(
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
            turns, least = turns + of_warp[0], least + of_warp[1]
    return turns, least


@lru_cache(maxsize=65536)
def _turns_of_a_warp(relative: bytes, takes_part: bytes, width: int) -> tuple[int, int]:
    """Wide accesses go in halves or quarters of a warp; words of one bank one after the other, the same word at once. A
    constant offset changes nothing, so ``relative`` is without."""
    lanes = np.nonzero(np.frombuffer(takes_part, np.bool_))[0]
    words_each = max(1, width // BANK_BYTES)
    words = (np.frombuffer(relative, np.int64) // BANK_BYTES)[:, None] + np.arange(words_each)
    distinct = np.unique(words)
    least = -(-len(distinct) // BANKS)
    if len(distinct) <= BANKS and np.bincount(distinct % BANKS).max() == 1:
        return 1, least
    turns = 0
    for group in range(words_each):
        of_group = np.unique(words[lanes // (WARP // words_each) == group])
        turns += int(np.bincount(of_group % BANKS).max()) if len(of_group) else 0
    return turns, least
