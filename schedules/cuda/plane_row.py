"""Rows of planes that lie in shared memory, read in vectors that take no notice of where rows begin and end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dwconv.schedules.cuda.emit import Registers, span, zero
from dwconv.schedules.cuda.plane_tile import whole_vectors
from dwconv.schedules.cuda.sliding import SourceRow
from dwconv.schedules.emit import Expr, when


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
