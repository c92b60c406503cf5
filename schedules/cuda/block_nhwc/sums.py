"""Sums over pixels, for every channel: of a thread in registers, of a block of threads in shared memory, of all blocks
by a kernel of its own; always in the same order, so the same bits.

Moments are taken about a pivot, a value of the channel, so that no large numbers cancel out. That of a thread is the
first value it meets, that of a block its first thread's, that of all the first block's; sums about one become sums
about another:

    Σ (v − q) = Σ (v − p) + count · (p − q)      Σ (v − q)² = Σ (v − p)² + (p − q) · (2 · Σ (v − p) + count · (p − q))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from dwconv.schedules.cuda.block_nhwc.channels import GpuNormTensors, kept, quotient
from dwconv.schedules.cuda.block_nhwc.cut import ADDING_LANES, MOMENT_ROWS, NORM_ROWS, BlockCut, adding_shares
from dwconv.schedules.cuda.emit.split_sum import sum_over_threads, sums_of_parts
from dwconv.schedules.cuda.emit.words import Registers, barrier, blocks, shared
from dwconv.schedules.emit import Expr, all_of, store, when

FIRST, SECOND, COUNT, PIVOT = range(MOMENT_ROWS)
"""Of moments: Σ (v − pivot), Σ (v − pivot)², how many, and the pivot."""
TOTAL, DOT = range(NORM_ROWS)
"""Of the gradient d of what a norm gives: Σ d, and Σ d · (v − mean)."""


@dataclass(frozen=True, kw_only=True)
class Mates:
    """The threads of a block whose sums meet: ``count`` of them for each of ``threads_c`` vectors of channels."""

    number: Expr
    """The thread's."""
    count: int
    thread_c: Expr
    threads_c: int

    def add(self, sums: Registers) -> None:
        def slot(mate: Expr, width: int) -> Expr:
            return mate * self.threads_c + self.thread_c

        sum_over_threads(sums, mate=self.number, mates=self.count, others=self.threads_c, slot=slot)


@dataclass(frozen=True, kw_only=True)
class VectorPlace:
    """A thread, and its vector of channels."""

    cut: BlockCut
    thread_c: Expr
    vector: Expr

    @property
    def channel(self) -> Expr:
        return self.vector * self.cut.vector_c

    @property
    def has_channels(self) -> Expr:
        return self.vector < self.cut.vectors if self.cut.idle_channels else True

    def mates_of(self, number: Expr, count: int) -> Mates:
        return Mates(number=number, count=count, thread_c=self.thread_c, threads_c=self.cut.threads_c)


@dataclass(frozen=True, kw_only=True)
class Partial:
    """The partial sums of blocks: ``rows`` of all channels for each part, one part after the other."""

    memory: Any
    rows: int
    channels: int

    def at(self, part: Expr, row: Expr, channel: Expr) -> Expr:
        return (part * self.rows + row) * self.channels + channel

    def put(
        self, part: Expr, row: int, channel: Expr, sums: Registers, position: int | tuple[int, ...], *, lanes: int
    ) -> None:
        sums.save(position, self.memory, self.at(part, row, channel), lanes=lanes)


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Those of the values that a thread meets in each of ``lanes`` channels."""

    lanes: int
    sums: Registers
    pivot: Registers
    count: Registers

    @classmethod
    def none(cls, lanes: int) -> Moments:
        moments = cls(
            lanes=lanes,
            sums=Registers("moment", COUNT + 1, lanes),
            pivot=Registers("pivot", lanes),
            count=Registers("count", 1, dtype="int32"),
        )
        for registers in (moments.sums, moments.pivot, moments.count):
            registers.clear()
        return moments

    def begin(self, values: Sequence[Expr]) -> None:
        """The first values are the pivot; to be called before any are added, and if it is time and again."""
        for lane, value in enumerate(values):
            self.pivot[lane] = tirx.Select(self.count[0] == 0, value, self.pivot[lane])

    def add(self, values: Sequence[Expr]) -> None:
        for lane, value in enumerate(values):
            off = kept("off", value - self.pivot[lane])
            self.sums[FIRST, lane] = self.sums[FIRST, lane] + off
            self.sums[SECOND, lane] = self.sums[SECOND, lane] + off * off
        self.count[0] = self.count[0] + 1

    def leave(self, partial: Partial, part: Expr, channel: Expr, mates: Mates, *, has_channels: Expr) -> None:
        """Those of all threads of the block, as its part; all take part."""
        common = shared("pivots", mates.threads_c * self.lanes)
        own = mates.thread_c * self.lanes
        with when(mates.number == 0):
            self.pivot.save(0, common, own, lanes=self.lanes)
        barrier()
        pivots = Registers("common", self.lanes)
        pivots.load(0, common, own, lanes=self.lanes)
        count = kept("pixels", tirx.Cast("float32", self.count[0]))
        for lane in range(self.lanes):
            apart = kept("apart", self.pivot[lane] - pivots[lane])
            first, moved = kept("first", self.sums[FIRST, lane]), kept("moved", count * apart)
            self.sums[FIRST, lane] = first + moved
            self.sums[SECOND, lane] = self.sums[SECOND, lane] + apart * (first + first + moved)
            self.sums[COUNT, lane] = count
        mates.add(self.sums)
        with when(all_of(mates.number == 0, has_channels)):
            for row in (FIRST, SECOND, COUNT):
                partial.put(part, row, channel, self.sums, (row, 0), lanes=self.lanes)
            partial.put(part, PIVOT, channel, pivots, 0, lanes=self.lanes)


# -- kernels that add the parts --------------------------------------------------------------------------------------


def combine_moments(partial: Partial, norm: GpuNormTensors, *, parts: int, pixels: Expr) -> None:
    """A kernel of its own: mean and variance of each channel, of ``pixels`` pixels in float32."""

    def terms(part: Expr, channel: Expr, row: Expr) -> list[Expr]:
        first, second, count, pivot = (partial.memory[partial.at(part, row, channel)] for row in range(MOMENT_ROWS))
        apart = kept("apart", pivot - partial.memory[partial.at(0, PIVOT, channel)])
        first, moved = kept("first", first), kept("moved", kept("count", count) * apart)
        return [first + moved, second + apart * (first + first + moved)]

    for channel, _, totals in _added(partial, terms, parts=parts, sums=2):
        share = kept("share", quotient(tirx.FloatImm("float32", 1.0), pixels))
        off = kept("off", totals[0] * share)
        store(norm.named["mean"], partial.memory[partial.at(0, PIVOT, channel)] + off, channel)
        # Rounding may leave less than nothing; NaN stays.
        variance = kept("variance", (totals[1] - totals[0] * off) * share)
        nothing = tirx.FloatImm("float32", 0.0)
        store(norm.named["var"], tirx.Select(variance < nothing, nothing, variance), channel)


def combine_norm(partial: Partial, norm: GpuNormTensors, *, parts: int) -> None:
    def terms(part: Expr, channel: Expr, row: Expr) -> list[Expr]:
        return [partial.memory[partial.at(part, each, channel)] for each in (TOTAL, DOT)]

    for channel, _, totals in _added(partial, terms, parts=parts, sums=NORM_ROWS):
        for number in (TOTAL, DOT):
            _give_norm(norm, channel, number, totals[number])


def combine_weights(partial: Partial, dw: Any, norm: GpuNormTensors | None, *, parts: int, taps: int) -> None:
    """A kernel of its own: dw (C · taps), from the first rows, and dβ and dγ of each channel, from those behind."""

    def terms(part: Expr, channel: Expr, row: Expr) -> list[Expr]:
        return [partial.memory[partial.at(part, row, channel)]]

    for channel, row, totals in _added(partial, terms, parts=parts, rows=partial.rows):
        with when(row < taps if norm else True):
            store(dw, totals[0].astype(dw.dtype), channel * taps + row)
        if norm:
            for number in (TOTAL, DOT):
                with when(row == taps + number):
                    _give_norm(norm, channel, number, totals[0])


def _give_norm(norm: GpuNormTensors, channel: Expr, number: int, total: Expr) -> None:
    if number == TOTAL:
        store(norm.named["dbeta"], total, channel)
    else:
        store(norm.named["dgamma"], total * norm.inverse_deviation(norm.named["var"][channel]), channel)


def _added(
    partial: Partial, terms: Callable[[Expr, Expr, Expr], list[Expr]], *, parts: int, rows: int = 1, sums: int = 1
) -> Iterator[tuple[Expr, Expr, Registers]]:
    """(channel, row, sums) where a thread has them; ``terms`` are of (part, channel, row)."""
    channels = partial.channels
    for row in blocks("row", rows, axis="y"):

        def of_row(part: Expr, channel: Expr, row: Expr = row) -> list[Expr]:
            return terms(part, channel, row)

        shares = adding_shares(parts)
        for channel, exists, is_first, totals in sums_of_parts(
            "total", of_row, parts=parts, sums=sums, results=channels, lanes=ADDING_LANES, shares=shares,
            is_whole=channels % ADDING_LANES == 0,
        ):  # fmt: skip
            with when(all_of(is_first, exists)):
                yield channel, row, totals
