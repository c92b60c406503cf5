"""The weights of one channel as the NCHW gather uses them: one number in all lanes of a vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dwconv.schedules.cpu.emit.storage import load
from dwconv.schedules.cpu.emit.vectors import Vectors
from dwconv.schedules.cpu.emit.words import scratch
from dwconv.schedules.cpu.gather_nchw.cut import FEW_WEIGHTS
from dwconv.schedules.emit import Expr, bind, serial, store
from dwconv.schedules.gather import Gather


@dataclass(frozen=True)
class ChannelWeights:
    """The weights of result channel ``channel``; where they are few, loaded once for all of its plane. Those of 16 bits
    are widened once for all of it, into scratch memory: a number that is the same in all lanes takes three
    instructions from 16 bits, one from 32."""

    vectors: Vectors
    w: Any
    """As the kernel takes it or, in float32, the part of this channel."""
    first: Expr
    """The first of the channel's kernels in ``w``."""
    loaded: dict[tuple[int, int], Expr]

    @classmethod
    def of(cls, channel: Expr, work: Gather, w: Any, vectors: Vectors) -> ChannelWeights:
        first = channel * work.fan_in
        if work.dtype != "float32":
            w, first = _widened(w, first, work), 0
        weights = cls(vectors, w, first, {})
        if work.fan_in == 1 and work.rows.taps * work.columns.taps <= FEW_WEIGHTS:
            for kh in range(work.rows.taps):
                for kw in range(work.columns.taps):
                    weights.loaded[kh, kw] = weights.vector(0, kh, kw)
        return weights

    def vector(self, m: Expr, kh: Expr, kw: int) -> Expr:
        """The weight for the ``m``-th plane of the source."""
        if isinstance(kh, int) and (kh, kw) in self.loaded:
            return self.loaded[kh, kw]
        return bind("weight", self.vectors.everywhere(self.w[self.first + m, kh, kw]))


def _widened(w: Any, first: Expr, work: Gather) -> Any:
    """Emits a copy of a channel's kernels in float32."""
    wide = scratch("wide", work.fan_in, work.rows.taps, work.columns.taps)
    for m in serial("m", work.fan_in):
        for kh in serial("kh", work.rows.taps):
            for kw in serial("kw", work.columns.taps):
                store(wide, load(w, first + m, kh, kw), m, kh, kw)
    return wide
