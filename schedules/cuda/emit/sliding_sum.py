"""The sums of a strip, from whatever memory its source rows come: row by row, each multiplied into all that it meets.

A thread owns some rows of some neighbouring columns of a result plane. It goes down the source rows once; a row of
results is written as soon as its last source row has been added, or after all planes that are summed. Nothing is a
loop but these planes: those of the source channels and, in 3-D, of the taps along the depth.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from dwconv.schedules.cuda.emit.reach import Reach
from dwconv.schedules.cuda.emit.source_planes import SourcePlane, source_planes
from dwconv.schedules.cuda.emit.words import Registers, in_float32
from dwconv.schedules.emit import Expr
from dwconv.schedules.gather import Gather

Pairs = list[tuple[int, int]]
"""(output of the tile, tap)"""


@dataclass(frozen=True, kw_only=True)
class SourceRow:
    """A row that has been asked for."""

    values: Registers
    slots: dict[int, int]
    """In which register each column offset stands."""
    alone: frozenset[int] = frozenset()
    """Offsets that were not asked for in a vector: no other shares their word."""

    def in_float32(self, live: dict[int, Pairs]) -> dict[int, Expr]:
        """The ``live`` columns, by offset."""
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
    """A source row is asked for so many rows before it is used."""
    depth: Expr = 0
    """Which plane of its channel the tile is of."""

    @abstractmethod
    def start(self) -> Expr:
        """Where sums start, in float32: the bias, or zero."""

    @abstractmethod
    def weights(self, plane: SourcePlane) -> Registers:
        """What it is multiplied by, (KH, KW), in float32."""

    @abstractmethod
    def fetch(self, plane: SourcePlane, at: int) -> SourceRow:
        """Asks for the row at offset ``at`` of a plane; zero where there is none."""

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

    def _fetched(self, plane: SourcePlane, rows: dict[int, Pairs]) -> Iterator[tuple[int, SourceRow]]:
        """Source rows in order, by offset. A row is asked for some rows before it is used."""
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
    """Result rows whose last source row is the one at offset ``at``."""
    later = {out for other, pairs in rows.items() if other > at for out, _ in pairs}
    return sorted({out for out, _ in rows[at]} - later)
