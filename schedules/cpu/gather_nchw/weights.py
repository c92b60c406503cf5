"""The weights of one channel as the NCHW gather uses them: one number in all lanes of a vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dwconv.schedules.cpu.emit.storage import load
from dwconv.schedules.cpu.emit.vectors import Vectors
from dwconv.schedules.cpu.emit.words import scratch
from dwconv.schedules.cpu.gather_nchw.cut import FEW_WEIGHTS
from dwconv.schedules.emit import Expr, bind, serial, store, taps_of
from dwconv.schedules.gather import Gather


@dataclass(frozen=True)
class ChannelWeights:
    """The weights of result channel ``channel``; where they are few, loaded once for all of its plane. Those of 16 bits
    are widened once for all of it, into scratch memory: a number that is the same in all lanes takes three
    instructions from 16 bits, one from 32."""

    work: Gather
    vectors: Vectors
    w: Any
    """As the kernel takes it or, in float32, the part of this channel."""
    first: Expr
    """The first of the channel's kernels in ``w``."""
    kd: Expr
    """The tap along the depth."""
    loaded: dict[tuple[int, int], Expr]

    @classmethod
    def of(cls, channel: Expr, work: Gather, w: Any, vectors: Vectors) -> ChannelWeights:
        first = channel * work.fan_in
        if work.dtype != "float32":
            w, first = _widened(w, first, work), 0
        weights = cls(work, vectors, w, first, 0, {})
        return weights if work.depths.taps > 1 else weights._with_few_loaded()

    def at_tap(self, kd: Expr) -> ChannelWeights:
        """Those at tap ``kd`` along the depth."""
        if self.work.depths.taps == 1:
            return self
        return ChannelWeights(self.work, self.vectors, self.w, self.first, kd, {})._with_few_loaded()

    def _with_few_loaded(self) -> ChannelWeights:
        work = self.work
        if work.fan_in == 1 and work.rows.taps * work.columns.taps <= FEW_WEIGHTS:
            for kh in range(work.rows.taps):
                for kw in range(work.columns.taps):
                    self.loaded[kh, kw] = self.vector(0, kh, kw)
        return self

    def vector(self, m: Expr, kh: Expr, kw: Expr) -> Expr:
        """The weight for the ``m``-th plane of the source."""
        if isinstance(kh, int) and isinstance(kw, int) and (kh, kw) in self.loaded:
            return self.loaded[kh, kw]
        at = self.work.axes.index(self.kd, kh, kw)
        return bind("weight", self.vectors.everywhere(self.w[(self.first + m, *at)]))


def _widened(w: Any, first: Expr, work: Gather) -> Any:
    """Emits a copy of a channel's kernels in float32."""
    wide = scratch("wide", work.fan_in, *work.axes.taps)
    for m in serial("m", work.fan_in):
        for at in taps_of(work.axes.taps):
            store(wide, load(w, first + m, *at), m, *at)
    return wide
