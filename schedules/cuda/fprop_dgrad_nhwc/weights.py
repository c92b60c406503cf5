"""Where the threads of the NHWC gather kernels have their weights: in registers, in shared memory, or where they are.

All give the weights of one tap as float32, a lane for each kernel that the thread multiplies with: lane l · fan_in + m
for its l-th result channel and the m-th source channel of that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dwconv.schedules.cuda.emit.sliding_sum import SlidingSource
from dwconv.schedules.cuda.emit.words import Registers, as_one_axis, in_float32, shared, span, turns, unrolled
from dwconv.schedules.cuda.fprop_dgrad_nhwc.cut import ChannelsLastCut
from dwconv.schedules.cuda.fprop_dgrad_nhwc.place import StripPlace
from dwconv.schedules.cuda.gpu.hardware import STATIC_SHARED_BYTES
from dwconv.schedules.emit import Expr, all_of, bind, store, when

Lane = Callable[[Expr], Expr]
"""The number of a lane -> its value."""


class Weights:
    def stage(self) -> None:
        """Done by all threads of a block together, at first."""

    def load(self) -> None:
        """Done by each thread before it multiplies."""

    def meet(self, plane: SlidingSource) -> None:
        """Done by each thread before it multiplies with a plane of the source."""

    def at(self, plane: SlidingSource, kh: Expr, kw: Expr) -> Lane:
        """The weights of a tap that meets the plane."""
        raise NotImplementedError


def weights_of(w: Any, cut: ChannelsLastCut, place: StripPlace) -> Weights:
    if cut.weights == "registers":
        return InRegisters(w, cut, place.strip_c * cut.strip_kernels)
    if cut.weights == "shared":
        first, mine = place.block_c * cut.strip_kernels, place.thread_c * cut.strip_kernels
        return InShared(w, cut, first, mine, place.thread)
    return WeightsInPlace(w, cut, place.strip_c * cut.strip_kernels)


class InRegisters(Weights):
    """A thread's kernels lie one after the other in memory: loaded once, as whole vectors. Of kernels with a depth, the
    part at one tap along it is loaded when that meets a plane."""

    def __init__(self, w: Any, cut: ChannelsLastCut, first: Expr) -> None:
        self._w, self._cut, self._first = as_one_axis(w), cut, first

    def load(self) -> None:
        if self._cut.gather.depths.taps == 1:
            self._load(0)

    def meet(self, plane: SlidingSource) -> None:
        if self._cut.gather.depths.taps > 1:
            self._load(plane.kd)

    def _load(self, kd: Expr) -> None:
        cut = self._cut
        sizes = (cut.strip_kernels, cut.rows.axis.taps, cut.columns.axis.taps)
        runs, elements = cut.weight_runs
        lanes = cut.vector(elements, itemsize=cut.itemsize)
        loaded = Registers("w", *sizes, dtype=cut.dtype)
        for run in unrolled("run", runs):
            first = (self._first + run) * cut.taps + kd * cut.plane_taps
            for at in unrolled("vector", elements // lanes):
                value = self._w[span(first + at * lanes, lanes)]
                loaded.put((0, 0, run * elements + at * lanes), value, lanes=lanes)
        self._kernels = loaded
        if cut.dtype != "float32":
            self._kernels = Registers("kernel", *sizes)
            for at in unrolled("element", runs * elements):
                self._kernels[0, 0, at] = in_float32(loaded[0, 0, at])

    def at(self, plane: SlidingSource, kh: Expr, kw: Expr) -> Lane:
        return lambda lane: self._kernels[lane, kh, kw]


@dataclass
class InShared(Weights):
    """The threads of a block bring its kernels into shared memory, channels innermost, for themselves and others.

    Eight neighbouring threads fetch eight neighbouring taps of a kernel, the next eight those of the next kernel."""

    w: Any
    cut: ChannelsLastCut
    first: Expr
    """The first kernel of the block."""
    mine: Expr
    """The first one of the thread, counted from there."""
    thread: Expr

    def stage(self) -> None:
        cut, w = self.cut, as_one_axis(self.w)
        words = cut.taps * cut.pitch
        self._shared = shared("kernels", words, dynamic=cut.shared_bytes > STATIC_SHARED_BYTES)
        across = min(TAPS_FETCHED, cut.threads)
        fetchers = cut.threads // across
        mine, first_tap = bind("fetched", self.thread // across), self.thread % across
        for turn_c in turns("turn_c", -(-cut.block_kernels // fetchers)):
            for turn in turns("turn", -(-cut.taps // across)):
                kernel, tap = turn_c * fetchers + mine, turn * across + first_tap
                conditions = [
                    (cut.threads % across, mine < fetchers),
                    (cut.taps % across, tap < cut.taps),
                    (cut.block_kernels % fetchers, kernel < cut.block_kernels),
                    (cut.channels.idle, self.first + kernel < cut.gather.weights),
                ]
                with when(all_of(*[holds for unsure, holds in conditions if unsure])):
                    value = w[(self.first + kernel) * cut.taps + tap]
                    store(self._shared, in_float32(value), tap * cut.pitch + kernel)

    def load(self) -> None:
        self._tap = Registers("weight", self.cut.weight_lanes)

    def at(self, plane: SlidingSource, kh: Expr, kw: Expr) -> Lane:
        cut = self.cut
        row = plane.kd * cut.rows.axis.taps + kh
        tap = (row * cut.columns.axis.taps + kw) * cut.pitch + self.mine
        if cut.fan_in < cut.gather.fan_in:
            return lambda lane: self._shared[tap + lane * cut.gather.fan_in + plane.m]
        lanes = cut.vector(cut.weight_lanes, itemsize=4)
        for at in unrolled("vector", cut.weight_lanes // lanes):
            self._tap.put((at * lanes,), self._shared[span(tap + at * lanes, lanes)], lanes=lanes)
        return lambda lane: self._tap[(lane,)]


TAPS_FETCHED = 8
"""Taps of one kernel that neighbouring threads fetch at a time: a sector of float32."""


@dataclass
class WeightsInPlace(Weights):
    """Read from global memory at every use: for kernels that are too large for registers and for shared memory."""

    w: Any
    cut: ChannelsLastCut
    first: Expr

    def at(self, plane: SlidingSource, kh: Expr, kw: Expr) -> Lane:
        apart, tap = self.cut.fan_turns, self.cut.gather.axes.index(plane.kd, kh, kw)
        return lambda lane: in_float32(self.w[(self.first + lane * apart + plane.m, *tap)])
