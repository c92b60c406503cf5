"""Rows of NCHW planes, as a vector of results reads them: in place, or staged in scratch memory.

With a strided gradient the results of a row have ``down`` column phases. ``down`` neighbouring columns, one of each
phase, are a cell, and vectors begin where cells do: then the lanes of a vector read neighbouring columns of the source
in both passes. Without a strided gradient a cell is a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class Staging:
    """How ``rows`` rows of each of some planes lie in scratch memory."""

    vectors: Vectors
    axis: Axis
    rows: int
    planes: int
    tile: int
    """Vectors of a tile."""

    @classmethod
    def of(
        cls, rows: Axis, columns: Axis, *, vectors: Vectors, block_rows: int, planes: int = 1, tile: int = 1
    ) -> Staging:
        """For the rows that ``block_rows`` rows of results read."""
        return cls(vectors=vectors, axis=columns, rows=rows.spanned(block_rows)[1], planes=planes, tile=tile)

    @property
    def phases(self) -> int:
        return self.axis.up

    @property
    def left(self) -> int:
        """Columns of zeros before the first, in whole vectors."""
        nearest, _ = self.axis.reach
        return _round_up(max(0, -nearest), self.phases * self.vectors.lanes)

    @property
    def pitch(self) -> Expr:
        """Columns of a phase of a row."""
        _, farthest = self.axis.reach
        cells = _round_up(-(-self.axis.outputs // self.axis.down), self.vectors.lanes)
        if not isinstance(cells, int):  # of the last tile, vectors may lie beyond
            cells += (self.tile - 1) * self.vectors.lanes
        read = cells + (farthest + self.left) // self.phases
        written = (self.left + _round_up(self.axis.inputs, self.phases * self.vectors.lanes)) // self.phases
        return _round_up(most(read, written), self.vectors.lanes)

    def allocate(self) -> StagedPlanes:
        """Emits scratch memory of this task, all zeros."""
        memory = scratch("staged", self.planes * self.phases, self.rows, self.pitch)
        for phase in serial("phase", self.planes * self.phases):
            for row in serial("row", self.rows):
                for vector in serial("vector", self.pitch // self.vectors.lanes):
                    store(memory, self.vectors.zero(), phase, row, self.vectors.slot(vector))
        return StagedPlanes(self, memory)


@dataclass(frozen=True)
class StagedPlanes:
    """The scratch memory of a task, for one block of rows after the other."""

    staging: Staging
    memory: Any

    def fill(self, tensor: Any, first: Plane, top: Expr) -> StagedRows:
        """Copies the rows from ``top`` on, those that there are, of the planes from ``first`` on."""
        begin = bind("begin", most(top, 0))
        end = bind("end", least(top + self.staging.rows, extent(tensor, -2)))
        for number in serial("plane", self.staging.planes):
            for row in serial("row", begin, end):
                self._fill_row(tensor, first.next(number).row(row), number * self.staging.phases, row - top)
        return StagedRows(self, top)

    def _fill_row(self, tensor: Any, source: tuple[Expr, ...], phase: Expr, row: Expr) -> None:
        chunk = self.staging.phases * self.staging.vectors.lanes
        whole, left_over = divided(self.staging.axis.inputs, chunk)
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
        vectors, phases = self.staging.vectors, self.staging.phases
        loaded = []
        for v in range(phases):
            column = (turn * phases + v) * vectors.lanes
            value = load_columns(vectors, tensor, source, column, is_tested=is_tested)
            loaded.append(vectors.zero() if value is None else bind("loaded", value))
        for number, value in enumerate(split_by_phase(vectors, loaded)):
            column = self.staging.left // phases + turn * vectors.lanes
            store(self.memory, value, phase + number, row, vectors.span(column))


@dataclass(frozen=True)
class StagedRows:
    """Rows read from scratch memory, which holds them from row ``top`` on."""

    planes: StagedPlanes
    top: Expr

    def row(self, number: Expr, row: Expr, cell: Expr, *, is_tested: bool = False) -> Row:
        return StagedRow(self, number, row, cell)

    def at_depth(self, depth: Expr) -> StagedRows:
        """Only planes of 2-D are staged."""
        return self


@dataclass(frozen=True)
class StagedRow:
    """A row in scratch memory."""

    rows: StagedRows
    plane: Expr
    """The number of its plane among those that are staged."""
    row: Expr
    cell: Expr

    def load(self, at: int) -> Expr:
        staging = self.rows.planes.staging
        over, phase = divmod(at + staging.left, staging.phases)
        place = self.plane * staging.phases + phase
        return self.rows.planes.memory[place, self.row - self.rows.top, staging.vectors.span(self.cell + over)]


@dataclass(frozen=True, kw_only=True)
class SpanStaging:
    """How a part of a row of each of some planes lies in scratch memory, a row that has no other beside it and is read
    without a stride. Zeros stand where the part is padding."""

    vectors: Vectors
    axis: Axis
    planes: int
    pitch: int
    """Columns of a part, in whole vectors."""
    tile: int
    """Results of a tile."""

    @classmethod
    def of(cls, columns: Axis, *, vectors: Vectors, results: int, planes: int, tile: int) -> SpanStaging:
        """For what so many neighbouring results read."""
        pitch = _round_up(columns.spanned(_round_up(results, vectors.lanes))[1], vectors.lanes)
        return cls(vectors=vectors, axis=columns, planes=planes, pitch=pitch, tile=tile)

    def read_from(self, first: Expr) -> Expr:
        """Vectors that the results of a row from ``first`` on read: at any size, a part may be larger than the row."""
        most, outputs = self.pitch // self.vectors.lanes, self.axis.outputs
        if isinstance(outputs, int):
            return most
        read = _round_up(outputs - first, self.tile) + self.axis.spanned(1)[1] - 1
        return least(most, ceil_div(read, self.vectors.lanes))

    def allocate(self) -> StagedSpan:
        """Emits scratch memory of this task."""
        return StagedSpan(self, scratch("staged", self.planes, self.pitch), 0)


@dataclass(frozen=True)
class StagedSpan:
    """The scratch memory of a task; once it is filled, with what results from ``first`` on read."""

    staging: SpanStaging
    memory: Any
    first: Expr

    def fill(self, tensor: Any, plane: Plane, first: Expr) -> StagedSpan:
        """Copies what the results from column ``first`` on read, of the planes from ``plane`` on."""
        staging, vectors = self.staging, self.staging.vectors
        start = bind("start", first + staging.axis.spanned(1)[0])
        for number in serial("plane", staging.planes):
            row = plane.next(number).row(0)
            for vector in serial("vector", staging.read_from(first)):
                column = bind("source_column", start + vector * vectors.lanes)
                is_whole = tirx.all(column >= 0, column + vectors.lanes <= staging.axis.inputs)
                with when(is_whole):
                    store(self.memory, load(tensor, *row, vectors.span(column)), number, vectors.slot(vector))
                with when(tirx.Not(is_whole)):
                    live = lanes_from(vectors, column, 0, staging.axis.inputs)
                    store(self.memory, load_lanes(tensor, live, *row, column), number, vectors.slot(vector))
        return StagedSpan(staging, self.memory, first)

    def row(self, number: Expr, row: Expr, cell: Expr, *, is_tested: bool = False) -> Row:
        return StagedPart(self, number, cell)

    def at_depth(self, depth: Expr) -> StagedSpan:
        """Only planes of 2-D are staged."""
        return self


@dataclass(frozen=True)
class StagedPart:
    """A part of a row in scratch memory."""

    span: StagedSpan
    plane: Expr
    cell: Expr

    def load(self, at: Expr) -> Expr:
        staging = self.span.staging
        column = self.cell - self.span.first + at - staging.axis.spanned(1)[0]
        return self.span.memory[self.plane, staging.vectors.span(column)]


def _round_up(size: Expr, multiple: int) -> Expr:
    return ceil_div(size, multiple) * multiple
