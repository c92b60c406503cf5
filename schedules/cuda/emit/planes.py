"""Whole planes in shared memory: which thread has which part, and rows read across the ends of rows.

Threads go over a block's planes in the order in which those of a warp meet in no bank; vectors take no notice of where
rows begin and end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dwconv.schedules.cuda.emit.sliding_sum import SourceRow
from dwconv.schedules.cuda.emit.words import Registers, span, threads, zero
from dwconv.schedules.cuda.gpu.plane_layout import Neighbours, Tiling, place_of
from dwconv.schedules.cuda.gpu.vectors import whole_vectors
from dwconv.schedules.emit import Expr, when


def threads_of_planes(tiling: Tiling, neighbours: Neighbours) -> Iterator[tuple[Expr, Expr, Expr]]:
    """(the planes it has, its tile of them, its number in the block) of a thread."""
    down, across = tiling.counts(neighbours)
    names = ("unit", "tile") if neighbours == "tiles" else ("tile", "unit")
    for outer in threads(names[0], down, axis="y"):
        for inner in threads(names[1], across):
            unit, tile = place_of(neighbours, outer, inner, units=tiling.units)
            yield unit, tile, outer * across + inner


def read_row(
    planes: Any, columns: Sequence[int], *, lanes: int, start: Expr, first: int, exists: Callable[[int, int], Expr]
) -> SourceRow:
    """``columns`` of the row whose column 0 is the element ``first`` after ``start``, which is a multiple of ``lanes``:
    the vectors that hold them. Zero where ``exists(column, lanes)`` does not hold of a vector."""
    read = whole_vectors([first + column for column in columns], lanes)
    values = Registers("value", len(read) * lanes, dtype=planes.dtype)
    slots: dict[int, int] = {}
    for number, (piece, _) in enumerate(read):
        slot = number * lanes
        slots.update({piece + lane - first: slot + lane for lane in range(lanes)})
        there = exists(piece - first, lanes)
        if there is not True:
            for lane in range(lanes):
                values[slot + lane] = zero(values.dtype)
        with when(there):
            values.put(slot, planes[span(start + piece, lanes)], lanes=lanes)
    return SourceRow(values=values, slots=slots, alone=frozenset(slots) if lanes == 1 else frozenset())
