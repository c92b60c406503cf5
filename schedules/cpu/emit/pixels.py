"""Rows of pixels in NHWC, read and written a vector of channels at a time, and weights packed for such vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from dwconv.schedules.cpu.emit.vectors import Vectors
from dwconv.schedules.cpu.emit.words import load, parallel, seen_from
from dwconv.schedules.cpu.shared.limits import PARALLEL_WEIGHTS
from dwconv.schedules.emit import Expr, bind, int32, serial, size_of, store
from dwconv.schedules.gather import Gather
from dwconv.schedules.taps import Axis


@dataclass(frozen=True)
class PixelRow:
    """A row of an image in a tensor."""

    tensor: Any
    before: tuple[Expr, ...]
    """The indices before those of the column and the channels."""
    pitch: Expr = None
    """From pixel to pixel, where ``tensor`` is what begins with the row."""

    @classmethod
    def of(cls, tensor: Any, *before: Expr, is_known: bool) -> PixelRow:
        """``is_known``: whether the sizes of the image are. Where not, the address of the row is computed once: it
        would not be the sum of one that is there and a number."""
        if is_known:
            return cls(tensor, before)
        return cls(seen_from(tensor, *before, 0, 0), (), pitch=size_of(tensor.shape[-1]))

    def at(self, column: Expr, channels: Expr) -> tuple[Expr, ...]:
        """The indices in ``tensor`` of channels, one or a vector, of the pixel in a column."""
        if self.pitch is None:
            return (*self.before, column, channels)
        offset = column * self.pitch
        lanes = 1 if isinstance(channels, int) else int(channels.ty.dtype.lanes)
        return (channels + (offset if lanes == 1 else tirx.Broadcast(int32(offset), lanes)),)


@dataclass(frozen=True, kw_only=True)
class PackedWeights:
    """packed[v, m, i, j, lane] = w[c · fan_in + m, kh, kw], c that lane's channel in vector v; i and j count kh and kw
    in the order of what they meet; in 3-D both have kd before. They are float32, whatever w is.

    The weights of a vector of channels stand together, and each starts a cache line: however many channels and taps
    there are, those in use do not all fall into a few sets of the cache."""

    work: Gather
    vectors: Vectors
    w: Any
    packed: Any

    def pack(self) -> None:
        work, vectors, axes = self.work, self.vectors, self.work.axes
        is_many = isinstance(work.channels, int) and math.prod(axes.taps) * work.weights >= PARALLEL_WEIGHTS
        loop = parallel if is_many else serial
        for turn in loop("turn", vectors.count * work.fan_in):
            number, m = turn // work.fan_in, turn % work.fan_in
            start = bind("start", vectors.start(number))
            for kd in serial("kd", axes.depths.taps):
                for kh in serial("kh", axes.rows.taps):
                    for kw in serial("kw", axes.columns.taps):
                        for lane in serial("lane", vectors.lanes):
                            weight = load(self.w, (start + lane) * work.fan_in + m, *axes.index(kd, kh, kw))
                            store(self.packed, weight, number, m, *self._upwards(kd, kh, kw), lane)

    def vector(self, number: Expr, m: Expr, kd: Expr, kh: Expr, kw: Expr) -> Expr:
        """The weights of the vector of that number for the ``m``-th of the source channels that each result sums."""
        return self.packed[(number, m, *self._upwards(kd, kh, kw), self.vectors.span(0))]

    def _upwards(self, kd: Expr, kh: Expr, kw: Expr) -> tuple[Expr, ...]:
        axes = self.work.axes
        return axes.index(kd, upwards(axes.rows, kh), upwards(axes.columns, kw))


def upwards(axis: Axis, tap: Expr) -> Expr:
    """The number of a tap in the order of what they meet: LLVM computes an address that falls anew in every turn."""
    return tap if axis.step > 0 else axis.taps - 1 - tap
