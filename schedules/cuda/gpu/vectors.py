"""Which vectors, aligned as the GPU wants them, bring or store some elements: (first element, lanes) each."""

from __future__ import annotations

import math
from collections.abc import Iterable

from dwconv.schedules.cuda.gpu.hardware import LINE_BYTES, SECTOR_BYTES, VECTOR_BYTES, WARP


def aligned_lanes(*steps: int, itemsize: int) -> int:
    """Lanes of the widest vector that starts at every multiple of all ``steps``."""
    return math.gcd(*steps, VECTOR_BYTES // itemsize)


def least_vectors(wanted: Iterable[int], lanes: int) -> list[tuple[int, int]]:
    """Aligned vectors that hold the ``wanted`` offsets: of each vector of ``lanes`` the smallest aligned part that
    does."""
    groups: dict[int, list[int]] = {}
    for at in sorted(wanted):
        groups.setdefault(at // lanes, []).append(at)
    pieces = []
    for held in groups.values():
        width = 1
        while held[0] // width != held[-1] // width:
            width *= 2
        pieces.append((held[0] // width * width, width))
    return pieces


def whole_vectors(wanted: Iterable[int], lanes: int) -> list[tuple[int, int]]:
    """The aligned vectors of ``lanes`` that hold ``wanted``, with whatever else is in them."""
    return [(group * lanes, lanes) for group in sorted({at // lanes for at in wanted})]


def exact_vectors(start: int, stop: int, lanes: int) -> list[tuple[int, int]]:
    """Aligned vectors, as wide as can be, that are ``start`` … ``stop − 1`` and nothing else."""
    pieces = []
    while start < stop:
        width = math.gcd(start, lanes)
        while start + width > stop:
            width //= 2
        pieces.append((start, width))
        start += width
    return pieces


def sector_bytes(row_bytes: int, *, whole: bool) -> int:
    """Bytes of memory that reading or writing ``row_bytes`` of a row moves: whole sectors. ``whole`` rows go
    on in the next."""
    return row_bytes if whole else -(-row_bytes // SECTOR_BYTES) * SECTOR_BYTES + SECTOR_BYTES // 2


def lines_of_warp(across: int, apart_bytes: float) -> float:
    """Lines of memory that a warp asks for whose threads lie ``across`` side by side, ``apart_bytes`` from one to the
    next, and then in other rows; rows begin anywhere in a line."""
    side_by_side = min(across, WARP)
    return WARP / side_by_side * (1 + (side_by_side * apart_bytes - 1) / LINE_BYTES)
