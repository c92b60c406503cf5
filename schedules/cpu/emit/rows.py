"""Rows of NCHW planes, as a vector of results reads them: here in place; ``staging`` has those in scratch memory.

With a strided gradient the results of a row have ``down`` column phases. ``down`` neighbouring columns, one of each
phase, are a cell, and vectors begin where cells do: then the lanes of a vector read neighbouring columns of the source
in both passes. Without a strided gradient a cell is a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dwconv.schedules.cpu.emit.lanes import load_columns, row_of, shuffle
from dwconv.schedules.cpu.emit.vectors import Vectors
from dwconv.schedules.emit import Expr, bind
from dwconv.schedules.taps import Axis


@dataclass(frozen=True)
class Plane:
    """One channel of one image; in 3-D, at one depth."""

    image: Expr
    channel: Expr
    depth: Expr | None = None

    def next(self, number: Expr) -> Plane:
        """The plane that comes ``number`` channels later."""
        return Plane(self.image, self.channel + number, self.depth)

    def at_depth(self, depth: Expr) -> Plane:
        """In 2-D the same plane."""
        return self if self.depth is None else Plane(self.image, self.channel, depth)

    def row(self, row: Expr) -> tuple[Expr, ...]:
        """The indices of a row in a tensor."""
        return (self.image, self.channel, row) if self.depth is None else (self.image, self.channel, self.depth, row)


class Rows(Protocol):
    """Where the rows of some planes are read."""

    def row(self, number: Expr, row: Expr, cell: Expr, *, is_tested: bool = False) -> Row:
        """Row ``row`` of the ``number``-th plane, for the results in the cells from ``cell`` on, one a lane.
        ``is_tested``: whether it is only known when the kernel runs which of what they read is padding."""
        ...

    def at_depth(self, depth: Expr) -> Rows:
        """The same rows of the planes at another depth."""
        ...


class Row(Protocol):
    """A row of a plane, as far as a vector of results reads it."""

    def load(self, at: Any) -> Expr | None:
        """The columns that the results meet ``at`` columns from their origin; None where all of them are padding. An
        expression only where a part of a row is staged."""
        ...


@dataclass(frozen=True)
class InPlace:
    """Rows read where they are; at the edges the lanes that would be padding are zero."""

    vectors: Vectors
    axis: Axis
    tensor: Any
    first: Plane

    def row(self, number: Expr, row: Expr, cell: Expr, *, is_tested: bool = False) -> Row:
        tensor, place = row_of(self.tensor, self.first.next(number).row(row))
        return RowInPlace(self, tensor, place, cell * self.axis.up, is_tested, {})

    def at_depth(self, depth: Expr) -> InPlace:
        return InPlace(self.vectors, self.axis, self.tensor, self.first.at_depth(depth))


@dataclass(frozen=True)
class RowInPlace:
    """With a stride, neighbouring lanes read columns apart: all columns in between are loaded, and split by phase once
    for all that is read of them."""

    rows: InPlace
    tensor: Any
    place: Sequence[Expr]
    """The indices before that of the column: (image, channel, row), or (image, channel, depth, row), or none."""
    origin: Expr
    is_tested: bool
    loaded: dict[int, Expr | None]

    def load(self, at: int) -> Expr | None:
        if at not in self.loaded:
            self.loaded.update(zip(range(at, at + self.rows.axis.up), self._phases(at), strict=False))
        return self.loaded[at]

    def _phases(self, at: int) -> Sequence[Expr | None]:
        """The columns from ``at`` on, by phase: as many as are read, for one more could be no memory of ours."""
        vectors, axis = self.rows.vectors, self.rows.axis
        phases = min(axis.up, axis.reach[1] - at + 1)
        last = axis.up * (vectors.lanes - 1) + phases - vectors.lanes
        starts = [*range(0, last, vectors.lanes), last]
        columns = [self.origin + at + start for start in starts]
        tensor, is_tested = self.tensor, self.is_tested
        parts = [load_columns(vectors, tensor, self.place, column, is_tested=is_tested) for column in columns]
        if len(parts) == 1 or all(part is None for part in parts):
            return parts if len(parts) == 1 else [None] * phases
        values = [vectors.zero() if part is None else bind("loaded", part) for part in parts]
        lanes = [[_lane_of(starts, phase + axis.up * lane, vectors.lanes) for lane in range(vectors.lanes)]
                 for phase in range(phases)]  # fmt: skip
        return [shuffle(values, places) for places in lanes]


def _lane_of(starts: Sequence[int], column: int, lanes: int) -> int:
    """Where the vectors that begin at columns ``starts`` hold ``column``, all lanes counted one after the other."""
    vector = max(number for number, start in enumerate(starts) if start <= column)
    return vector * lanes + column - starts[vector]
