"""The kernel behind fprop and dgrad, NHWC: every result is a sum of what its taps meet in the source.

    result[o, c] = Σ over k of source[meets(o, k), c] · w[c, k]          (schedules/taps.py says what meets what)

A thread owns a strip: a vector of channels × tile_h rows × tile_w columns, its sums in registers. It goes through the
source rows that the strip meets; of each it loads the columns that it needs, once, as whole vectors, and adds them to
all the sums that they meet. Nothing is shared between threads but the weights.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from dwconv.schedules.cuda.emit import Registers, argument, blocks, in_float32, span, threads, unrolled, zero
from dwconv.schedules.cuda.gather_nhwc_cut import AxisCut, Cut, ImageCut
from dwconv.schedules.cuda.gather_nhwc_weights import Weights, weights_of
from dwconv.schedules.emit import (
    BATCH,
    Expr,
    all_of,
    bind,
    inside,
    kernel,
    least,
    most,
    serial,
    store,
    turns_inside,
    when,
)
from dwconv.schedules.taps import SourceLoop, source_loops, tap_groups


def schedule_gather(cut: Cut) -> s_tir.Schedule:
    """Parameters: source (n, H, W, C), w (kernels, KH, KW), result (n, OH, OW, C′)."""
    work, rows, columns = cut.work, cut.work.rows, cut.work.columns
    n = tirx.Var(BATCH, "int32")
    with kernel() as builder:
        source = argument(work.source, (n, rows.inputs, columns.inputs, work.source_channels), cut.dtype)
        w = argument("w", (work.weights, rows.taps, columns.taps), cut.dtype)
        result = argument(work.result, (n, rows.outputs, columns.outputs, work.channels), cut.dtype)
        for place in places(cut, n):
            weights = weights_of(w, cut, block_c=place.block_c, thread_c=place.thread_c, thread=place.thread)
            weights.stage()
            with when(all_of(place.has_strip(cut))):
                weights.load()
                Strip(cut, place, source, result, weights).sum()
    return s_tir.Schedule(builder.get())


# -- who does what -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a thread stands: its image, and which strip of rows, columns and channels it owns."""

    image: Expr
    block_h: Expr
    """The first strip of rows in the block."""
    strip_h: Expr
    strip_w: Expr
    block_c: Expr
    """The first strip of channels in the block."""
    thread_c: Expr
    """The thread's strip of channels, counted from there."""
    thread: Expr
    """The thread's number in the block."""

    @property
    def strip_c(self) -> Expr:
        return self.block_c + self.thread_c

    def has_strip(self, cut: Cut) -> list[Expr]:
        """Conditions that the strip exists; none on an axis where no thread is idle."""
        owned = ((cut.rows, self.strip_h), (cut.columns, self.strip_w), (cut.channels, self.strip_c))
        return [strip < axis.strips for axis, strip in owned if axis.idle]


def places(cut: Cut, n: Expr) -> Iterator[Place]:
    """All threads. Strips of channels are next to each other, in a block and from block to block; then columns."""
    rows, columns, channels = cut.rows, cut.columns, cut.channels
    for block in blocks("block", n * (rows.blocks * columns.blocks * channels.blocks)):
        for z in threads("thread_h", rows.threads, axis="z"):
            for y in threads("thread_w", columns.threads, axis="y"):
                for x in threads("thread_c", channels.threads, axis="x"):
                    rest, block_c = block // channels.blocks, first_strip(block, channels)
                    strip_w = bind("strip_w", first_strip(rest, columns) + y)
                    block_h = bind("block_h", first_strip(rest // columns.blocks, rows))
                    yield Place(
                        image=bind("image", rest // (columns.blocks * rows.blocks)),
                        block_h=block_h, strip_h=bind("strip_h", block_h + z), strip_w=strip_w,
                        block_c=block_c, thread_c=x, thread=(z * columns.threads + y) * channels.threads + x,
                    )  # fmt: skip


def first_strip(block: Expr, axis: AxisCut) -> Expr:
    """Of a block, given its number on this axis and those above."""
    return block % axis.blocks * axis.threads if axis.blocks > 1 else 0


# -- what a thread does --------------------------------------------------------------------------------------------


class Strip:
    """The sums of one thread, and the source row that it is at."""

    def __init__(self, cut: Cut, place: Place, source: Any, result: Any, weights: Weights) -> None:
        self._cut, self._place, self._source, self._result, self._weights = cut, place, source, result, weights
        self._groups = tap_groups(cut.columns.axis, cut.columns.reads)
        self._leftmost = min(cut.columns.reads, default=0)
        self._sums = Registers("sum", cut.rows_summed, cut.columns.tile, cut.channels.tile)
        self._loaded = Registers("loaded", cut.row_slots, cut.source_lanes, dtype=cut.dtype)
        self._row = self._loaded
        if cut.dtype != "float32":
            self._row = Registers("row", cut.row_slots, cut.source_lanes)
            self._rounded = Registers("rounded", cut.channels.tile, dtype=cut.dtype)

    def sum(self) -> None:
        """Rows are written as they become complete."""
        for row in self._rows_unrolled() if self._cut.unroll == "taps" else self._rows_in_loops():
            self._write(row)

    def _rows_unrolled(self) -> Iterator[int]:
        """Straight code for all source rows."""
        self._sums.clear()
        if self._cut.fan_turns == 1:
            yield from self._add_rows(0)
            return
        for m in serial("m", self._cut.fan_turns):
            for _ in self._add_rows(m):
                pass
        yield from range(self._cut.rows.tile)

    def _add_rows(self, m: Expr) -> Iterator[int]:
        rows = self._cut.rows
        last = {row: at for at, pairs in rows.reads.items() for row, _ in pairs}
        yield from (row for row in range(rows.tile) if row not in last)
        for at, pairs in rows.reads.items():
            source_row = self._place.strip_h * rows.step + at
            self._load(source_row, m, row_inside=is_inside(source_row, rows, at))
            for row, kh in pairs:
                self._multiply(row, kh, m)
            yield from dict.fromkeys(row for row, _ in pairs if last[row] == at)

    def _rows_in_loops(self) -> Iterator[int]:
        """Loops over the source rows that are inside the image."""
        rows, origin = self._cut.rows, self._place.strip_h * self._cut.rows.step
        self._loaded.clear()
        for loop in source_loops(rows.axis, rows.tile, together=self._cut.rows_together):
            self._sums.clear()
            bounds = self._turns(loop)
            for m in serial("m", self._cut.fan_turns):
                for turn in serial("turn", *bounds):
                    source_row = origin + loop.at + turn * loop.delta
                    with when(inside(source_row, rows.axis.inputs) if rows.threads > 1 else True):
                        self._load(source_row, m, row_inside=[])
                        self._multiply_rows(loop, turn, m)
            yield from (row for row, _, _ in loop.meetings)

    def _turns(self, loop: SourceLoop) -> tuple[Expr, Expr]:
        """The turns in which some thread of the block is inside the image: at the same time all need the same weights,
        which shared memory gives to all at once."""
        rows, block_h = self._cut.rows, self._place.block_h
        ends = {thread: (block_h + thread) * rows.step + loop.at for thread in (0, rows.threads - 1)}
        bounds = [turns_inside(at, loop.delta, loop.count, size=rows.axis.inputs) for at in ends.values()]
        firsts, stops = zip(*bounds, strict=True)
        return functools.reduce(least, firsts), functools.reduce(most, stops)

    def _multiply_rows(self, loop: SourceLoop, turn: Expr, m: Expr) -> None:
        """Adds the source row to all rows of the strip that it meets."""
        taps = self._cut.rows.axis.taps
        for row, first, period in loop.meetings:
            kh, ends = bind("kh", turn * period + first), (first, first + (loop.count - 1) * period)
            with when(True if min(ends) >= 0 and max(ends) < taps else inside(kh, taps)):
                self._multiply(row % self._cut.rows_summed, kh, m)

    def _load(self, source_row: Expr, m: Expr, *, row_inside: list[Expr]) -> None:
        """The columns of a source row that the strip reads, as float32; of a row that is not inside, zeros. In a
        loop over rows, which are all inside, padding stays zero from the beginning."""
        cut, columns = self._cut, self._cut.columns
        for first, stop in columns.spans:
            for at in unrolled("column", first, stop):
                column, slot = self._place.strip_w * columns.step + at, at - self._leftmost
                conditions = [*row_inside, *is_inside(column, columns, first)]
                if conditions and cut.unroll == "taps":
                    for lane in unrolled("lane", cut.source_lanes):
                        self._loaded[slot, lane] = zero(cut.dtype)
                with when(all_of(conditions)):
                    self._load_channels(source_row, column, slot, m)
                if cut.dtype != "float32":
                    for lane in unrolled("lane", cut.source_lanes):
                        self._row[slot, lane] = in_float32(self._loaded[slot, lane])

    def _load_channels(self, row: Expr, column: Expr, slot: Expr, m: Expr) -> None:
        cut, at = self._cut, (self._place.image, row, column)
        if cut.fan_in < cut.work.fan_in:  # every fan_in-th channel
            first = self._place.strip_c * cut.strip_kernels + m
            for lane in unrolled("lane", cut.source_lanes):
                self._loaded[slot, lane] = self._source[(*at, first + lane * cut.work.fan_in)]
            return
        first = self._place.strip_c * (cut.channels.tile * cut.work.fan_in) // cut.work.fan_out
        lanes = cut.vector(cut.source_lanes, itemsize=cut.itemsize)
        for lane in range(0, cut.source_lanes, lanes):
            self._loaded.put((slot, lane), self._source[(*at, span(first + lane, lanes))], lanes=lanes)

    def _multiply(self, row: Expr, kh: Expr, m: Expr) -> None:
        """Adds the source row, times row ``kh`` of the weights, to row ``row`` of the sums."""
        cut, up = self._cut, self._cut.columns.axis.up
        for group in self._groups:
            for q in unrolled("kw", group.taps):
                weight = self._weights.at(kh, group.tap + q * group.tap_step, m)
                for i in unrolled("column", group.outputs):
                    slot = group.at - self._leftmost + q * group.at_step + i * up
                    for lane in unrolled("lane", cut.weight_lanes):
                        to = (row, group.out + i * group.out_step, lane // cut.fan_in)
                        value = self._row[slot, lane // cut.work.fan_out if cut.source_lanes > 1 else 0]
                        self._sums[to] = self._sums[to] + value * weight(lane)

    def _write(self, row: int) -> None:
        """Row ``row`` of the sums to the result, where it lies in it."""
        cut, place = self._cut, self._place
        lanes, summed = cut.channels.tile, row % cut.rows_summed
        result_row = place.strip_h * cut.rows.tile + row
        with when(result_row < cut.rows.size if cut.rows.ragged and row else True):
            for i in unrolled("column", cut.columns.tile):
                column = place.strip_w * cut.columns.tile + i
                with when(column < cut.columns.size if cut.columns.ragged else True):
                    value = self._sums.vector((summed, i, 0), lanes)
                    if cut.dtype != "float32":
                        for lane in unrolled("lane", lanes):
                            self._rounded[(lane,)] = self._sums[summed, i, lane].astype(cut.dtype)
                        value = self._rounded.vector((0,), lanes)
                    store(self._result, value, place.image, result_row, column, span(place.strip_c * lanes, lanes))


def is_inside(at: Expr, axis: ImageCut, read: int) -> list[Expr]:
    """Conditions that input ``at`` of an axis, the ``read``-th from the origin of the strip, is no padding; none where
    that is known."""
    before = [at >= 0] if axis.may_be_before(read) else []
    return [*before, at < axis.axis.inputs] if axis.may_be_behind(read) else before
