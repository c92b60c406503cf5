"""How planes lie in shared memory, and in which order threads go over them: so that those of a warp meet in no bank.

neighbouring threads have        "tiles"                 "planes"                "even planes"
                            ┌────────┬────────┬──   ┌────────┬────────┬──   ┌────────┬────────┬──
the tiles of a plane, or    │ t0  t1 │ t4  t5 │     │ t0     │ t1     │     │ t0     │ t32    │     even planes first:
the same tile of planes     │ t2  t3 │ t6  t7 │     │        │        │     │        │        │     an odd number of
                            └────────┴────────┴──   └────────┴────────┴──   └────────┴────────┴──   halves is no word

Plain integers, no TVM here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

from dwconv.problems.workload import ITEMSIZE, DType
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, BANKS, LEAST_COPY_BYTES, VECTOR_BYTES, WARP
from dwconv.schedules.cuda.gpu.memory import WARPS_SEEN, turns

MOST_PAD_BYTES = 128
MOST_TURNS = 1.05
"""Turns of shared memory, over the fewest, that count as none too many."""

Neighbours = Literal["tiles", "planes", "even planes"]


@dataclass(frozen=True, kw_only=True)
class HeldPlanes:
    """Planes of one tensor in shared memory: as they lie in global memory, or with a pad after each."""

    elements: int
    """Elements of a plane."""
    pad: int
    """Unused elements after each plane."""
    lanes: int
    """Lanes of the vectors in which a thread reads or writes them: its first element is at a multiple."""
    copied_lanes: int
    """Lanes of the vectors in which they are copied from or to global memory; one vector in shared memory, too, or
    threads would meet in its banks."""
    turns: float
    """That shared memory takes for what a warp reads or writes of them, over the fewest there could be."""

    @property
    def pitch(self) -> int:
        return self.elements + self.pad

    def place(self, item: Any) -> Any:
        """Where the copied vector with that number, an int or an expression, stands in shared memory."""
        at = item * self.copied_lanes
        return at + item // (self.elements // self.copied_lanes) * self.pad if self.pad else at


@dataclass(frozen=True, kw_only=True)
class PlaneShape:
    """A tensor's planes."""

    elements: int
    columns: int
    """Columns of a row."""
    down: int
    """Elements from a tile to the one below."""
    across: int
    """To the one beside it."""


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """The threads of a block: each has one of the tiles of a plane, in ``thread_planes`` neighbouring planes."""

    thread_planes: int
    tiles_h: int
    tiles_w: int
    groups: int
    """Groups of ``thread_planes`` planes that are copied together."""
    images: int
    """Each with groups of its own."""
    channels: int
    """Channels of an image; those of a block are copied together, and the first of these can be any multiple of
    them."""
    held: DType
    """The type in shared memory."""
    even_first: bool
    """Whether threads may go over even planes first: nothing else that they read has the planes' order."""
    written: bool = False
    """Whether threads write tiles while others read theirs: then no vector may have parts of two threads' tiles."""

    @property
    def plane_threads(self) -> int:
        return self.tiles_h * self.tiles_w

    @property
    def units(self) -> int:
        return self.images * self.groups

    def counts(self, neighbours: Neighbours) -> tuple[int, int]:
        """Threads of a block: (how often side by side, how many neighbours)."""
        return (self.units, self.plane_threads) if neighbours == "tiles" else (self.plane_threads, self.units)


def place_of(neighbours: Neighbours, outer: Any, inner: Any, *, units: int) -> tuple[Any, Any]:
    """(group of planes, tile) of a thread, from its numbers on both axes: ints or expressions."""
    if neighbours == "tiles":
        return outer, inner
    if neighbours == "even planes":
        half = units // 2
        return inner % half * 2 + inner // half, outer
    return inner, outer


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How the planes of one or two tensors lie, in shared memory at the same time or one after the other."""

    neighbours: Neighbours
    held: tuple[HeldPlanes, ...]

    @property
    def turns(self) -> float:
        return max(held.turns for held in self.held)


@lru_cache(maxsize=16384)
def laid_out(tiling: Tiling, *tensors: PlaneShape) -> Layout:
    """The widest copies, in the first order of threads, with which shared memory takes the fewest turns."""
    found: dict[Neighbours, Layout] = {}
    for copied_bytes in (VECTOR_BYTES, VECTOR_BYTES // 2, LEAST_COPY_BYTES):
        for neighbours in _orders(tiling):
            wider = found[neighbours].held if neighbours in found else (None,) * len(tensors)
            held = tuple(
                _lay(tiling, tensor, neighbours, copied_bytes=copied_bytes, wider=best)
                for tensor, best in zip(tensors, wider, strict=True)
            )
            found[neighbours] = Layout(neighbours=neighbours, held=held)
            if found[neighbours].turns <= MOST_TURNS:
                return found[neighbours]
    return min(found.values(), key=lambda layout: layout.turns)


def _orders(tiling: Tiling) -> Iterator[Neighbours]:
    for neighbours in get_args(Neighbours):
        single = tiling.plane_threads == 1 and neighbours == "planes"  # the same as the first
        uneven = neighbours == "even planes" and (tiling.groups % 2 != 0 or not tiling.even_first)
        if not single and not uneven:
            yield neighbours


def _lay(
    tiling: Tiling, tensor: PlaneShape, neighbours: Neighbours, *, copied_bytes: int, wider: HeldPlanes | None
) -> HeldPlanes:
    """With the pad that makes threads meet in the fewest banks, in copies of so many bytes; ``wider`` ones are better
    if they are as good."""
    best = wider
    for copied, pad in _pads(tiling, tensor, copied_bytes):
        if best is not None and best.turns <= MOST_TURNS:
            break
        lanes = _lanes(tiling, tensor, pad)
        taken = turns_of(tiling, tensor, neighbours, pad=pad, lanes=lanes, most_groups=1)
        if taken <= MOST_TURNS:  # else the others are no better
            taken = turns_of(tiling, tensor, neighbours, pad=pad, lanes=lanes)
        if best is None or taken < best.turns:
            best = HeldPlanes(elements=tensor.elements, pad=pad, lanes=lanes, copied_lanes=copied, turns=taken)
    assert best is not None
    return best


def _pads(tiling: Tiling, tensor: PlaneShape, copied_bytes: int) -> Iterator[tuple[int, int]]:
    """(elements copied at a time, pad). No vector may lie in two planes that are apart."""
    size, elements = ITEMSIZE[tiling.held], tensor.elements
    together = math.gcd(tiling.groups * tiling.thread_planes * elements, tiling.channels * elements)
    if copied_bytes == VECTOR_BYTES:
        yield math.gcd(together, VECTOR_BYTES // size), 0
    copied, side_by_side = copied_bytes // size, BANKS * BANK_BYTES // copied_bytes
    # Copies meet where a warp's go on behind a pad; in small planes that would be often.
    if copied and elements % copied == 0 and elements // copied >= 2 * side_by_side:
        for pad in range(copied, MOST_PAD_BYTES // size, copied):
            if copied_bytes == VECTOR_BYTES or pad % (2 * copied):  # else wider copies had it
                yield copied, pad


def _lanes(tiling: Tiling, tensor: PlaneShape, pad: int) -> int:
    steps = [tiling.thread_planes * (tensor.elements + pad)]
    # The last vector of a plane must not reach into what was not written, nor into what another thread writes.
    if pad or (tiling.written and tiling.plane_threads > 1):
        steps.append(tensor.elements)
    if tiling.thread_planes > 1 and pad:
        steps.append(pad)
    if tiling.tiles_h > 1:
        steps.append(tensor.down)
    if tiling.tiles_w > 1:
        steps += [tensor.across, tensor.columns]
    return math.gcd(*steps, VECTOR_BYTES // ITEMSIZE[tiling.held])


def turns_of(
    tiling: Tiling, tensor: PlaneShape, neighbours: Neighbours, *, pad: int, lanes: int, most_groups: int = WARP
) -> float:
    """Turns that shared memory takes where each thread reads a vector of ``lanes``, over the fewest there could be: one
    for each group of threads that together access 128 bytes."""
    size = ITEMSIZE[tiling.held]
    units = tiling.units
    if neighbours == "tiles":
        units = min(units, -(-WARPS_SEEN * WARP // tiling.plane_threads))
    elif units % (2 * WARP) == 0:  # all warps are alike
        units = 2 * WARP
    steps = tiling.thread_planes * (tensor.elements + pad) * size, tensor.down * size, tensor.across * size
    order = tiling.tiles_w, tiling.plane_threads, units, neighbours
    return _turns(order, steps, width=lanes * size, size=size, most_groups=most_groups)


Order = tuple[int, int, int, Neighbours]
"""In which order threads go over a block: tiles of a row, threads of a plane, groups of planes."""


@lru_cache(maxsize=65536)
def _turns(order: Order, steps: tuple[int, int, int], *, width: int, size: int, most_groups: int) -> float:
    """``turns_of``; ``steps``: from a group of planes, a row of tiles, a tile to the next. All in bytes: many tilings
    and pads come to the same here."""
    vector = max(width, BANK_BYTES)
    served = BANKS * BANK_BYTES // vector
    starts = _starts(order)[: most_groups * served]
    at = [unit * steps[0] + row * steps[1] + column * steps[2] for unit, row, column in starts]
    taken = groups = 0
    # Where a vector is part of a word, it matters which part.
    for offset in range(0, BANK_BYTES, size) if width < BANK_BYTES else (0,):
        for first in range(0, len(at), served):
            # Vectors are aligned: two of them use the same banks, or none in common.
            taken += turns(((start + offset) // vector for start in at[first : first + served]), banks=served)
            groups += 1
    return taken / groups


@lru_cache(maxsize=4096)
def _starts(order: Order) -> list[tuple[int, int, int]]:
    """(group of planes, row and column of the tile) of the first threads of a block."""
    found, (tiles_w, plane_threads, units, neighbours) = [], order
    inner = plane_threads if neighbours == "tiles" else units
    for number in range(min(units * plane_threads, WARPS_SEEN * WARP)):
        unit, tile = place_of(neighbours, *divmod(number, inner), units=units)
        found.append((unit, *divmod(tile, tiles_w)))
    return found
