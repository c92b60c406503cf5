"""The kernel of direct strips, for fprop and dgrad: from global memory through registers to global memory.

A thread owns ``tile_h`` rows of ``tile_w`` neighbouring columns of a plane. It goes down the source row by row; each
row is read once, as whole vectors where memory is aligned, and multiplied into all the sums that it meets. A row of
results is stored as soon as its last source row has been added; where several planes are summed, after the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import s_tir, tirx

from dwconv.problems.workload import Workload
from dwconv.schedules.any_size import AnyAxis, any_axes, channels_of, of_any_width
from dwconv.schedules.cuda.emit.sliding_sum import AnyReach, Reach, SlidingSource, SlidingSum, SourceRow
from dwconv.schedules.cuda.emit.words import (
    Registers,
    as_one_axis,
    blocks,
    flat,
    gather_arguments,
    in_float32,
    in_register,
    keep,
    span,
    threads,
    zero,
)
from dwconv.schedules.cuda.fprop_dgrad_nchw_strip.cut import StripCut
from dwconv.schedules.cuda.gpu.memory import slots_of
from dwconv.schedules.emit import BATCH, Expr, all_of, bind, ceil_div, divided, is_number, kernel, store, when
from dwconv.schedules.gather import Gather
from dwconv.schedules.taps import Axis


def schedule_strips(workload: Workload, cut: StripCut) -> s_tir.Schedule:
    """Parameters: source (n, C, H, W), w (weights, KH, KW), perhaps bias (C′), result (n, C′, OH, OW); in 3-D with
    depths before heights."""
    n, gather = tirx.Var(BATCH, "int32"), cut.gather
    if workload.any_size:
        gather = replace(gather, axes=any_axes(workload), channels=channels_of(workload))
    with kernel() as builder:
        source, w, bias, result = gather_arguments(gather, n, dtype=cut.dtype)
        widths = (gather.columns.inputs, cut.source_lanes), (gather.columns.outputs, cut.result_lanes)
        places = _places_at_any_size(cut, gather, n) if workload.any_size else _places(cut, n)
        for image, channel, depth, row, column in places:
            for version in of_any_width(cut, widths):
                least = version.result_lanes
                StripsThread(
                    gather=gather, cut=version, source=source, w=w, bias=bias, result=result,
                    image=image, channel=channel, depth=depth,
                    rows=_reach(gather.rows, cut.tile_h, row, tiles=cut.row_tiles),
                    columns=_reach(gather.columns, cut.tile_w, column, tiles=cut.column_tiles, least=least),
                    rows_ahead=version.rows_ahead if version.has_vectors else min(version.rows_ahead, 1),
                ).sum()  # fmt: skip
    return s_tir.Schedule(builder.get())


Place = tuple[Expr, Expr, Expr, Expr, Expr]
"""The part of a thread: the image, the channel and the depth of a plane of the result, the number of its tile down, and
across."""


def _places(cut: StripCut, n: Expr) -> Iterator[Place]:
    gather, down, across = cut.gather, cut.blocks_h, cut.blocks_w
    for block in blocks("block", ceil_div(n * gather.result_planes, cut.planes) * (down * across)):
        for strip_h, mine, strip_w in _threads(cut):
            row_block = block // across % down if down > 1 else 0
            column_block = block % across if across > 1 else 0
            plane = block // (down * across) * cut.planes + mine
            channel, depth = divided(plane, gather.depths.outputs)  # counted through all images
            with when(gather.result_planes % cut.planes == 0 or plane < n * gather.result_planes):
                yield (
                    channel // gather.channels,
                    channel % gather.channels,
                    depth,
                    row_block * cut.threads_h + strip_h,
                    column_block * cut.threads_w + strip_w,
                )


def _places_at_any_size(cut: StripCut, gather: Gather, n: Expr) -> Iterator[Place]:
    """The axes of the grid save divisions by what is not known when compiling."""
    depths, channels = gather.depths.outputs, ceil_div(gather.channels, cut.planes)
    rows, columns = gather.rows.outputs, gather.columns.outputs
    for plane in blocks("plane", n * depths, axis="z"):
        for row_block in blocks("block_row", ceil_div(rows, cut.threads_h * cut.tile_h), axis="y"):
            for block in blocks("block", ceil_div(columns, cut.threads_w * cut.tile_w) * channels):
                for strip_h, mine, strip_w in _threads(cut):
                    column_block, channel_block = _divided(block, channels)  # of which the number is mostly known
                    image, depth = _divided(plane, depths)
                    channel = channel_block * cut.planes + mine
                    row, column = row_block * cut.threads_h + strip_h, column_block * cut.threads_w + strip_w
                    has_channel = is_number(gather.channels) and gather.channels % cut.planes == 0
                    has_tile = row * cut.tile_h < rows, column * cut.tile_w < columns
                    with when(all_of(has_channel or channel < gather.channels, *has_tile)):
                        yield image, channel, depth, row, column


def _divided(index: Expr, divisor: Expr) -> tuple[Expr, Expr]:
    """The quotient and the rest. TVM does not know that a symbol is positive."""
    if is_number(divisor):
        return divided(index, divisor)
    return bind("quotient", tirx.truncdiv(index, divisor)), bind("rest", tirx.truncmod(index, divisor))


def _threads(cut: StripCut) -> Iterator[tuple[Expr, Expr, Expr]]:
    """(its number down, that of its plane, its number across) of each thread of a block."""
    for strip_h in threads("strip_h", cut.threads_h, axis="z"):
        for plane in threads("plane", cut.planes, axis="y"):
            for strip_w in threads("strip_w", cut.threads_w, axis="x"):
                yield strip_h, plane, strip_w


def _reach(axis: Axis, width: int, index: Expr, *, tiles: int, least: int = 1) -> Reach:
    """``least``: outputs that every tile has, whatever the size."""
    if isinstance(axis, AnyAxis):
        return AnyReach(axis=axis, width=width, tiles=tiles, index=index, least=least)
    return Reach(axis=axis, width=width, tiles=tiles, index=index)


@dataclass(frozen=True, kw_only=True)
class StripsThread(SlidingSum):
    """The work of one thread, with rows that come from global memory."""

    cut: StripCut
    source: Any
    w: Any
    bias: Any | None
    result: Any
    image: Expr
    channel: Expr
    """Of the result."""

    def start(self) -> Expr:
        if self.bias is None:
            return zero("float32")
        return bind("first", in_float32(self.bias[self.channel]))

    def weights(self, plane: SlidingSource) -> Registers:
        weights = Registers("weight", self.gather.rows.taps, self.gather.columns.taps)
        number = self.channel * self.gather.fan_in + plane.m
        for kh in range(self.gather.rows.taps):
            for kw in range(self.gather.columns.taps):
                weights[kh, kw] = in_float32(self.w[(number, *self.gather.axes.index(plane.kd, kh, kw))])
        return weights

    def fetch(self, plane: SlidingSource, at: int) -> SourceRow:
        channel = self.channel // self.gather.fan_out * self.gather.fan_in + plane.m
        index = self.gather.axes.index(plane.depth, self.rows.source(at))
        row = Row.of(self.source, (self.image, channel, *index), self.columns.source(0), lanes=self.cut.source_lanes)
        values = Registers("value", self.cut.source_span, dtype=self.source.dtype)
        slots = slots_of(self.cut.source_pieces)
        for first, lanes in self.cut.source_pieces:
            slot, exists = slots[first], all_of(self.rows.reads(at), self.columns.reads(first, lanes))
            if exists is not True:
                for lane in range(lanes):
                    values[slot + lane] = zero(self.source.dtype)
            if exists is not False:
                with when(exists):
                    values.put(slot, row.tensor[row.index(first, lanes)], lanes=lanes)
        alone = frozenset(first for first, lanes in self.cut.source_pieces if lanes == 1)
        return SourceRow(values=values, slots=slots, alone=alone)

    def write(self, sums: Registers, row: int) -> None:
        rounded, dtype, lanes = sums, self.result.dtype, self.cut.result_lanes
        if dtype != sums.dtype:
            rounded = Registers("result", self.cut.tile_h, self.cut.tile_w, dtype=dtype)
            for out in range(self.cut.tile_w):
                rounded[row, out] = sums[row, out].astype(dtype)
        index = self.gather.axes.index(self.depth, self.rows.result(row))
        to = Row.of(self.result, (self.image, self.channel, *index), self.columns.result(0), lanes=lanes)
        for out in range(0, self.cut.tile_w, lanes):
            with when(all_of(self.rows.writes(row), self.columns.writes(out, lanes))):
                store(to.tensor, rounded.vector((row, out), lanes), *to.index(out, lanes))


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a tensor, seen from the first column of a tile."""

    tensor: Any
    before: tuple[Expr, ...]
    first: Expr

    @classmethod
    def of(cls, tensor: Any, row: Sequence[Expr], first: Expr, *, lanes: int) -> Row:
        """Of any size, elements are counted from one in a register: what is known of others then costs no instruction,
        and TVM sees that vectors are aligned, which ``lanes`` elements are at most."""
        _, *sizes, width = tensor.shape
        if isinstance(width, tirx.IntImm):
            return cls(tensor=tensor, before=tuple(row), first=first)
        vectors = flat((*row, first // lanes), (*sizes, keep("pitch", tirx.truncdiv(width, lanes))))
        return cls(tensor=as_one_axis(tensor), before=(), first=in_register("at", vectors) * lanes)

    def index(self, offset: int, lanes: int) -> tuple[Expr, ...]:
        return (*self.before, span(self.first + offset, lanes))
