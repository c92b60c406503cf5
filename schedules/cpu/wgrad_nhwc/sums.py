"""The sums of the NHWC weight gradient: in registers while rows go by, and where they go in the end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from dwconv.schedules.cpu.emit.vectors import Accumulators, Vectors
from dwconv.schedules.cpu.emit.words import argument, scratch, store_rounded
from dwconv.schedules.cpu.shared.weight_gradient import RegisterTaps, WeightGradient, pieces
from dwconv.schedules.cpu.wgrad_nhwc.cut import WeightCut
from dwconv.schedules.emit import Expr, bind, serial, store


@dataclass(frozen=True)
class Tap:
    """Which of a channel's sums: that of a weight. The gradient of the bias has None in its place."""

    kd: Expr
    kh: Expr
    kw: Expr


def tap_groups(cut: WeightCut) -> Iterator[RegisterTaps]:
    """The taps that are summed at the same time. Those along the depth are a loop, kernel rows one by one are one,
    several at a time are unrolled. Kernel columns are unrolled, too, unless ``unroll`` is "none": then every tap is a
    turn of a loop, or "group": then every group of columns is. For a bias one group, outside of these loops, sums dy
    as well."""
    taps_h, group_kh = cut.work.rows.taps, cut.config.group_kh
    is_rolled = cut.config.unroll in ("none", "group")
    in_loops = is_rolled or cut.work.axes.is_3d or (group_kh == 1 and taps_h > 1)
    if cut.work.bias and in_loops:
        yield RegisterTaps(kh=0, height=0, kw=0, width=0, sums_dy=True)
    for kd in serial("kd", cut.work.depths.taps):
        for kh in serial("kh", taps_h) if group_kh == 1 else range(0, taps_h, group_kh):
            height = 1 if group_kh == 1 else min(group_kh, taps_h - kh)
            if is_rolled:
                for groups in pieces(cut.work.columns.taps, cut.group_kw):
                    for turn in serial("kw", groups.count):
                        kw = bind("first_kw", groups.first + turn * groups.size)
                        yield RegisterTaps(kd=kd, kh=kh, height=height, kw=kw, width=groups.size)
                continue
            for kw, width in cut.column_groups:
                sums_dy = cut.work.bias and not in_loops and (kh, kw) == (0, 0)
                yield RegisterTaps(kd=kd, kh=kh, height=height, kw=kw, width=width, sums_dy=sums_dy)


class TapSums:
    """The sums of some taps in registers, for ``count`` vectors of channels."""

    def __init__(self, vectors: Vectors, taps: RegisterTaps, count: int) -> None:
        self.taps = taps
        self._products = Accumulators(vectors, taps.height, taps.width, count) if taps.height else None
        self._dy = Accumulators(vectors, count) if taps.sums_dy else None

    def add(self, row: int, column: int, v: int, product: Expr) -> None:
        """To a tap, counted from the first of the group, of the ``v``-th vector."""
        assert self._products is not None
        self._products.add((row, column, v), product)

    def add_dy(self, v: int, value: Expr) -> None:
        assert self._dy is not None
        self._dy.add((v,), value)

    def items(self) -> Iterator[tuple[Tap | None, int, Expr]]:
        """Every sum with its tap and its vector."""
        if self._products is not None:
            for (row, column, v), value in self._products.items():
                yield Tap(self.taps.kd, self.taps.kh + row, self.taps.kw + column), v, value
        if self._dy is not None:
            for (v,), value in self._dy.items():
                yield None, v, value


class WeightResults:
    """dw, and dbias if there is a bias: emits these parameters of the kernel."""

    def __init__(self, work: WeightGradient, vectors: Vectors) -> None:
        self.work, self.vectors = work, vectors
        self.dw = argument("dw", work.weight_shape, work.dtype)
        self.dbias = argument("dbias", (work.channels,), work.dtype) if work.bias else None

    @property
    def count(self) -> int:
        """Sums of one channel."""
        return math.prod(self.work.axes.taps) + self.work.bias

    def number(self, tap: Tap | None) -> Expr:
        """The number of a sum among those of its channel."""
        taps_h, taps_w = self.work.rows.taps, self.work.columns.taps
        return self.count - 1 if tap is None else (tap.kd * taps_h + tap.kh) * taps_w + tap.kw

    def taps(self) -> Iterator[Tap | None]:
        """Loops over all sums of a channel."""
        for kd in serial("kd", self.work.depths.taps):
            for kh in serial("kh", self.work.rows.taps):
                for kw in serial("kw", self.work.columns.taps):
                    yield Tap(kd, kh, kw)
        if self.work.bias:
            yield None

    def store(self, value: Expr, number: Expr, tap: Tap | None) -> None:
        """A sum of the vector of that number. In dw channels are outermost, so lanes go out one by one; those that the
        vector before has too are left out."""
        lanes = scratch("scratch", self.vectors.lanes, dtype=self.work.dtype)
        store_rounded(lanes, value, self.vectors.span(0))
        start = self.vectors.start(number)
        for lane in serial("lane", number * self.vectors.lanes - start, self.vectors.lanes):
            channel = start + lane
            if tap is None:
                store(self.dbias, lanes[lane], channel)
            else:
                store(self.dw, lanes[lane], channel, *self.work.axes.index(tap.kd, tap.kh, tap.kw))
