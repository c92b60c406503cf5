"""The kernel of direct strips, for fprop and dgrad: from global memory through registers to global memory.

A thread owns ``tile_h`` rows of ``tile_w`` neighbouring columns of a plane. It goes down the source row by row; each
row is read once, as whole vectors where memory is aligned, and multiplied into all the sums that it meets. A row of
results is stored as soon as its last source row has been added; where several planes are summed, after the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from dwconv.schedules.cuda.emit.sliding_sum import Reach, SlidingSum, SourcePlane, SourceRow
from dwconv.schedules.cuda.emit.words import Registers, argument, blocks, in_float32, span, threads, zero
from dwconv.schedules.cuda.gather_nchw.cut import GatherCut, StripCut
from dwconv.schedules.emit import BATCH, Expr, all_of, bind, ceil_div, divided, kernel, store, when


def arguments(cut: GatherCut, n: Expr) -> tuple[Any, Any, Any | None, Any]:
    """Source, weights, bias if there is one, and result."""
    gather, axes = cut.gather, cut.gather.axes
    source = argument(gather.source, (n, gather.source_channels, *axes.inputs), cut.dtype)
    w = argument("w", (gather.weights, *axes.taps), cut.dtype)
    bias = argument("bias", (gather.channels,), cut.dtype) if gather.bias else None
    return source, w, bias, argument(gather.result, (n, gather.channels, *axes.outputs), cut.dtype)


def schedule_strips(cut: StripCut) -> s_tir.Schedule:
    """Parameters: source (n, C, H, W), w (weights, KH, KW), perhaps bias (C′), result (n, C′, OH, OW); in 3-D with
    depths before heights."""
    n, gather = tirx.Var(BATCH, "int32"), cut.gather
    rows, columns = gather.rows, gather.columns
    with kernel() as builder:
        source, w, bias, result = arguments(cut, n)
        for plane, row, column in partition(cut, n):
            channel, depth = divided(plane, gather.depths.outputs)
            with when(gather.result_planes % cut.planes == 0 or plane < n * gather.result_planes):
                Thread(
                    gather=gather,
                    cut=cut,
                    source=source,
                    w=w,
                    bias=bias,
                    result=result,
                    channel=channel,
                    depth=depth,
                    rows=Reach(axis=rows, width=cut.tile_h, tiles=cut.row_tiles, index=row),
                    columns=Reach(axis=columns, width=cut.tile_w, tiles=cut.column_tiles, index=column),
                    rows_ahead=cut.rows_ahead,
                ).sum()
    return s_tir.Schedule(builder.get())


def partition(cut: StripCut, n: Expr) -> Iterator[tuple[Expr, Expr, Expr]]:
    """The part of each thread: (a plane of the result, counted through all images, the number of its tile down,
    across)."""
    down, across = cut.blocks_h, cut.blocks_w
    for block in blocks("block", ceil_div(n * cut.gather.result_planes, cut.planes) * (down * across)):
        for strip_h in threads("strip_h", cut.threads_h, axis="z"):
            for plane in threads("plane", cut.planes, axis="y"):
                for strip_w in threads("strip_w", cut.threads_w, axis="x"):
                    row_block = block // across % down if down > 1 else 0
                    column_block = block % across if across > 1 else 0
                    yield (
                        block // (down * across) * cut.planes + plane,
                        row_block * cut.threads_h + strip_h,
                        column_block * cut.threads_w + strip_w,
                    )


@dataclass(frozen=True, kw_only=True)
class Thread(SlidingSum):
    """The work of one thread, with rows that come from global memory."""

    cut: StripCut
    source: Any
    w: Any
    bias: Any | None
    result: Any
    channel: Expr
    """Of the result, counted through all images."""

    def start(self) -> Expr:
        if self.bias is None:
            return zero("float32")
        return bind("first", in_float32(self.bias[self.channel % self.gather.channels]))

    def weights(self, plane: SourcePlane) -> Registers:
        weights = Registers("weight", self.gather.rows.taps, self.gather.columns.taps)
        number = self.channel % self.gather.channels * self.gather.fan_in + plane.m
        for kh in range(self.gather.rows.taps):
            for kw in range(self.gather.columns.taps):
                weights[kh, kw] = in_float32(self.w[(number, *self.gather.axes.index(plane.kd, kh, kw))])
        return weights

    def fetch(self, plane: SourcePlane, at: int) -> SourceRow:
        channels = self.gather.source_channels
        channel = self.channel // self.gather.fan_out * self.gather.fan_in + plane.m
        values = Registers("value", self.cut.source_span, dtype=self.source.dtype)
        slots: dict[int, int] = {}
        for first, lanes in self.cut.source_pieces:
            slot, exists = self.cut.source_slots[first], all_of(self.rows.reads(at), self.columns.reads(first, lanes))
            slots.update({first + lane: slot + lane for lane in range(lanes)})
            if exists is not True:
                for lane in range(lanes):
                    values[slot + lane] = zero(self.source.dtype)
            if exists is not False:
                with when(exists):
                    columns = span(self.columns.source(first), lanes)
                    index = self.gather.axes.index(plane.depth, self.rows.source(at), columns)
                    values.put(slot, self.source[(channel // channels, channel % channels, *index)], lanes=lanes)
        alone = frozenset(first for first, lanes in self.cut.source_pieces if lanes == 1)
        return SourceRow(values=values, slots=slots, alone=alone)

    def write(self, sums: Registers, row: int) -> None:
        rounded, dtype, lanes = sums, self.result.dtype, self.cut.result_lanes
        if dtype != sums.dtype:
            rounded = Registers("result", self.cut.tile_h, self.cut.tile_w, dtype=dtype)
            for out in range(self.cut.tile_w):
                rounded[row, out] = sums[row, out].astype(dtype)
        image, channel = self.channel // self.gather.channels, self.channel % self.gather.channels
        for out in range(0, self.cut.tile_w, lanes):
            with when(all_of(self.rows.writes(row), self.columns.writes(out, lanes))):
                columns = span(self.columns.result(out), lanes)
                index = self.gather.axes.index(self.depth, self.rows.result(row), columns)
                store(self.result, rounded.vector((row, out), lanes), image, channel, *index)
