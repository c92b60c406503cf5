"""Weights packed for vectors of channels, before the tasks run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dwconv.schedules.cpu.emit.storage import load
from dwconv.schedules.cpu.emit.vectors import Vectors
from dwconv.schedules.cpu.emit.words import parallel
from dwconv.schedules.cpu.shared.threads import PARALLEL_WEIGHTS
from dwconv.schedules.emit import Expr, bind, serial, store
from dwconv.schedules.gather import Gather
from dwconv.schedules.taps import Axis


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
