"""The tensors of the NHWC gather, read and written a vector of channels at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dwconv.schedules.cpu.emit.activations import activated
from dwconv.schedules.cpu.emit.channel_weights import PackedWeights
from dwconv.schedules.cpu.emit.pixels import PixelRow
from dwconv.schedules.cpu.emit.storage import load, store_rounded
from dwconv.schedules.cpu.emit.stream import Stream
from dwconv.schedules.cpu.emit.vectors import NumberedVector, Vectors
from dwconv.schedules.cpu.emit.words import argument
from dwconv.schedules.emit import Expr, bind
from dwconv.schedules.gather import Gather


@dataclass(frozen=True, kw_only=True)
class PixelTensors:
    """Every access is to a vector of channels of one pixel, ``at`` (image, row, column) or, in 3-D, (image, depth, row,
    column)."""

    work: Gather
    vectors: Vectors
    source: Any
    weights: PackedWeights
    bias: Any
    dy: Any
    """For the epilogue, like the result; each of the two is None where there is none."""
    result: Any
    stream: Stream | None
    """Stores the result, where it may be too large for the caches."""

    @classmethod
    def arguments(cls, work: Gather, vectors: Vectors, n: Expr, *, streamed_above: int | None) -> PixelTensors:
        """Emits the kernel's parameters. ``streamed_above``: how many images are left to the caches, or elements where
        the sizes of images are not known; None: all."""
        axes = work.axes
        source = argument(work.source, (n, *axes.inputs, work.source_pitch), work.dtype)
        w = argument("w", (work.weights, *axes.taps), work.dtype)
        bias = argument("bias", (work.channels,), work.dtype) if work.bias else None
        dy = argument("dy", (n, *axes.outputs, work.channels), work.dtype) if work.reads_dy else None
        result = argument(work.result, (n, *axes.outputs, work.channels), work.dtype)
        packed = argument("workspace", (vectors.count, work.fan_in, *axes.taps, vectors.lanes))
        weights = PackedWeights(work=work, vectors=vectors, w=w, packed=packed)
        size = n if axes.are_known else n * (math.prod(axes.outputs) * work.channels)
        stream = None if streamed_above is None else Stream(result, vectors, size > streamed_above)
        return cls(
            work=work, vectors=vectors, source=source, weights=weights, bias=bias, dy=dy, result=result, stream=stream
        )

    def row(self, tensor: Any, *before: Expr) -> PixelRow:
        """A row of the source, of dy or of the result."""
        return PixelRow.of(tensor, *before, is_known=self.work.axes.are_known)

    def load(self, row: PixelRow, column: Expr, *, vector: NumberedVector, m: Expr) -> Expr:
        """The ``m``-th of the source channels that each result channel of ``vector`` sums."""
        channels = self.vectors.span(vector.start * self.work.fan_in + m, self.work.fan_in)
        channels = self.vectors.divided(channels, self.work.fan_out)
        return bind("value", load(row.tensor, *row.at(column, channels)))

    def store(self, total: Expr, row: PixelRow, column: Expr, *, vector: NumberedVector, dy: PixelRow | None) -> None:
        """Adds the bias and stores what the epilogue makes of it. The bias comes last: sums that start from it make
        LLVM write slower loops than sums that start from zeros."""
        channels = self.vectors.span(vector.start)
        value = total + load(self.bias, channels) if self.work.bias else total
        value = activated(self.work.epilogue, value, load(dy.tensor, *dy.at(column, channels)) if dy else None)
        if self.stream:
            self.stream.store(row.tensor, value, *row.at(column, vector.start))
        else:
            store_rounded(row.tensor, value, *row.at(column, channels))
