"""Planes of NCHW tensors: vectors of neighbouring columns, cut off at the edges, and rows staged in scratch memory.

Where vectors begin is counted in groups: group q of a row of results is q·down … q·down + down − 1. Then the lanes of a
vector read neighbouring columns of the source in both passes, in a strided gradient too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dwconv.schedules.cpu.emit import Vectors
from dwconv.schedules.emit import Expr, bind, int32, least, most, serial, store
from dwconv.schedules.taps import Axis

# -- some lanes of a vector ------------------------------------------------------------------------------------------


def load_columns(vectors: Vectors, tensor: Any, row: Sequence[Expr], column: Expr) -> Expr | None:
    """The columns from ``column`` on of a row of ``tensor``, zeros outside; None if no lane is inside.

    A vector at an edge has a known ``column``; any other lies inside."""
    columns = int(tensor.shape[-1])
    first, stop = 0, vectors.lanes
    if isinstance(column, int):
        first, stop = max(0, -column), min(vectors.lanes, columns - column)
    if first >= stop:
        return None
    if stop - first == vectors.lanes:
        return tensor[(*row, vectors.span(column))]
    address = T.address_of(tensor[(*row, column)])
    live = _lanes_between(vectors, first, stop)
    return T.call_llvm_pure_intrin(vectors.dtype, "llvm.masked.load", address, live, vectors.zero())


def store_columns(vectors: Vectors, tensor: Any, value: Expr, row: Sequence[Expr], column: Expr) -> None:
    """The lanes of ``value`` that are columns of ``tensor``, from ``column`` on."""
    columns = int(tensor.shape[-1])
    stop = min(vectors.lanes, columns - column) if isinstance(column, int) else vectors.lanes
    if stop == vectors.lanes:
        store(tensor, value, *row, vectors.span(column))
    elif stop > 0:
        address = T.address_of(tensor[(*row, column)])
        live = _lanes_between(vectors, 0, stop)
        T.evaluate(T.call_llvm_intrin("void", "llvm.masked.store", value, address, live))


def keep(vectors: Vectors, value: Expr, lanes: tuple[int, int] | None) -> Expr:
    """The lanes from the first up to the second of ``lanes``, zeros in the others; None is all."""
    return value if lanes is None else tirx.Select(_lanes_between(vectors, *lanes), value, vectors.zero())


def _lanes_between(vectors: Vectors, first: int, stop: int) -> Expr:
    lane = vectors.span(0)
    live = lane < vectors.splat(stop)
    return live if first == 0 else tirx.And(lane >= vectors.splat(first), live)


def interleave(vectors: Vectors, values: Sequence[Expr]) -> list[Expr]:
    """Vectors whose lanes one after the other are lane 0 of each of ``values``, lane 1 of each, and so on."""
    count, lanes = len(values), vectors.lanes
    if count == 1:
        return list(values)
    places = [at % count * lanes + at // count for at in range(count * lanes)]
    return [_shuffle(values, places[v * lanes : (v + 1) * lanes]) for v in range(count)]


def split_by_phase(vectors: Vectors, values: Sequence[Expr]) -> list[Expr]:
    """The other way round: of the lanes of ``values`` one after the other, every ``len(values)``-th, by phase."""
    count = len(values)
    if count == 1:
        return list(values)
    return [_shuffle(values, [lane * count + phase for lane in range(vectors.lanes)]) for phase in range(count)]


def total(vectors: Vectors, value: Expr) -> Expr:
    """The sum of all lanes, halves added to halves."""
    lanes = vectors.lanes
    while lanes > 1:
        lanes //= 2
        low, high = (_shuffle([value], list(range(first, first + lanes))) for first in (0, lanes))
        value = bind("half", low + high)
    return value


def _shuffle(values: Sequence[Expr], lanes: Sequence[int]) -> Expr:
    if len(lanes) == 1:
        return tirx.Shuffle(list(values), [int32(lanes[0])])
    return bind("shuffled", tirx.Shuffle(list(values), [int32(lane) for lane in lanes]))


# -- reading rows ----------------------------------------------------------------------------------------------------


class Rows(Protocol):
    """Where the rows of some planes are read."""

    def row(self, plane: Expr, row: Expr, group: Expr) -> Row:
        """A row for the results in the groups from ``group`` on, one a lane."""
        ...


class Row(Protocol):
    """A row of a plane, as far as a vector of results reads it."""

    def load(self, at: int) -> Expr | None:
        """What the results meet ``at`` columns from their origin. None where that is padding."""
        ...


@dataclass(frozen=True)
class InPlace:
    """Rows read where they are; at the edges the lanes that would be padding are zero."""

    vectors: Vectors
    axis: Axis
    tensor: Any
    first: tuple[Expr, Expr]
    """(image, channel) of the first plane."""

    def row(self, plane: Expr, row: Expr, group: Expr) -> Row:
        image, channel = self.first
        return RowInPlace(self, (image, channel + plane, row), group * self.axis.up, {})


@dataclass(frozen=True)
class RowInPlace:
    """With a stride, neighbouring lanes read columns apart: all columns in between are loaded, and split by phase once
    for all that is read of them."""

    rows: InPlace
    place: tuple[Expr, ...]
    """(image, channel, row)"""
    origin: Expr
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
        parts = [load_columns(vectors, self.rows.tensor, self.place, self.origin + at + start) for start in starts]
        if len(parts) == 1 or all(part is None for part in parts):
            return parts if len(parts) == 1 else [None] * phases
        values = [vectors.zero() if part is None else bind("loaded", part) for part in parts]
        lanes = [[_lane_of(starts, phase + axis.up * lane, vectors.lanes) for lane in range(vectors.lanes)]
                 for phase in range(phases)]  # fmt: skip
        return [_shuffle(values, places) for places in lanes]


def _lane_of(starts: Sequence[int], column: int, lanes: int) -> int:
    """Where the vectors that begin at columns ``starts`` hold ``column``, all lanes counted one after the other."""
    vector = max(number for number, start in enumerate(starts) if start <= column)
    return vector * lanes + column - starts[vector]


@dataclass(frozen=True, kw_only=True)
class Staging:
    """How rows lie in scratch memory: zeros at both sides, columns split by phase, so that with a stride, too,
    neighbouring groups read neighbouring columns."""

    vectors: Vectors
    axis: Axis
    rows: int
    planes: int

    @classmethod
    def of(cls, rows: Axis, columns: Axis, *, vectors: Vectors, block_h: int, planes: int) -> Staging:
        """Rows that ``block_h`` rows of results read."""
        return cls(vectors=vectors, axis=columns, rows=rows.spanned(block_h)[1], planes=planes)

    @property
    def phases(self) -> int:
        return self.axis.up

    @property
    def left(self) -> int:
        """Columns of zeros before the first, in whole vectors."""
        nearest, _ = self.axis.reach
        return _round_up(max(0, -nearest), self.phases * self.vectors.lanes)

    @property
    def pitch(self) -> int:
        """Columns of a phase of a row."""
        _, farthest = self.axis.reach
        groups = _round_up(-(-self.axis.outputs // self.axis.down), self.vectors.lanes)
        read = groups + (farthest + self.left) // self.phases
        written = (self.left + _round_up(self.axis.inputs, self.phases * self.vectors.lanes)) // self.phases
        return _round_up(max(read, written), self.vectors.lanes)

    @property
    def elements(self) -> int:
        return self.planes * self.phases * self.rows * self.pitch

    def allocate(self) -> Any:
        """Scratch memory of this task, all zeros."""
        shape = (self.planes * self.phases, self.rows, self.pitch)
        memory = IRBuilder.name("staged", T.alloc_buffer(shape, "float32", scope="global"))
        for phase in serial("phase", shape[0]):
            for row in serial("row", self.rows):
                for vector in serial("vector", self.pitch // self.vectors.lanes):
                    store(memory, self.vectors.zero(), phase, row, self.vectors.slot(vector))
        return memory

    def fill(self, memory: Any, tensor: Any, first: tuple[Expr, Expr], top: Expr) -> Staged:
        """Copies the rows from ``top`` on, those that there are, of the planes from ``first`` on."""
        image, channel = first
        height = int(tensor.shape[-2])
        begin, end = bind("begin", most(top, 0)), bind("end", least(top + self.rows, height))
        for plane in serial("plane", self.planes):
            for row in serial("row", begin, end):
                self._fill_row(memory, tensor, (image, channel + plane, row), plane * self.phases, row - top)
        return Staged(self, memory, top)

    def _fill_row(self, memory: Any, tensor: Any, source: tuple[Expr, ...], phase: Expr, row: Expr) -> None:
        chunk = self.phases * self.vectors.lanes
        whole, left_over = divmod(self.axis.inputs, chunk)
        for turn in serial("chunk", whole):
            self._copy_chunk(memory, tensor, source, phase, row, turn)
        if left_over:
            self._copy_chunk(memory, tensor, source, phase, row, whole)

    def _copy_chunk(
        self, memory: Any, tensor: Any, source: tuple[Expr, ...], phase: Expr, row: Expr, turn: Expr
    ) -> None:
        vectors, phases = self.vectors, self.phases
        loaded = []
        for v in range(phases):
            value = load_columns(vectors, tensor, source, (turn * phases + v) * vectors.lanes)
            loaded.append(vectors.zero() if value is None else bind("loaded", value))
        for number, value in enumerate(split_by_phase(vectors, loaded)):
            column = self.left // phases + turn * vectors.lanes
            store(memory, value, phase + number, row, vectors.span(column))


@dataclass(frozen=True)
class Staged:
    """Rows read from scratch memory, which holds them from row ``top`` on."""

    staging: Staging
    memory: Any
    top: Expr

    def row(self, plane: Expr, row: Expr, group: Expr) -> Row:
        return StagedRow(self, plane, row, group)


@dataclass(frozen=True)
class StagedRow:
    """A row in scratch memory."""

    rows: Staged
    plane: Expr
    number: Expr
    group: Expr

    def load(self, at: int) -> Expr:
        staging = self.rows.staging
        over, phase = divmod(at + staging.left, staging.phases)
        plane = self.plane * staging.phases + phase
        return self.rows.memory[plane, self.number - self.rows.top, staging.vectors.span(self.group + over)]


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
