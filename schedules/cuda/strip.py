"""The kernel of direct strips, for fprop and dgrad: from global memory through registers to global memory.

A thread owns ``tile_h`` rows of ``tile_w`` neighbouring columns. It goes down the source row by row; each row is read
once, as whole vectors where memory is aligned, and multiplied into all the sums that it meets. A row of results is
stored as soon as its last source row has been added.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from dwconv.schedules.cuda.emit import Registers, argument, blocks, in_float32, span, threads, zero
from dwconv.schedules.cuda.reach import Reach, both
from dwconv.schedules.cuda.strip_space import Strip
from dwconv.schedules.emit import BATCH, Expr, ceil_div, kernel, serial, store, when
from dwconv.schedules.gather import Gather

Pairs = list[tuple[int, int]]
"""(output of the tile, tap)"""


def schedule_strip(work: Gather, strip: Strip, *, dtype: str) -> s_tir.Schedule:
    """Parameters: source (n, C, H, W), w (weights, KH, KW), result (n, C′, OH, OW)."""
    n = tirx.Var(BATCH, "int32")
    rows, columns = work.rows, work.columns
    with kernel() as builder:
        source = argument(work.source, (n, work.source_channels, rows.inputs, columns.inputs), dtype)
        w = argument("w", (work.weights, rows.taps, columns.taps), dtype)
        result = argument(work.result, (n, work.channels, rows.outputs, columns.outputs), dtype)
        for plane, row, column in partition(work, strip, n):
            with when(work.channels % strip.planes == 0 or plane < n * work.channels):
                Thread(
                    work=work,
                    strip=strip,
                    source=source,
                    w=w,
                    result=result,
                    plane=plane,
                    rows=Reach(axis=rows, width=strip.tile_h, tiles=strip.row_tiles, index=row),
                    columns=Reach(axis=columns, width=strip.tile_w, tiles=strip.column_tiles, index=column),
                ).sum()
    return s_tir.Schedule(builder.get())


def partition(work: Gather, strip: Strip, n: Expr) -> Iterator[tuple[Expr, Expr, Expr]]:
    """What a thread owns: (a plane of the result, counted through all images, the number of its tile down, across)."""
    down, across = strip.blocks_h, strip.blocks_w
    for block in blocks("block", ceil_div(n * work.channels, strip.planes) * (down * across)):
        for strip_h in threads("strip_h", strip.threads_h, axis="z"):
            for plane in threads("plane", strip.planes, axis="y"):
                for strip_w in threads("strip_w", strip.threads_w, axis="x"):
                    row_block = block // across % down if down > 1 else 0
                    column_block = block % across if across > 1 else 0
                    yield (
                        block // (down * across) * strip.planes + plane,
                        row_block * strip.threads_h + strip_h,
                        column_block * strip.threads_w + strip_w,
                    )


@dataclass(frozen=True, kw_only=True)
class Thread:
    """What one thread does."""

    work: Gather
    strip: Strip
    source: Any
    w: Any
    result: Any
    plane: Expr
    rows: Reach
    columns: Reach

    def sum(self) -> None:
        rows, columns = self.rows.live_reads(), self.columns.live_reads()
        sums = Registers("sum", self.strip.tile_h, self.strip.tile_w)
        sums.clear()
        written: set[int] = set()
        for m in serial("m", self.work.fan_in):
            weights = self._weights(m)
            source_plane = self.plane // self.work.fan_out * self.work.fan_in + m
            for at, values in self._fetched(source_plane, rows):
                for column, pairs in columns.items():
                    for out_row, kh in rows[at]:
                        for out, kw in pairs:
                            sums[out_row, out] = sums[out_row, out] + values[column] * weights[kh, kw]
                if self.work.fan_in == 1:
                    for out_row in self._finished_by(at, rows):
                        self._write(sums, out_row)
                        written.add(out_row)
        for out_row in range(self.strip.tile_h):
            if out_row not in written:
                self._write(sums, out_row)

    def _weights(self, m: Expr) -> Registers:
        """The kernel of the m-th source plane."""
        weights = Registers("weight", self.work.rows.taps, self.work.columns.taps)
        channel = self.plane % self.work.channels * self.work.fan_in + m
        for kh in range(self.work.rows.taps):
            for kw in range(self.work.columns.taps):
                weights[kh, kw] = in_float32(self.w[channel, kh, kw])
        return weights

    # -- source rows -----------------------------------------------------------------------------------------------

    def _fetched(self, plane: Expr, rows: dict[int, Pairs]) -> Iterator[tuple[int, dict[int, Expr]]]:
        """Source rows in order: (offset, values by column offset). A row is asked for some rows before it is used."""
        order = list(rows)
        under_way = [self._fetch(plane, at) for at in order[: self.strip.rows_ahead]]
        for number, at in enumerate(order):
            if number + self.strip.rows_ahead < len(order):
                under_way.append(self._fetch(plane, order[number + self.strip.rows_ahead]))
            yield at, self._in_float32(under_way.pop(0))

    def _fetch(self, plane: Expr, at: int) -> Registers:
        """The source row at offset ``at``, zero where there is none."""
        channels = self.work.source_channels
        values = Registers("value", self.strip.source_span, dtype=self.source.dtype)
        for first, lanes in self.strip.source_pieces:
            slot, exists = self.strip.source_slots[first], both(self.rows.reads(at), self.columns.reads(first, lanes))
            if exists is not True:
                for lane in range(lanes):
                    values[slot + lane] = zero(self.source.dtype)
            if exists is not False:
                with when(exists):
                    columns = span(self.columns.source(first), lanes)
                    row = self.source[plane // channels, plane % channels, self.rows.source(at), columns]
                    values.put(slot, row, lanes=lanes)
        return values

    def _in_float32(self, values: Registers) -> dict[int, Expr]:
        """By column offset."""
        slots = self.strip.source_slots
        held = {first + lane: slots[first] + lane for first, lanes in self.strip.source_pieces for lane in range(lanes)}
        live = {at: held[at] for at in self.columns.live_reads()}
        if values.dtype == "float32":
            return {at: values[slot] for at, slot in live.items()}
        wide = Registers("wide", self.strip.source_span)
        for slot in live.values():
            wide[slot] = in_float32(values[slot])
        return {at: wide[slot] for at, slot in live.items()}

    # -- result rows -----------------------------------------------------------------------------------------------

    @staticmethod
    def _finished_by(at: int, rows: dict[int, Pairs]) -> list[int]:
        """Result rows whose last source row is the one at offset ``at``."""
        later = {out for other, pairs in rows.items() if other > at for out, _ in pairs}
        return sorted({out for out, _ in rows[at]} - later)

    def _write(self, sums: Registers, row: int) -> None:
        rounded, dtype, lanes = sums, self.result.dtype, self.strip.result_lanes
        exists = self.rows.writes(row)
        if exists is False:
            return
        if dtype != sums.dtype:
            rounded = Registers("result", self.strip.tile_h, self.strip.tile_w, dtype=dtype)
            for out in range(self.strip.tile_w):
                rounded[row, out] = sums[row, out].astype(dtype)
        image, channel = self.plane // self.work.channels, self.plane % self.work.channels
        for out in range(0, self.strip.tile_w, lanes):
            with when(both(exists, self.columns.writes(out, lanes))):
                columns = span(self.columns.result(out), lanes)
                store(self.result, rounded.vector((row, out), lanes), image, channel, self.rows.result(row), columns)
