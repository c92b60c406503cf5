"""The weights of the NHWC gather, packed for vectors of channels before the tasks run."""

from __future__ import annotations

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
    in the order of what they meet. They are float32, whatever w is.

    The weights of a vector of channels stand together, and each starts a cache line: however many channels and taps
    there are, those in use do not all fall into a few sets of the cache."""

    work: Gather
    vectors: Vectors
    w: Any
    packed: Any

    def pack(self) -> None:
        work, vectors = self.work, self.vectors
        loop = parallel if work.rows.taps * work.columns.taps * work.weights >= PARALLEL_WEIGHTS else serial
        for turn in loop("turn", vectors.count * work.fan_in):
            number, m = turn // work.fan_in, turn % work.fan_in
            start = bind("start", vectors.start(number))
            for kh in serial("kh", work.rows.taps):
                for kw in serial("kw", work.columns.taps):
                    for lane in serial("lane", vectors.lanes):
                        weight = load(self.w, (start + lane) * work.fan_in + m, kh, kw)
                        store(self.packed, weight, number, m, *self._upwards(kh, kw), lane)

    def vector(self, number: Expr, m: Expr, kh: Expr, kw: Expr) -> Expr:
        """The weights of the vector of that number for the ``m``-th of the source channels that each result sums."""
        return self.packed[(number, m, *self._upwards(kh, kw), self.vectors.span(0))]

    def _upwards(self, kh: Expr, kw: Expr) -> tuple[Expr, Expr]:
        return upwards(self.work.rows, kh), upwards(self.work.columns, kw)


def upwards(axis: Axis, tap: Expr) -> Expr:
    """The number of a tap in the order of what they meet: LLVM computes an address that falls anew in every turn."""
    return tap if axis.step > 0 else axis.taps - 1 - tap
