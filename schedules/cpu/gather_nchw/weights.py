"""The weights of one channel as the NCHW gather uses them: one number in all lanes of a vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dwconv.schedules.cpu.emit.storage import load
from dwconv.schedules.cpu.emit.vectors import Vectors
from dwconv.schedules.cpu.gather_nchw.cut import FEW_WEIGHTS
from dwconv.schedules.emit import Expr, bind
from dwconv.schedules.gather import Gather


@dataclass(frozen=True)
class ChannelWeights:
    """The weights of result channel ``channel``; where they are few, loaded once for all of its plane."""

    vectors: Vectors
    w: Any
    fan_in: int
    channel: Expr
    loaded: dict[tuple[int, int], Expr]

    @classmethod
    def of(cls, channel: Expr, work: Gather, w: Any, vectors: Vectors) -> ChannelWeights:
        weights = cls(vectors, w, work.fan_in, channel, {})
        if work.fan_in == 1 and work.rows.taps * work.columns.taps <= FEW_WEIGHTS:
            for kh in range(work.rows.taps):
                for kw in range(work.columns.taps):
                    weights.loaded[kh, kw] = weights.vector(0, kh, kw)
        return weights

    def vector(self, m: Expr, kh: Expr, kw: int) -> Expr:
        """The weight for the ``m``-th plane of the source."""
        if isinstance(kh, int) and (kh, kw) in self.loaded:
            return self.loaded[kh, kw]
        weight = load(self.w, self.channel * self.fan_in + m, kh, kw)
        return bind("weight", self.vectors.everywhere(weight))
