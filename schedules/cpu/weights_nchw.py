"""The weights of one channel as the NCHW kernels use them: one number in all lanes of a vector."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dwconv.schedules.cpu.emit import Vectors
from dwconv.schedules.cpu.planes import load_columns
from dwconv.schedules.emit import Expr, bind, serial, store
from dwconv.schedules.gather import Gather

FEW = 9
"""So many weights are kept in registers."""


@dataclass(frozen=True)
class Weights:
    """The weights of result channel ``channel``; where they are few, loaded once for all of its plane."""

    vectors: Vectors
    w: Any
    fan_in: int = 1
    channel: Expr = 0
    loaded: dict[tuple[int, int], Expr] = dataclasses.field(default_factory=dict)

    def of_channel(self, work: Gather, w: Any, channel: Expr) -> Weights:
        weights = dataclasses.replace(self, fan_in=work.fan_in, channel=channel, loaded={})
        if work.fan_in == 1 and work.rows.taps * work.columns.taps <= FEW:
            for kh in range(work.rows.taps):
                for kw in range(work.columns.taps):
                    weights.loaded[kh, kw] = weights.vector(0, kh, kw)
        return weights

    def vector(self, m: Expr, kh: Expr, kw: Expr) -> Expr:
        """The weight for the ``m``-th plane of the source."""
        if (kh, kw) in self.loaded:
            return self.loaded[kh, kw]
        return bind("weight", everywhere(self.vectors, self.w[self.channel * self.fan_in + m, kh, kw]))


@dataclass(frozen=True)
class PaddedWeights:
    """The weights of one channel between rows of zeros, for loops over rows of the source: then every row of a tile
    meets a kernel row in every turn. With dilation there are rows of zeros between kernel rows, too."""

    vectors: Vectors
    work: Gather
    memory: Any
    above: int
    """Rows of zeros above the kernel."""

    @classmethod
    def allocate(cls, work: Gather, vectors: Vectors, *, height: int) -> PaddedWeights:
        """For tiles of ``height`` rows, all zeros."""
        _, count = work.rows.spanned(height)
        weights = cls(vectors, work, None, 0)
        met = [weights.row(out, turn) for out in range(height) for turn in (0, count - 1)]
        last = (work.rows.taps - 1) * abs(work.rows.step)
        above, pitch = max(0, -min(met)), -(-work.columns.taps // vectors.lanes)
        size = above + max(last, *met) + 1
        memory = IRBuilder.name(
            "padded", T.alloc_buffer((work.fan_in, size, pitch * vectors.lanes), "float32", scope="global")
        )
        for m in serial("m", work.fan_in):
            for row in serial("row", size):
                for vector in serial("vector", pitch):
                    store(memory, vectors.zero(), m, row, vectors.slot(vector))
        return cls(vectors, work, memory, above)

    def of_channel(self, work: Gather, w: Any, channel: Expr) -> PaddedWeights:
        """With the weights of result channel ``channel``."""
        lanes = self.vectors.lanes
        for m in serial("m", work.fan_in):
            for kh in serial("kh", work.rows.taps):
                at = (m, self.above + kh * abs(work.rows.step))
                for kw in range(0, work.columns.taps, lanes):
                    value = load_columns(self.vectors, w, (channel * work.fan_in + m, kh), kw)
                    store(self.memory, value, *at, self.vectors.span(kw))
        return self

    def row(self, out: int, turn: Expr) -> Expr:
        """The row of ``memory`` that row ``out`` of a tile meets at the ``turn``-th row of the source."""
        rows = self.work.rows
        nearest, _ = rows.reach
        at = (nearest + turn) * rows.down - out * rows.up - rows.shift
        return (at if rows.step > 0 else -at) + self.above

    def vector(self, m: Expr, kh: Expr, kw: Expr) -> Expr:
        """The weight for the ``m``-th plane of the source, in row ``kh`` of ``memory``."""
        return bind("weight", everywhere(self.vectors, self.memory[m, kh, kw]))


def everywhere(vectors: Vectors, value: Expr) -> Expr:
    """The same value in all lanes."""
    return value if vectors.lanes == 1 else tirx.Broadcast(value, vectors.lanes)
