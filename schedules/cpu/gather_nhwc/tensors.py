"""The tensors of the NHWC gather: sources, weights and results of a vector of channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dwconv.schedules.cpu.shared.stream import Stream
from dwconv.schedules.cpu.shared.threads import PARALLEL_WEIGHTS
from dwconv.schedules.cpu.shared.vectors import NumberedVector, Vectors
from dwconv.schedules.cpu.shared.words import argument, parallel
from dwconv.schedules.emit import Expr, bind, serial, store
from dwconv.schedules.gather import Gather
from dwconv.schedules.taps import Axis


@dataclass(frozen=True, kw_only=True)
class PixelTensors:
    """Every access is to a vector of channels of one pixel.

    Before the tasks run, the weights are packed: those of a vector of channels stand together, and each starts a cache
    line. However many channels and taps there are, those in use do not all fall into a few sets of the cache."""

    work: Gather
    vectors: Vectors
    source: Any
    w: Any
    bias: Any
    """None where there is none."""
    result: Any
    packed: Any
    stream: Stream | None
    """Stores the result, where it may be too large for the caches."""

    @classmethod
    def arguments(cls, work: Gather, vectors: Vectors, n: Expr, *, streamed_above: int | None) -> PixelTensors:
        """Emits the kernel's parameters."""
        rows, columns = work.rows, work.columns
        source = argument(work.source, (n, rows.inputs, columns.inputs, work.source_channels))
        w = argument("w", (work.weights, rows.taps, columns.taps))
        bias = argument("bias", (work.channels,)) if work.bias else None
        result = argument(work.result, (n, rows.outputs, columns.outputs, work.channels))
        packed = argument("workspace", (vectors.count, work.fan_in, rows.taps, columns.taps, vectors.lanes))
        stream = None if streamed_above is None else Stream(result, vectors, n > streamed_above)
        return cls(
            work=work, vectors=vectors, source=source, w=w, bias=bias, result=result, packed=packed, stream=stream
        )

    def pack_weights(self) -> None:
        """packed[v, m, i, j, lane] = w[c · fan_in + m, kh, kw], c that lane's channel in vector v; i and j count kh and
        kw in the order of what they meet."""
        work, vectors = self.work, self.vectors
        weights = work.rows.taps * work.columns.taps * work.weights
        loop = parallel if weights >= PARALLEL_WEIGHTS else serial
        for turn in loop("turn", vectors.count * work.fan_in):
            number, m = turn // work.fan_in, turn % work.fan_in
            start = bind("start", vectors.start(number))
            for kh in serial("kh", work.rows.taps):
                for kw in serial("kw", work.columns.taps):
                    for lane in serial("lane", vectors.lanes):
                        weight = self.w[(start + lane) * work.fan_in + m, kh, kw]
                        store(self.packed, weight, number, m, *self._upwards(kh, kw), lane)

    def weight(self, number: Expr, m: Expr, kh: Expr, kw: Expr) -> Expr:
        """The weights of the vector of that number for the ``m``-th of the source channels that each result sums."""
        return self.packed[(number, m, *self._upwards(kh, kw), self.vectors.span(0))]

    def load(self, image: Expr, row: Expr, column: Expr, *, vector: NumberedVector, m: Expr) -> Expr:
        """Of the source channels that each result channel of ``vector`` sums, the ``m``-th."""
        channels = self.vectors.span(vector.start * self.work.fan_in + m, self.work.fan_in)
        return bind("value", self.source[image, row, column, self.vectors.divided(channels, self.work.fan_out)])

    def store(self, total: Expr, image: Expr, row: Expr, column: Expr, *, vector: NumberedVector) -> None:
        """Adds the bias and stores. The bias comes last: sums that start from it make LLVM write slower loops than
        sums that start from zeros."""
        channels = self.vectors.span(vector.start)
        value = total + self.bias[channels] if self.work.bias else total
        if self.stream:
            self.stream.store(value, image, row, column, vector.start)
        else:
            store(self.result, value, image, row, column, channels)

    def _upwards(self, kh: Expr, kw: Expr) -> tuple[Expr, Expr]:
        return upwards(self.work.rows, kh), upwards(self.work.columns, kw)


def upwards(axis: Axis, tap: Expr) -> Expr:
    """The number of a tap in the order of what they meet: LLVM computes an address that falls anew in every turn."""
    return tap if axis.step > 0 else axis.taps - 1 - tap
