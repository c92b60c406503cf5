"""A ring of the last rows that the convolution reads, in scratch memory: what comes before it in a block is computed
once for each pixel, and zeros around it stand for the padding, which comes after the activation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from dwconv.schedules.cpu.block_nhwc.cut import RingCut
from dwconv.schedules.cpu.emit.vectors import NumberedVector, Vectors
from dwconv.schedules.cpu.emit.words import scratch
from dwconv.schedules.emit import Expr, bind, least, most, serial, store
from dwconv.schedules.taps import Axes

Producer = Callable[[Expr, NumberedVector], Expr]
"""From a pixel of the image and a vector of channels to what the convolution reads there."""


@dataclass(frozen=True, kw_only=True)
class Ring:
    """held[row % rows, vector, left + column, lane]"""

    axes: Axes
    vectors: Vectors
    cut: RingCut
    count: int
    """Vectors of channels."""
    held: Any

    @classmethod
    def empty(cls, axes: Axes, vectors: Vectors, cut: RingCut, count: int) -> Ring:
        """Emits the memory, with zeros beside the rows."""
        held = scratch("ring", cut.rows, count, cut.columns, vectors.lanes)
        ring = cls(axes=axes, vectors=vectors, cut=cut, count=count, held=held)
        right = cut.left + axes.columns.inputs
        for row in serial("ring_row", cut.rows):
            for v in serial("vector", count):
                for first, stop in ((0, cut.left), (right, cut.columns)):
                    for column in serial("side", first, stop):
                        store(held, vectors.zero(), row, v, column, vectors.span(0))
        return ring

    def follow(self, row: Expr, *, first: Expr, of: Callable[[Expr], NumberedVector], produce: Producer) -> None:
        """Puts in what row ``row`` of the results is the first to meet, in a task that begins with row ``first``. Rows
        are prefetched one after the other."""
        rows, columns = self.axes.rows, self.axes.columns.inputs
        nearest, farthest = rows.reach
        stop = bind("stop", most(0, least(rows.origin(row) + farthest + 1, rows.inputs)))
        before = most(0, least(rows.origin(row - 1) + farthest + 1, rows.inputs))
        start = bind("start", tirx.Select(row == first, most(0, rows.origin(row) + nearest), before))
        for source in serial("source_row", start, stop):
            slot = bind("slot", source % self.cut.rows)
            for column in serial("source_column", columns):
                for v in serial("vector", self.count):
                    value = produce(source * columns + column, of(v))
                    store(self.held, value, slot, v, column + self.cut.left, self.vectors.span(0))

    def load(self, row: Expr, v: Expr, column: Expr) -> Expr:
        """A vector of the row, at a column counted from the image's first."""
        return bind("value", self.held[row % self.cut.rows, v, column + self.cut.left, self.vectors.span(0)])
