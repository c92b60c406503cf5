"""Memory as a GPU accesses it: aligned vectors, (first element, lanes) each, lines and sectors; and turns of shared
memory. Threads that access different words of one bank are served one after the other; wide accesses go in halves or
quarters of a warp, in which a vector of four words counts as one of eight wide banks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, BANKS, LINE_BYTES, SECTOR_BYTES, VECTOR_BYTES, WARP


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


def slots_of(pieces: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Where each element of vectors stands in registers, by offset: the widest first, so that all are aligned."""
    slots, end = dict[int, int](), 0
    for first, lanes in sorted(pieces, key=lambda piece: -piece[1]):
        slots.update({first + lane: end + lane for lane in range(lanes)})
        end += lanes
    return slots


def sector_bytes(row_bytes: int, *, whole: bool) -> int:
    """Bytes of memory that reading or writing ``row_bytes`` of a row moves: whole sectors. ``whole`` rows go
    on in the next."""
    return row_bytes if whole else -(-row_bytes // SECTOR_BYTES) * SECTOR_BYTES + SECTOR_BYTES // 2


def lines_of_warp(across: int, apart_bytes: float) -> float:
    """Lines of memory that a warp accesses whose threads lie ``across`` side by side, ``apart_bytes`` from one to the
    next, and then in other rows; rows begin anywhere in a line."""
    side_by_side = min(across, WARP)
    return WARP / side_by_side * (1 + (side_by_side * apart_bytes - 1) / LINE_BYTES)


# -- banks of shared memory ----------------------------------------------------------------------------------------

WARPS_SEEN = 4
"""Warps of a block that are looked at. Later ones meet as these do."""


def turns(vectors: Iterable[int], *, banks: int = BANKS) -> int:
    """Turns for one access of threads that access the words (or vectors of words) with these numbers, where there are
    ``banks`` banks as wide as they are; 0 for none."""
    met = [vector % banks for vector in set(vectors)]
    return min(1, len(met)) if len({*met}) == len(met) else max(Counter(met).values())


@dataclass(frozen=True, kw_only=True)
class Turns:
    """Turns that one access of a warp takes; of several warps, the mean."""

    taken: float
    least: float
    """For as many words, if no two were in one bank."""


def turns_of_warp(places: Sequence[int | None], *, words: int) -> Turns:
    """``words`` words for each thread of a warp, from its place on; None for a thread that takes no part."""
    everything = {place + word for place in places if place is not None for word in range(words)}
    least = -(-len(everything) // BANKS)
    if len(everything) <= BANKS and turns(everything) <= 1:
        return Turns(taken=least, least=least)
    together = WARP // words
    groups = [places[first : first + together] for first in range(0, len(places), together)]
    taken = sum(turns(at + word for at in group if at is not None for word in range(words)) for group in groups)
    return Turns(taken=taken, least=least)


def threads_places(threads: tuple[int, ...], *, apart: tuple[int, ...]) -> tuple[int, ...]:
    """Where the first threads of a block go, that lie on axes, the last one x, ``apart`` from one to the next."""
    places, most = [0], WARPS_SEEN * WARP
    for count, step in zip(reversed(threads), reversed(apart), strict=True):
        seen = min(count, -(-most // len(places)))
        places = [at + index * step for index in range(seen) for at in places][:most]
    return tuple(places)


@lru_cache(maxsize=4096)
def turns_of_threads(places: tuple[int, ...], *, itemsize: int, lanes: int = 1) -> Turns:
    """``lanes`` elements of ``itemsize`` bytes for each of a block's first threads, from its place on, an element's
    number. Lanes of more than a word are whole words."""
    words = max(1, lanes * itemsize // BANK_BYTES)
    at = [place * itemsize // BANK_BYTES for place in places]
    warps = [turns_of_warp(at[first : first + WARP], words=words) for first in range(0, len(at), WARP)]
    return Turns(
        taken=sum(warp.taken for warp in warps) / len(warps), least=sum(warp.least for warp in warps) / len(warps)
    )


@lru_cache(maxsize=4096)
def spread_words(held: int, *, threads: tuple[int, ...], words: tuple[tuple[int, ...], ...]) -> int:
    """Words from one row (or plane) in shared memory, which holds ``held`` words, to the next, so that the threads of a
    warp meet in as few banks as can be.

    ``threads`` lie on axes, the last one x. Each of ``words`` is a way in which they go there: how many words apart on
    each axis; on the first axis, that many rows apart.
    """
    found, least = held, math.inf
    for apart in range(held, held + BANKS):
        taken = sum(_turns_of_block(threads, (steps[0] * apart, *steps[1:])) for steps in words)
        if taken < least:
            found, least = apart, taken
    return found


def _turns_of_block(threads: tuple[int, ...], apart: tuple[int, ...]) -> int:
    places = threads_places(threads, apart=apart)
    return sum(turns(places[first : first + WARP]) for first in range(0, len(places), WARP))


@lru_cache(maxsize=4096)
def spread_vectors(
    rows: int, columns: int, *, lanes: int, unit: int, threads: tuple[int, int, int], steps: tuple[int, int]
) -> tuple[int, int]:
    """Words from a staged row, and from a staged plane, to the next, so that the threads that shared memory serves at
    a time (32, or 8 with vectors of 4) meet in as few banks as can be. Rows and planes begin at multiples of ``unit``.

    ``threads`` lie across columns, planes and rows; their reads are ``steps`` columns and rows apart.
    """
    served = BANKS // lanes
    across, planes, down = threads

    def most_turns(row: int, plane: int) -> int:
        places = [
            thread % across * steps[0] + thread // across % planes * plane + thread // across // planes * steps[1] * row
            for thread in range(WARP)
        ]
        groups = (places[first : first + served] for first in range(0, WARP, served))
        return max(turns((place // lanes for place in group), banks=served) for group in groups)

    found, least = (columns, rows * columns), BANKS + 1
    for row in range(columns, columns + (BANKS if down > 1 else 1), unit):
        for plane in range(rows * row, rows * row + BANKS, unit):
            most = most_turns(row, plane)
            if most < least and (least == BANKS + 1 or planes * plane <= planes * found[1] * 1.25):
                found, least = (row, plane), most
            if least == 1:
                return found
    return found
