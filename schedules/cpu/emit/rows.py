"""Rows of NCHW planes, as a vector of results reads them: in place, or staged in scratch memory.

With a strided gradient the results of a row have ``down`` column phases. ``down`` neighbouring columns, one of each
phase, are a cell, and vectors begin where cells do: then the lanes of a vector read neighbouring columns of the source
in both passes. Without a strided gradient a cell is a column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tvm import tirx

from dwconv.schedules.cpu.emit.vectors import Vectors, extent, lanes_from, load_columns, row_of, shuffle, split_by_phase
from dwconv.schedules.cpu.emit.words import load, load_lanes, scratch
from dwconv.schedules.emit import Expr, bind, ceil_div, divided, least, most, serial, store, when
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


Row = Callable[[Any], "Expr | None"]
"""A row of a plane, as far as a vector of results reads it: the columns that the results meet so many columns from
their origin; None where all of them are padding. An expression only where a part of a row is staged."""


class ReadRows(Protocol):
    """Where the rows of some planes are read."""

    def row(self, number: Expr, row: Expr, cell: Expr, *, is_tested: bool = False) -> Row:
        """Row ``row`` of the ``number``-th plane, for the results in the cells from ``cell`` on, one a lane.
        ``is_tested``: whether it is only known when the kernel runs which of what they read is padding."""
        ...

    def at_depth(self, depth: Expr) -> ReadRows:
        """These rows of the planes at another depth. Only planes of 2-D are staged."""
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
        return RowInPlace(self, tensor, place, cell * self.axis.up, is_tested, {}).load

    def at_depth(self, depth: Expr) -> InPlace:
        return replace(self, first=self.first.at_depth(depth))


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
        if phases == axis.up:
            return split_by_phase(vectors, values)
        lanes = [[_lane_of(starts, phase + axis.up * lane, vectors.lanes) for lane in range(vectors.lanes)]
                 for phase in range(phases)]  # fmt: skip
        return [shuffle(values, places) for places in lanes]


def _lane_of(starts: Sequence[int], column: int, lanes: int) -> int:
    """Where the vectors that begin at columns ``starts`` hold ``column``, all lanes counted one after the other."""
    vector = max(number for number, start in enumerate(starts) if start <= column)
    return vector * lanes + column - starts[vector]


@dataclass(frozen=True, kw_only=True)
class StagedPlanes:
    """Scratch memory of a task: so many rows of each of some planes, with zeros at both sides, split by phase."""

    vectors: Vectors
    axis: Axis
    rows: int
    planes: int
    memory: Any
    top: Expr = 0
    """The row that it holds first."""

    @classmethod
    def of(
        cls, rows: Axis, columns: Axis, *, vectors: Vectors, block_rows: int, planes: int = 1, tile: int = 1
    ) -> StagedPlanes:
        """Emits the memory, all zeros, for what ``block_rows`` rows of results read in tiles of ``tile`` vectors."""
        count, phases, lanes = rows.spanned(block_rows)[1], columns.up, vectors.lanes
        left, (_, farthest) = _columns_before(columns, lanes), columns.reach
        cells = _round_up(-(-columns.outputs // columns.down), lanes)
        if not isinstance(cells, int):  # of the last tile, vectors may lie beyond
            cells += (tile - 1) * lanes
        read = cells + (farthest + left) // phases
        written = (left + _round_up(columns.inputs, phases * lanes)) // phases
        pitch = _round_up(most(read, written), lanes)
        memory = scratch("staged", planes * phases, count, pitch)
        for phase in serial("phase", planes * phases):
            for row in serial("row", count):
                for vector in serial("vector", pitch // lanes):
                    store(memory, vectors.zero(), phase, row, vectors.slot(vector))
        return cls(vectors=vectors, axis=columns, rows=count, planes=planes, memory=memory)

    def fill(self, tensor: Any, first: Plane, top: Expr) -> StagedPlanes:
        """Copies the rows from ``top`` on, those that there are, of the planes from ``first`` on."""
        begin = bind("begin", most(top, 0))
        end = bind("end", least(top + self.rows, extent(tensor, -2)))
        for number in serial("plane", self.planes):
            for row in serial("row", begin, end):
                self._fill_row(tensor, first.next(number).row(row), number * self.axis.up, row - top)
        return replace(self, top=top)

    def row(self, number: Expr, row: Expr, cell: Expr, *, is_tested: bool = False) -> Row:
        def load(at: int) -> Expr:
            over, phase = divmod(at + _columns_before(self.axis, self.vectors.lanes), self.axis.up)
            return self.memory[number * self.axis.up + phase, row - self.top, self.vectors.span(cell + over)]

        return load

    def at_depth(self, depth: Expr) -> StagedPlanes:
        return self

    def _fill_row(self, tensor: Any, source: tuple[Expr, ...], phase: Expr, row: Expr) -> None:
        whole, left_over = divided(self.axis.inputs, self.axis.up * self.vectors.lanes)
        for turn in serial("chunk", whole):
            self._copy_chunk(tensor, source, phase, row, turn)
        is_known = isinstance(left_over, int)
        if is_known and not left_over:
            return
        with when(is_known or left_over > 0):
            self._copy_chunk(tensor, source, phase, row, whole, is_tested=not is_known)

    def _copy_chunk(
        self, tensor: Any, source: tuple[Expr, ...], phase: Expr, row: Expr, turn: Expr, *, is_tested: bool = False
    ) -> None:
        vectors, phases = self.vectors, self.axis.up
        loaded = []
        for v in range(phases):
            value = load_columns(vectors, tensor, source, (turn * phases + v) * vectors.lanes, is_tested=is_tested)
            loaded.append(vectors.zero() if value is None else bind("loaded", value))
        column = _columns_before(self.axis, vectors.lanes) // phases + turn * vectors.lanes
        for number, value in enumerate(split_by_phase(vectors, loaded)):
            store(self.memory, value, phase + number, row, vectors.span(column))


def _columns_before(columns: Axis, lanes: int) -> int:
    """Columns of zeros before the first, in whole vectors."""
    return int(_round_up(max(0, -columns.reach[0]), columns.up * lanes))


@dataclass(frozen=True, kw_only=True)
class StagedSpan:
    """Scratch memory of a task: a part of a row of each of some planes, of a row that has no other beside it and is
    read without a stride. Zeros stand where the part is padding."""

    vectors: Vectors
    axis: Axis
    planes: int
    pitch: int
    """Columns of a part, in whole vectors."""
    tile: int
    """Results of a tile."""
    memory: Any
    first: Expr = 0
    """It holds what the results from here on read."""

    @classmethod
    def of(cls, columns: Axis, *, vectors: Vectors, results: int, planes: int, tile: int) -> StagedSpan:
        """Emits the memory, for what so many neighbouring results read."""
        pitch = int(_round_up(columns.spanned(_round_up(results, vectors.lanes))[1], vectors.lanes))
        memory = scratch("staged", planes, pitch)
        return cls(vectors=vectors, axis=columns, planes=planes, pitch=pitch, tile=tile, memory=memory)

    def fill(self, tensor: Any, plane: Plane, first: Expr) -> StagedSpan:
        """Copies what the results from column ``first`` on read, of the planes from ``plane`` on."""
        vectors, inputs = self.vectors, self.axis.inputs
        start = bind("start", first + self.axis.spanned(1)[0])
        for number in serial("plane", self.planes):
            row = plane.next(number).row(0)
            for vector in serial("vector", self._read_from(first)):
                column = bind("source_column", start + vector * vectors.lanes)
                is_whole = tirx.all(column >= 0, column + vectors.lanes <= inputs)
                with when(is_whole):
                    store(self.memory, load(tensor, *row, vectors.span(column)), number, vectors.slot(vector))
                with when(tirx.Not(is_whole)):
                    live = lanes_from(vectors, column, 0, inputs)
                    store(self.memory, load_lanes(tensor, live, *row, column), number, vectors.slot(vector))
        return replace(self, first=first)

    def row(self, number: Expr, row: Expr, cell: Expr, *, is_tested: bool = False) -> Row:
        def load(at: Expr) -> Expr:
            column = cell - self.first + at - self.axis.spanned(1)[0]
            return self.memory[number, self.vectors.span(column)]

        return load

    def at_depth(self, depth: Expr) -> StagedSpan:
        return self

    def _read_from(self, first: Expr) -> Expr:
        """Vectors that the results of a row from ``first`` on read: at any size, a part may be larger than the row."""
        most, outputs = self.pitch // self.vectors.lanes, self.axis.outputs
        if isinstance(outputs, int):
            return most
        read = _round_up(outputs - first, self.tile) + self.axis.spanned(1)[1] - 1
        return least(most, ceil_div(read, self.vectors.lanes))


def _round_up(size: Expr, multiple: int) -> Expr:
    return ceil_div(size, multiple) * multiple
