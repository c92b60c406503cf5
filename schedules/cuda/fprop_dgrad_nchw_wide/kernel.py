"""The kernel of wide rows, for fprop and dgrad: from shared memory, one kernel row after the other.

A block brings the source rows and the weights of its planes into shared memory, in float32. A thread goes through the
kernel rows that meet the source, and adds a whole row of the kernel at a time into ``tile_w`` neighbouring sums: each
word read from shared memory is used about as often as the kernel is wide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from dwconv.problems.workload import ITEMSIZE
from dwconv.schedules.cuda.emit.sliding_sum import Reach
from dwconv.schedules.cuda.emit.words import (
    Registers,
    as_one_axis,
    barrier,
    blocks,
    gather_arguments,
    in_float32,
    in_turns,
    shared,
    span,
    threads,
)
from dwconv.schedules.cuda.fprop_dgrad_nchw_wide.cut import WideCut
from dwconv.schedules.cuda.fprop_dgrad_nchw_wide.estimate import LOADS_IN_FLIGHT
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, STATIC_SHARED_BYTES
from dwconv.schedules.cuda.gpu.memory import aligned_lanes
from dwconv.schedules.emit import BATCH, Expr, all_of, bind, ceil_div, inside, kernel, least, serial, store, when


def schedule_rows(cut: WideCut) -> s_tir.Schedule:
    """Parameters: source (n, C, H, W), w (weights, KH, KW), perhaps bias (C′), result (n, C′, OH, OW)."""
    n = tirx.Var(BATCH, "int32")
    with kernel() as builder:
        source, w, bias, result = gather_arguments(cut.gather, n, dtype=cut.dtype)
        planes, down, across = n * cut.gather.channels, cut.blocks_h, cut.blocks_w
        dynamic = cut.shared_bytes > STATIC_SHARED_BYTES
        for block in blocks("block", ceil_div(planes, cut.planes) * (down * across)):
            for thread_h in threads("thread_h", cut.threads_h, axis="z"):
                for plane in threads("plane", cut.planes, axis="y"):
                    for thread_w in threads("thread_w", cut.threads_w, axis="x"):
                        WideBlock(
                            cut=cut, source=source, w=w, bias=bias, result=result,
                            staged=shared("staged", cut.shared_bytes // BANK_BYTES, dynamic=dynamic),
                            planes=planes, first_plane=block // (down * across) * cut.planes,
                            row_block=block // across % down if down > 1 else 0,
                            column_block=block % across if across > 1 else 0,
                            plane=plane, down=thread_h, across=thread_w,
                        ).sum()  # fmt: skip
    return s_tir.Schedule(builder.get())


@dataclass(frozen=True, kw_only=True)
class WideBlock:
    """The work of a thread of a block."""

    cut: WideCut
    source: Any
    w: Any
    bias: Any | None
    result: Any
    staged: Any
    """The source planes, then their kernels."""
    planes: Expr
    """Result planes of all images."""
    first_plane: Expr
    """The first plane of the block."""
    row_block: Expr
    column_block: Expr
    plane: Expr
    """In the block; so are the tile's numbers down and across."""
    down: Expr
    across: Expr

    def sum(self) -> None:
        cut, gather = self.cut, self.cut.gather
        sums = Registers("sum", cut.tile_h, cut.tile_w)
        if self.bias is None:
            sums.clear()
        else:
            sums.fill(bind("first", in_float32(self.bias[self._plane(self.plane) % gather.channels])))
        for m in serial("m", gather.fan_in):
            self._fetch_source(m)
            self._fetch_weights(m)
            barrier()
            for row in range(cut.tile_h):
                self._add_row(sums, row)
            if gather.fan_in > 1:
                barrier()
        for row in range(cut.tile_h):
            self._write(sums, row)

    # -- staging ---------------------------------------------------------------------------------------------------

    def _fetch_source(self, m: Expr) -> None:
        """Rows of the source as they lie, zero where there is none, and between rows and planes: then neighbouring
        threads write neighbouring words all the way."""
        cut, gather, lanes = self.cut, self.cut.gather, self.cut.fetch_lanes
        row_vectors, plane_vectors = cut.row_words // lanes, cut.plane_words // lanes
        top = self.row_block * cut.rows.step + cut.rows.first
        left = self.column_block * cut.columns.step + cut.columns.first
        channels = gather.source_channels

        def fetch(value: Registers, item: Expr) -> Expr:
            plane, place = item // plane_vectors, item % plane_vectors
            row, vector = place // row_vectors, place % row_vectors
            image_plane = self._plane(plane) // gather.fan_out * gather.fan_in + m
            column, exists = left + vector * lanes, True
            if cut.plane_words != cut.rows.size * cut.row_words:
                exists = row < cut.rows.size
            if cut.blocks_h > 1:
                exists = all_of(exists, inside(top + row, gather.rows.inputs))
            if cut.blocks_w > 1 or (cut.columns.first, cut.row_words) != (0, gather.columns.inputs):
                exists = all_of(exists, inside(column, gather.columns.inputs))
            if exists is not True:
                value.clear()
            with when(exists):
                at = (image_plane // channels, image_plane % channels, top + row, span(column, lanes))
                value.put(0, self.source[at], lanes=lanes)
            return item * lanes

        def keep(value: Registers, at: Expr) -> None:
            wide = Registers("wide", lanes)
            for lane in range(lanes):
                wide[lane] = in_float32(value[lane])
            store(self.staged, wide.vector(0, lanes), span(at, lanes))

        self._in_turns(cut.planes * plane_vectors, lanes, fetch, keep)

    def _fetch_weights(self, m: Expr) -> None:
        cut, taps, words = self.cut, self.cut.gather.columns.taps, self.cut.weight_words
        w, kernel_rows = as_one_axis(self.w), self.cut.gather.rows.taps

        def fetch(value: Registers, item: Expr) -> Expr:
            kw, row = item % words, item // words
            if words != taps:
                value.clear()
            with when(words == taps or kw < taps):
                value[0] = w[self._kernel_row(row, m) * taps + kw]
            pad = cut.kernel_words - kernel_rows * words
            return cut.kernels_at + item + row // kernel_rows * pad

        def keep(value: Registers, at: Expr) -> None:
            store(self.staged, in_float32(value[0]), at)

        self._in_turns(cut.planes * kernel_rows * words, 1, fetch, keep)

    def _kernel_row(self, row: Expr, m: Expr) -> Expr:
        cut, gather, kernel_rows = self.cut, self.cut.gather, self.cut.gather.rows.taps
        if gather.channels % cut.planes == 0 and gather.fan_in == 1:  # they are one piece of memory
            return self.first_plane % gather.channels * kernel_rows + row
        channel = self._plane(row // kernel_rows) % gather.channels * gather.fan_in + m
        return channel * kernel_rows + row % kernel_rows

    def _plane(self, plane: Expr) -> Expr:
        """The result plane of the block with that number; in the last block, the last one again and again."""
        at = self.first_plane + plane
        return at if self.cut.gather.channels % self.cut.planes == 0 else least(at, self.planes - 1)

    def _in_turns(
        self, items: int, lanes: int, fetch: Callable[[Registers, Expr], Expr], keep: Callable[[Registers, Expr], None]
    ) -> None:
        cut = self.cut
        in_turns(
            items,
            thread=(self.down * cut.planes + self.plane) * cut.threads_w + self.across,
            threads=cut.threads,
            most=LOADS_IN_FLIGHT * BANK_BYTES // ITEMSIZE[cut.dtype],
            value=lambda: Registers("value", lanes, dtype=self.source.dtype),
            fetch=fetch,
            keep=keep,
        )

    # -- one row of the tile -----------------------------------------------------------------------------------------

    def _add_row(self, sums: Registers, row: int) -> None:
        cut, rows = self.cut, self.cut.gather.rows
        taps = rows.tap_loop(row)
        if taps is None:
            return
        origin = (self.row_block * cut.threads_h + self.down) * rows.origin(cut.tile_h)
        top = self.row_block * cut.rows.step + cut.rows.first
        for q in serial("q", taps.count):
            source_row = origin + (taps.at + q * taps.delta)
            with when(inside(source_row, rows.inputs)):
                self._add_taps(sums, row, source_row - top, taps.first + q * taps.period)

    def _add_taps(self, sums: Registers, row: int, source_row: Expr, kh: Expr) -> None:
        cut = self.cut
        apart = cut.gather.columns.origin(cut.tile_w)
        reads, lanes = self._columns.live_reads(), cut.shared_lanes
        weights = Registers("tap", cut.weight_words)
        for kw in range(0, cut.weight_words, cut.weight_lanes):
            at = cut.kernels_at + self.plane * cut.kernel_words + kh * cut.weight_words + kw
            weights.put(kw, self.staged[span(at, cut.weight_lanes)], lanes=cut.weight_lanes)
        start = self.plane * cut.plane_words + source_row * cut.row_words + self.across * apart
        for first in sorted({at // lanes * lanes for at in reads}):
            value = Registers("pixel", lanes)
            value.put(0, self.staged[span(start + (first - cut.columns.first), lanes)], lanes=lanes)
            for lane in range(lanes):
                for out, kw in reads.get(first + lane, ()):
                    sums[row, out] = sums[row, out] + value[lane] * weights[kw]

    @property
    def _columns(self) -> Reach:
        cut, index = self.cut, self.column_block * self.cut.threads_w + self.across
        return Reach(axis=cut.gather.columns, width=cut.tile_w, tiles=cut.column_tiles, index=index)

    @property
    def _rows(self) -> Reach:
        cut, index = self.cut, self.row_block * self.cut.threads_h + self.down
        return Reach(axis=cut.gather.rows, width=cut.tile_h, tiles=cut.row_tiles, index=index)

    def _write(self, sums: Registers, row: int) -> None:
        cut, gather, dtype = self.cut, self.cut.gather, self.result.dtype
        lanes = aligned_lanes(cut.tile_w, gather.columns.outputs, itemsize=ITEMSIZE[cut.dtype])
        plane = self.first_plane + self.plane
        exists = all_of(gather.channels % cut.planes == 0 or plane < self.planes, self._rows.writes(row))
        rounded = sums
        if dtype != "float32":
            rounded = Registers("result", cut.tile_h, cut.tile_w, dtype=dtype)
            for out in range(cut.tile_w):
                rounded[row, out] = sums[row, out].astype(dtype)
        for out in range(0, cut.tile_w, lanes):
            written = all_of(exists, self._columns.writes(out, lanes))
            if written is not False:
                with when(written):
                    of_plane = plane // gather.channels, plane % gather.channels
                    at = (*of_plane, self._rows.result(row), span(self._columns.result(out), lanes))
                    store(self.result, rounded.vector((row, out), lanes), *at)
