"""The kernel behind fprop and dgrad, NHWC: every result is a sum of what its taps meet in the source.

    result[o, c] = bias[c] + Σ over k of source[meets(o, k), c] · w[c, k]      (schedules/taps.py says what meets what)

A thread owns strips: a vector of channels × tile_h rows × tile_w columns, its sums in registers. It goes through the
source rows that a strip meets; of each it loads the columns that it needs, once, as whole vectors, and adds them to
all the sums that they meet. In 3-D it does that for each plane of the source that its plane meets. Threads share the
weights and, if it is staged, the source under their strips.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from tvm import s_tir, tirx

from dwconv.problems.workload import Workload
from dwconv.schedules.any_size import any_axes, channels_of
from dwconv.schedules.cuda.emit.sliding_sum import SlidingSource, source_planes
from dwconv.schedules.cuda.emit.words import Registers, argument, as_one_axis, barrier, span, unrolled
from dwconv.schedules.cuda.fprop_dgrad_nhwc.cut import ChannelsLastCut
from dwconv.schedules.cuda.fprop_dgrad_nhwc.place import Strip, StripPlace, places, strips
from dwconv.schedules.cuda.fprop_dgrad_nhwc.source import Source, source_of
from dwconv.schedules.cuda.fprop_dgrad_nhwc.weights import Weights, weights_of
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
from dwconv.schedules.tap_loops import SourceLoop, source_loops, tap_groups


def schedule_strips(workload: Workload, cut: ChannelsLastCut) -> s_tir.Schedule:
    """Parameters: source (n, H, W, C), w (kernels, KH, KW), perhaps bias (C′), result (n, OH, OW, C′); in 3-D with
    depths before heights."""
    if workload.any_size:
        cut = cut.on(any_axes(workload), channels_of(workload))
    gather, axes = cut.gather, cut.gather.axes
    n = tirx.Var(BATCH, "int32")
    with kernel() as builder:
        source = argument(gather.source, (n, *axes.inputs, gather.source_channels), cut.dtype)
        w = argument("w", (gather.weights, *axes.taps), cut.dtype)
        bias = argument("bias", (gather.channels,), cut.dtype) if gather.bias else None
        result = argument(gather.result, (n, *axes.outputs, gather.channels), cut.dtype)
        for place in places(cut, n):
            read = source_of(source, cut, place)
            weights = weights_of(w, cut, place)
            read.stage()
            weights.stage()
            read.wait()
            if "shared" in (cut.stage, cut.weights):
                barrier()
            with when(place.has_channels(cut)):
                weights.load()
                start = start_of(cut, bias, place)
                for strip in strips(cut, place):
                    StripSums(strip, read, weights, start, result).add()
    return s_tir.Schedule(builder.get())


# -- what a thread does --------------------------------------------------------------------------------------------


def start_of(cut: ChannelsLastCut, bias: Any, place: StripPlace) -> Callable[[Registers], None]:
    """What sets the sums of a thread to where they start: its part of the bias, or zero."""
    if bias is None:
        return Registers.clear
    lanes = cut.channels.tile
    loaded = Registers("bias", lanes, dtype=cut.dtype)
    loaded.put(0, bias[span(place.strip_c * lanes, lanes)], lanes=lanes)

    def put(sums: Registers) -> None:
        rows, columns, _ = sums.sizes
        for row in unrolled("row", rows):
            for column in unrolled("column", columns):
                for lane in range(lanes):
                    sums[row, column, lane] = loaded.in_float32(lane)

    return put


class StripSums:
    """The sums of one strip, and the source row that it is at."""

    def __init__(self, strip: Strip, source: Source, weights: Weights, start: Any, result: Any) -> None:
        cut = self._cut = strip.cut
        self._strip, self._source, self._weights, self._start, self._result = strip, source, weights, start, result
        self._groups = tap_groups(cut.columns.axis, cut.columns.reads)
        self._leftmost = min(cut.columns.reads, default=0)
        self._sums = Registers("sum", cut.rows_summed, cut.columns.tile, cut.channels.tile)
        slots = max(cut.columns.reads, default=0) - self._leftmost + 1
        self._loaded = Registers("loaded", slots, cut.source_lanes, dtype=cut.dtype)
        self._row = self._loaded
        if cut.dtype != "float32":
            self._row = Registers("row", slots, cut.source_lanes)
            self._rounded = Registers("rounded", cut.channels.tile, dtype=cut.dtype)

    def add(self) -> None:
        self._source.begin(self._strip)
        if self._cut.columns.any_size:
            self._result, self._first = as_one_axis(self._result), self._strip.first
        for row in self._rows_unrolled() if self._cut.unroll == "taps" else self._rows_in_loops():
            self._write(row)

    def _rows_unrolled(self) -> Iterator[int]:
        self._start(self._sums)
        for plane in self._planes():
            for row in self._add_rows(plane):
                if self._cut.goes_once:
                    yield row
        if not self._cut.goes_once:
            yield from range(self._cut.rows.tile)

    def _planes(self) -> Iterator[SlidingSource]:
        for plane in source_planes(self._cut.fan_turns, self._cut.gather.depths, self._strip.place.depth):
            self._weights.meet(plane)
            yield plane

    def _add_rows(self, plane: SlidingSource) -> Iterator[int]:
        rows = self._cut.rows
        last = {row: at for at, pairs in rows.reads.items() for row, _ in pairs}
        yield from (row for row in range(rows.tile) if row not in last)
        for at, pairs in rows.reads.items():
            self._load(plane, at)
            for row, kh in pairs:
                self._multiply(plane, row, kh)
            yield from dict.fromkeys(row for row, _ in pairs if last[row] == at)

    def _rows_in_loops(self) -> Iterator[int]:
        rows, origin = self._cut.rows, self._strip.rows.origin
        self._source.prepare(self._loaded)
        for loop in source_loops(rows.axis, rows.tile, together=self._cut.rows_together):
            self._start(self._sums)
            bounds = self._turns(loop)
            for plane in self._planes():
                for turn in serial("turn", *bounds):
                    at = loop.at + turn * loop.delta
                    is_sure = rows.threads == 1 and not rows.any_size
                    with when(True if is_sure else inside(origin + at, rows.axis.inputs)):
                        self._load(plane, at, is_inside=True)
                        self._multiply_rows(plane, loop, turn)
            yield from (row for row, _, _ in loop.meetings)

    def _turns(self, loop: SourceLoop) -> tuple[Expr, Expr]:
        """The turns in which some thread of the block is inside the image: at the same time all need the same weights,
        which shared memory gives to all at once. Of any size, all turns: so no thread needs to know of others."""
        rows, block_h = self._cut.rows, self._strip.place.block_h
        if rows.any_size:
            return 0, loop.count
        ends = {thread: (block_h + thread) * rows.step + loop.at for thread in (0, rows.threads - 1)}
        bounds = [turns_inside(at, loop.delta, loop.count, size=rows.axis.inputs) for at in ends.values()]
        firsts, stops = zip(*bounds, strict=True)
        # Of a thread all of whose taps lie in the padding, both may be beyond the last turn.
        first, stop = functools.reduce(least, firsts), functools.reduce(most, stops)
        return least(first, loop.count), least(stop, loop.count)

    def _multiply_rows(self, plane: SlidingSource, loop: SourceLoop, turn: Expr) -> None:
        taps = self._cut.rows.axis.taps
        for row, first, period in loop.meetings:
            kh, ends = bind("kh", turn * period + first), (first, first + (loop.count - 1) * period)
            with when(True if min(ends) >= 0 and max(ends) < taps else inside(kh, taps)):
                self._multiply(plane, row % self._cut.rows_summed, kh)

    def _load(self, plane: SlidingSource, row: Expr, *, is_inside: bool = False) -> None:
        """The columns of a source row that the strip reads, as float32. ``row`` is counted from its origin, a number
        unless the row ``is_inside`` the image."""
        cut = self._cut
        self._source.load(self._loaded, self._strip, plane, row, is_inside=is_inside)
        if cut.dtype != "float32":
            for at in cut.columns.reads:
                for lane in range(cut.source_lanes):
                    slot = at - self._leftmost
                    self._row[slot, lane] = self._loaded.in_float32((slot, lane))

    def _multiply(self, plane: SlidingSource, row: Expr, kh: Expr) -> None:
        cut, up = self._cut, self._cut.columns.axis.up
        for group in self._groups:
            for q in unrolled("kw", group.taps):
                weight = self._weights.at(plane, kh, group.tap + q * group.tap_step)
                for i in unrolled("column", group.outputs):
                    slot = group.at - self._leftmost + q * group.at_step + i * up
                    for lane in unrolled("lane", cut.weight_lanes):
                        to = (row, group.out + i * group.out_step, lane // cut.fan_in)
                        value = self._row[slot, lane // cut.gather.fan_out if cut.source_lanes > 1 else 0]
                        self._sums[to] = self._sums[to] + value * weight(lane)

    def _write(self, row: int) -> None:
        cut, strip = self._cut, self._strip
        lanes, summed = cut.channels.tile, row % cut.rows_summed
        has_row = strip.rows.has(row)
        # Of any size the stores of a row have a predicate each: a branch around them keeps loads from going ahead.
        if cut.columns.any_size:
            self._row_first = self._first.after("row", row * cut.columns.size)
        with when(True if cut.columns.any_size else has_row):
            for i in unrolled("column", cut.columns.tile):
                with when(all_of(has_row, strip.columns.has(i)) if cut.columns.any_size else strip.columns.has(i)):
                    value = self._sums.vector((summed, i, 0), lanes)
                    if cut.dtype != "float32":
                        for lane in unrolled("lane", lanes):
                            self._rounded[(lane,)] = self._sums[summed, i, lane].astype(cut.dtype)
                        value = self._rounded.vector((0,), lanes)
                    if cut.columns.any_size:
                        store(self._result, value, span(self._row_first.number(i), lanes))
                        continue
                    at = cut.gather.axes.index(strip.place.depth, strip.rows.first + row, strip.columns.first + i)
                    store(self._result, value, strip.place.image, *at, span(strip.place.strip_c * lanes, lanes))
