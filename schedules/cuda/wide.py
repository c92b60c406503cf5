"""The kernel of wide rows, for fprop and dgrad: from shared memory, one kernel row after the other.

A block brings the source rows and the weights of its planes into shared memory, in float32. A thread goes through the
kernel rows that meet the source, and adds a whole row of the kernel at a time into ``tile_w`` neighbouring sums: each
word read from shared memory is used about as often as the kernel is wide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from dwconv.schedules.cuda.emit import (
    STATIC_SHARED_BYTES,
    Registers,
    argument,
    as_one_axis,
    barrier,
    blocks,
    in_float32,
    shared,
    span,
    threads,
)
from dwconv.schedules.cuda.reach import Reach, both
from dwconv.schedules.cuda.strip_space import aligned_lanes
from dwconv.schedules.cuda.turns import in_turns
from dwconv.schedules.cuda.wide_space import Wide
from dwconv.schedules.emit import BATCH, Expr, bind, ceil_div, inside, kernel, least, serial, store, when
from dwconv.schedules.gather import Gather
from dwconv.workload import ITEMSIZE

LOADS_IN_FLIGHT = 9
"""Of one thread while it stages; of 16-bit elements twice as many."""


def schedule_wide(work: Gather, tiles: Wide) -> s_tir.Schedule:
    """Parameters: source (n, C, H, W), w (weights, KH, KW), perhaps bias (C′), result (n, C′, OH, OW)."""
    n = tirx.Var(BATCH, "int32")
    rows, columns = work.rows, work.columns
    with kernel() as builder:
        source = argument(work.source, (n, work.source_channels, rows.inputs, columns.inputs), tiles.dtype)
        w = argument("w", (work.weights, rows.taps, columns.taps), tiles.dtype)
        bias = argument("bias", (work.channels,), tiles.dtype) if work.bias else None
        result = argument(work.result, (n, work.channels, rows.outputs, columns.outputs), tiles.dtype)
        for place in partition(tiles, n):
            block = Block(
                tiles=tiles,
                source=source,
                w=w,
                bias=bias,
                result=result,
                staged=shared("staged", tiles.shared_bytes // 4, dynamic=tiles.shared_bytes > STATIC_SHARED_BYTES),
                place=place,
            )
            block.sum()
    return s_tir.Schedule(builder.get())


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a thread stands."""

    planes: Expr
    """Result planes of all images."""
    first_plane: Expr
    """Of the block."""
    row_block: Expr
    column_block: Expr
    plane: Expr
    """In the block; so are the tile's numbers down and across."""
    down: Expr
    across: Expr


def partition(tiles: Wide, n: Expr) -> Iterator[Place]:
    """Blocks of planes and of the plane; threads across, then over the planes, then down."""
    planes, down, across = n * tiles.work.channels, tiles.blocks_h, tiles.blocks_w
    for block in blocks("block", ceil_div(planes, tiles.planes) * (down * across)):
        for thread_h in threads("thread_h", tiles.threads_h, axis="z"):
            for plane in threads("plane", tiles.planes, axis="y"):
                for thread_w in threads("thread_w", tiles.threads_w, axis="x"):
                    yield Place(
                        planes=planes,
                        first_plane=block // (down * across) * tiles.planes,
                        row_block=block // across % down if down > 1 else 0,
                        column_block=block % across if across > 1 else 0,
                        plane=plane,
                        down=thread_h,
                        across=thread_w,
                    )


@dataclass(frozen=True, kw_only=True)
class Block:
    """What the threads of a block do."""

    tiles: Wide
    source: Any
    w: Any
    bias: Any | None
    result: Any
    staged: Any
    """The source planes, then their kernels."""
    place: Place

    def sum(self) -> None:
        tiles, work = self.tiles, self.tiles.work
        sums = Registers("sum", tiles.tile_h, tiles.tile_w)
        if self.bias is None:
            sums.clear()
        else:
            sums.fill(bind("first", in_float32(self.bias[self._plane(self.place.plane) % work.channels])))
        for m in serial("m", work.fan_in):
            self._fetch_source(m)
            self._fetch_weights(m)
            barrier()
            for row in range(tiles.tile_h):
                self._add_row(sums, row)
            if work.fan_in > 1:
                barrier()
        for row in range(tiles.tile_h):
            self._write(sums, row)

    # -- staging ---------------------------------------------------------------------------------------------------

    def _fetch_source(self, m: Expr) -> None:
        """Rows of the source as they lie, zero where there is none, and between rows and planes: then neighbouring
        threads write neighbouring words all the way."""
        tiles, work, lanes = self.tiles, self.tiles.work, self.tiles.fetch_lanes
        row_vectors, plane_vectors = tiles.row_words // lanes, tiles.plane_words // lanes
        top = self.place.row_block * tiles.rows.step + tiles.rows.first
        left = self.place.column_block * tiles.columns.step + tiles.columns.first
        channels = work.source_channels

        def fetch(value: Registers, item: Expr) -> Expr:
            plane, place = item // plane_vectors, item % plane_vectors
            row, vector = place // row_vectors, place % row_vectors
            image_plane = self._plane(plane) // work.fan_out * work.fan_in + m
            column, exists = left + vector * lanes, True
            if tiles.plane_words != tiles.rows.size * tiles.row_words:
                exists = row < tiles.rows.size
            if tiles.blocks_h > 1:
                exists = both(exists, inside(top + row, work.rows.inputs))
            if tiles.blocks_w > 1 or (tiles.columns.first, tiles.row_words) != (0, work.columns.inputs):
                exists = both(exists, inside(column, work.columns.inputs))
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

        self._in_turns(tiles.planes * plane_vectors, lanes, fetch, keep)

    def _fetch_weights(self, m: Expr) -> None:
        """Rows of the kernels, filled up with zeros to whole vectors."""
        tiles, taps, words = self.tiles, self.tiles.work.columns.taps, self.tiles.weight_words
        w, kernel_rows = as_one_axis(self.w), self.tiles.work.rows.taps

        def fetch(value: Registers, item: Expr) -> Expr:
            kw, row = item % words, item // words
            if words != taps:
                value.clear()
            with when(words == taps or kw < taps):
                value[0] = w[self._kernel_row(row, m) * taps + kw]
            pad = tiles.kernel_words - kernel_rows * words
            return tiles.kernels_at + item + row // kernel_rows * pad

        def keep(value: Registers, at: Expr) -> None:
            store(self.staged, in_float32(value[0]), at)

        self._in_turns(tiles.planes * kernel_rows * words, 1, fetch, keep)

    def _kernel_row(self, row: Expr, m: Expr) -> Expr:
        """The row of ``w`` that is the ``row``-th of the block's kernels."""
        tiles, work, kernel_rows = self.tiles, self.tiles.work, self.tiles.work.rows.taps
        if work.channels % tiles.planes == 0 and work.fan_in == 1:  # they are one piece of memory
            return self.place.first_plane % work.channels * kernel_rows + row
        channel = self._plane(row // kernel_rows) % work.channels * work.fan_in + m
        return channel * kernel_rows + row % kernel_rows

    def _plane(self, plane: Expr) -> Expr:
        """The result plane of the block with that number; in the last block, the last one again and again."""
        at = self.place.first_plane + plane
        return at if self.tiles.work.channels % self.tiles.planes == 0 else least(at, self.place.planes - 1)

    def _kernel(self, plane: Expr) -> Expr:
        """Where the weights of a plane of the block begin in shared memory."""
        return self.tiles.kernels_at + plane * self.tiles.kernel_words

    def _in_turns(
        self,
        items: int,
        lanes: int,
        fetch: Callable[[Registers, Expr], Expr],
        keep: Callable[[Registers, Expr], None],
    ) -> None:
        """Shares out ``items`` over the threads; a thread has some loads under way before it stores the first."""
        tiles, place = self.tiles, self.place
        in_turns(
            items,
            thread=(place.down * tiles.planes + place.plane) * tiles.threads_w + place.across,
            threads=tiles.threads,
            most=LOADS_IN_FLIGHT * 4 // ITEMSIZE[tiles.dtype],
            value=lambda: Registers("value", lanes, dtype=self.source.dtype),
            fetch=fetch,
            keep=keep,
        )

    # -- one row of the tile -----------------------------------------------------------------------------------------

    def _add_row(self, sums: Registers, row: int) -> None:
        """Adds the kernel rows that meet the source in row ``row`` of the tile."""
        tiles, rows = self.tiles, self.tiles.work.rows
        taps = rows.tap_loop(row)
        if taps is None:
            return
        origin = (self.place.row_block * tiles.threads_h + self.place.down) * rows.origin(tiles.tile_h)
        top = self.place.row_block * tiles.rows.step + tiles.rows.first
        for q in serial("q", taps.count):
            source_row = origin + (taps.at + q * taps.delta)
            with when(inside(source_row, rows.inputs)):
                self._add_taps(sums, row, source_row - top, taps.first + q * taps.period)

    def _add_taps(self, sums: Registers, row: int, source_row: Expr, kh: Expr) -> None:
        tiles, place = self.tiles, self.place
        apart = tiles.work.columns.origin(tiles.tile_w)
        reads, lanes = self._columns.live_reads(), tiles.shared_lanes
        weights = Registers("tap", tiles.weight_words)
        for kw in range(0, tiles.weight_words, tiles.weight_lanes):
            at = self._kernel(place.plane) + kh * tiles.weight_words + kw
            weights.put(kw, self.staged[span(at, tiles.weight_lanes)], lanes=tiles.weight_lanes)
        start = place.plane * tiles.plane_words + source_row * tiles.row_words + place.across * apart
        for first in sorted({at // lanes * lanes for at in reads}):
            value = Registers("pixel", lanes)
            value.put(0, self.staged[span(start + (first - tiles.columns.first), lanes)], lanes=lanes)
            for lane in range(lanes):
                for out, kw in reads.get(first + lane, ()):
                    sums[row, out] = sums[row, out] + value[lane] * weights[kw]

    @property
    def _columns(self) -> Reach:
        place, tiles = self.place, self.tiles
        index = place.column_block * tiles.threads_w + place.across
        return Reach(axis=tiles.work.columns, width=tiles.tile_w, tiles=tiles.column_tiles, index=index)

    @property
    def _rows(self) -> Reach:
        place, tiles = self.place, self.tiles
        index = place.row_block * tiles.threads_h + place.down
        return Reach(axis=tiles.work.rows, width=tiles.tile_h, tiles=tiles.row_tiles, index=index)

    def _write(self, sums: Registers, row: int) -> None:
        tiles, work, dtype = self.tiles, self.tiles.work, self.result.dtype
        lanes = aligned_lanes(tiles.tile_w, work.columns.outputs, ITEMSIZE[tiles.dtype])
        plane = self.place.first_plane + self.place.plane
        exists = both(work.channels % tiles.planes == 0 or plane < self.place.planes, self._rows.writes(row))
        rounded = sums
        if dtype != "float32":
            rounded = Registers("result", tiles.tile_h, tiles.tile_w, dtype=dtype)
            for out in range(tiles.tile_w):
                rounded[row, out] = sums[row, out].astype(dtype)
        for out in range(0, tiles.tile_w, lanes):
            written = both(exists, self._columns.writes(out, lanes))
            if written is not False:
                with when(written):
                    at = (self._rows.result(row), span(self._columns.result(out), lanes))
                    store(
                        self.result,
                        rounded.vector((row, out), lanes),
                        plane // work.channels,
                        plane % work.channels,
                        *at,
                    )
