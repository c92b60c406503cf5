"""The patch of the source under a block tile, staged in shared memory, fprop or dgrad, NHWC, CUDA. No TVM here.

┌─ halo ──────────────┐
│ ┌─────────────────┐ │     A pixel of the patch is the block's channels, one after the other. Threads copy it in
│ │   block tile    │ │     vectors: neighbours those of a pixel, then those of pixels on their right, then below.
│ └─────────────────┘ │     Padding is filled with zeros, so that reads need no test.
└─────────────────────┘
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, WARP
from dwconv.schedules.cuda.gpu.memory import Turns, turns_of_warp

PITCHES = 8
"""Distances between rows that are tried, for the banks."""
LITTLE_NOTICED = 1.2
"""Times as long for bank conflicts among copies, which are a small part of all accesses."""


@dataclass(frozen=True, kw_only=True)
class PatchSide:
    """Rows or columns of the patch."""

    first: int
    """Counted from the origin of the block's first strip."""
    count: int


@dataclass(frozen=True, kw_only=True)
class Patch:
    rows: PatchSide
    columns: PatchSide
    channels: int
    """Elements of a pixel."""
    lanes: int
    """Elements that a thread copies at a time."""
    pitch: int
    """Elements from one row to the next: those it holds, and a few more for the banks."""
    read_turns: Turns
    """Turns of a warp whose threads read a vector each."""
    across: int
    """Pixels of a row that threads copy at a time, and …"""
    down: int
    """… rows."""

    @property
    def elements(self) -> int:
        return self.rows.count * self.pitch

    @property
    def vectors(self) -> int:
        return self.channels // self.lanes

    @property
    def turns(self) -> tuple[int, int]:
        """(down, across)."""
        return -(-self.rows.count // self.down), -(-self.columns.count // self.across)

    @property
    def turns_in_all(self) -> int:
        return math.prod(self.turns)


@lru_cache(maxsize=4096)
def fetchers(
    pixels: int, rows: int, columns: int, *, vectors: int, copy_bytes: int, pitch_bytes: int
) -> tuple[int, int]:
    """How ``pixels`` threads lie on a patch, (across, down), so that they are soon done, without meeting in banks too
    often; across as far as they can. Each pixel takes ``vectors`` of them."""
    if pixels < 1 or rows < 1 or columns < 1:
        return 1, 1

    def turns(across: int) -> int:
        return -(-columns // across) * -(-rows // (pixels // across))

    def conflicts(across: int) -> float:
        places = [
            (pixel // across * pitch_bytes + (pixel % across * vectors + vector) * copy_bytes) // BANK_BYTES
            for pixel in range(across * min(rows, pixels // across))
            for vector in range(vectors)
        ]
        warps = [places[first : first + WARP] for first in range(0, len(places), WARP)]
        met = [turns_of_warp(warp, words=max(1, copy_bytes // BANK_BYTES)) for warp in warps]
        times = sum(each.taken for each in met) / sum(each.least for each in met)
        return times if times > LITTLE_NOTICED else 1.0

    best, least = 1, math.inf
    for across in sorted(range(min(pixels, columns), 0, -1), key=turns):
        if turns(across) >= least:
            break
        if (taken := turns(across) * conflicts(across)) < least:
            best, least = across, taken
    return best, min(rows, pixels // best)


@lru_cache(maxsize=4096)
def row_pitch(
    held: int,
    *,
    step: int,
    lane_bytes: int,
    threads: tuple[int, int, int],
    rows_apart: int,
    bytes_apart: tuple[int, int],
) -> tuple[int, Turns]:
    """Bytes from one row to the next, ``held`` and a few steps more, and the turns of a read, the fewest that there
    are."""
    _, y, x = threads

    def turns(pitch: int) -> Turns:
        places = [
            (thread // (x * y) * rows_apart * pitch + thread // x % y * bytes_apart[0] + thread % x * bytes_apart[1])
            for thread in range(min(WARP, math.prod(threads)))
        ]
        return turns_of_warp([place // BANK_BYTES for place in places], words=max(1, lane_bytes // BANK_BYTES))

    found = {pitch: turns(pitch) for pitch in range(held, held + PITCHES * step, step)}
    best = min(found, key=lambda pitch: found[pitch].taken)
    return best, found[best]
