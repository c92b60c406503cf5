"""The sums of a strip, from whatever memory its source rows come: row by row, each multiplied into all that it meets.

A thread owns some rows of some neighbouring columns of a result plane. It goes down the source rows once; a row of
results is written as soon as its last source row has been added, or after all planes that are summed. Nothing is a
loop but these planes: those of the source channels and, in 3-D, of the taps along the depth.

A kernel knows its first tile and its last (``Reach``), so it knows at which offsets every tile stays inside, at which
none does, and at which it depends on the tile: only the last need a test while it runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dwconv.schedules.any_size import AnyAxis
from dwconv.schedules.cuda.emit.words import Registers, in_float32, span, threads, zero
from dwconv.schedules.cuda.gpu.memory import whole_vectors
from dwconv.schedules.cuda.gpu.plane_layout import Neighbours, Tiling, place_of
from dwconv.schedules.emit import Expr, all_of, planes_met, serial, when
from dwconv.schedules.gather import Gather
from dwconv.schedules.taps import Axis


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The tile of ``width`` outputs with number ``index``, one of ``tiles`` side by side."""

    axis: Axis
    width: int
    tiles: int
    index: Expr

    @property
    def step(self) -> int:
        return self.axis.origin(self.width)

    def source(self, at: int) -> Expr:
        return self.index * self.step + at

    def result(self, out: int) -> Expr:
        return self.index * self.width + out

    def reads(self, at: int, lanes: int = 1) -> Expr:
        """Whether the inputs ``at`` … ``at + lanes − 1`` exist: True, False for all tiles, or a test."""
        return self._within(at, self.step, self.axis.inputs - lanes)

    def writes(self, out: int, lanes: int = 1) -> Expr:
        """Whether the outputs ``out`` … ``out + lanes − 1`` exist: True, False for all tiles, or a test."""
        return self._within(out, self.width, self.axis.outputs - lanes)

    def live_reads(self) -> dict[int, list[tuple[int, int]]]:
        reads = self.axis.reads(self.width)
        return {at: pairs for at, pairs in reads.items() if self.reads(at) is not False}

    def _within(self, offset: int, step: int, last: int) -> Expr:
        places = [tile * step + offset for tile in range(self.tiles)]
        if not any(0 <= place <= last for place in places):
            return False
        position = self.index * step + offset
        return all_of(places[0] >= 0 or position >= 0, places[-1] <= last or position <= last)


@dataclass(frozen=True, kw_only=True)
class AnyReach(Reach):
    """A tile on an axis of any size, where there is the tile."""

    axis: AnyAxis
    least: int
    """Outputs that it has at least."""

    def reads(self, at: int, lanes: int = 1) -> Expr:
        position, sure = self.source(at), self.axis.origin(max(self.least, self.axis.down)) + self.axis.beyond[0]
        return all_of(at >= 0 or position >= 0, at + lanes <= sure or position <= self.axis.inputs - lanes)

    def writes(self, out: int, lanes: int = 1) -> Expr:
        return out + lanes <= self.least or self.result(out) <= self.axis.outputs - lanes


@dataclass(frozen=True, kw_only=True)
class SlidingSource:
    """One of them."""

    m: Expr
    """Which of the source channels of the result channel."""
    kd: Expr
    """The tap along the depth at which they meet; 0 in 2-D."""
    depth: Expr
    """Which plane of its channel; 0 in 2-D."""


def source_planes(channels: int, depths: Axis, depth: Expr) -> Iterator[SlidingSource]:
    """Those that plane ``depth`` of the result meets in each of ``channels``; no loop is left in 2-D."""
    for m in serial("m", channels):
        for kd, source_depth in planes_met(depths, depth):
            yield SlidingSource(m=m, kd=kd, depth=source_depth)


Pairs = list[tuple[int, int]]
"""(output of the tile, tap)"""


@dataclass(frozen=True, kw_only=True)
class SourceRow:
    """A row that is loaded, or on its way."""

    values: Registers
    slots: dict[int, int]
    """In which register each column offset stands."""
    alone: frozenset[int] = frozenset()
    """Offsets that were loaded alone, not in a vector: no other shares their word."""

    def in_float32(self, live: dict[int, Pairs]) -> dict[int, Expr]:
        if self.values.dtype == "float32":
            return {at: self.values[self.slots[at]] for at in live}
        wide = Registers("wide", *self.values.sizes)
        for at in live:
            slot = self.slots[at]
            wide[slot] = in_float32(self.values[slot]) if at in self.alone else self.values.in_float32(slot)
        return {at: wide[self.slots[at]] for at in live}


@dataclass(frozen=True, kw_only=True)
class SlidingSum(ABC):
    """The work of one thread on the tile at ``rows`` × ``columns``."""

    gather: Gather
    rows: Reach
    columns: Reach
    rows_ahead: int
    """A source row is loaded so many rows before it is used."""
    depth: Expr = 0
    """Which plane of its channel the tile is of."""

    @abstractmethod
    def start(self) -> Expr:
        """Where sums start, in float32: the bias, or zero."""

    @abstractmethod
    def weights(self, plane: SlidingSource) -> Registers:
        """What it is multiplied by, (KH, KW), in float32."""

    @abstractmethod
    def fetch(self, plane: SlidingSource, at: int) -> SourceRow:
        """Loads the row at offset ``at`` of a plane; zero where there is none."""

    @abstractmethod
    def write(self, sums: Registers, row: int) -> None:
        """Rounds and stores a row of results that exist."""

    def sum(self) -> None:
        rows, columns = self.rows.live_reads(), self.columns.live_reads()
        sums = Registers("sum", self.rows.width, self.columns.width)
        sums.fill(self.start())
        written: set[int] = set()
        for plane in source_planes(self.gather.fan_in, self.gather.depths, self.depth):
            weights = self.weights(plane)
            for at, row in self._fetched(plane, rows):
                self.multiply(row.in_float32(columns), weights, sums, rows[at])
                if self.gather.sums_one_plane:
                    for out_row in _finished_by(at, rows):
                        self._write(sums, out_row)
                        written.add(out_row)
        for out_row in range(self.rows.width):
            if out_row not in written:
                self._write(sums, out_row)

    def multiply(self, values: dict[int, Expr], weights: Registers, sums: Registers, met: Pairs) -> None:
        """Adds the products of a source row, whose ``values`` are known by offset, to the rows of results that it has
        ``met``."""
        for column, pairs in self.columns.live_reads().items():
            for out_row, kh in met:
                for out, kw in pairs:
                    sums[out_row, out] = sums[out_row, out] + values[column] * weights[kh, kw]

    def _fetched(self, plane: SlidingSource, rows: dict[int, Pairs]) -> Iterator[tuple[int, SourceRow]]:
        order = list(rows)
        under_way = [self.fetch(plane, at) for at in order[: self.rows_ahead]]
        for number, at in enumerate(order):
            if number + self.rows_ahead < len(order):
                under_way.append(self.fetch(plane, order[number + self.rows_ahead]))
            yield at, under_way.pop(0)

    def _write(self, sums: Registers, row: int) -> None:
        if self.rows.writes(row) is not False:
            self.write(sums, row)


def _finished_by(at: int, rows: dict[int, Pairs]) -> list[int]:
    later = {out for other, pairs in rows.items() if other > at for out, _ in pairs}
    return sorted({out for out, _ in rows[at]} - later)


# -- whole planes in shared memory ---------------------------------------------------------------------------------


def threads_of_planes(tiling: Tiling, neighbours: Neighbours) -> Iterator[tuple[Expr, Expr, Expr]]:
    """(the planes it has, its tile of them, its number in the block) of a thread, in the order in which those of a warp
    meet in no bank."""
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
