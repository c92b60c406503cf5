"""The kernel behind fprop and dgrad: every result is a sum of what its taps meet in the source.

    result[o, c] = bias[c] + Σ over k of source[meets(o, k), c] · w[c, k]     (schedules/taps.py says what meets what)

One task is some rows of one image, in all channels or a block of them. In a register tile every source vector is
loaded once and multiplied into all the sums that it meets. The weights of a vector of channels stand together in the
workspace: each starts a cache line, and however many channels and taps there are, those in use do not all fall into a
few sets of the cache.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from dwconv.schedules.cpu.emit import Accumulators, Vectors, argument, parallel
from dwconv.schedules.cpu.stream import Stream
from dwconv.schedules.emit import BATCH, Expr, bind, ceil_div, inside, kernel, least, most, nest, serial, store, when
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config
from dwconv.schedules.taps import Axis, Run, TapLoop, column_runs, rolled_column_runs

PARALLEL_PACKING = 8192
"""Weights below this number are packed by one thread: it takes less time than waking the others."""


def schedule_gather(work: Gather, config: Config, *, lanes: int, streamed_above: int | None) -> s_tir.Schedule:
    """Parameters: source (n, H, W, C), w (weights, KH, KW), bias (C′) if there is one, result (n, OH, OW, C′),
    workspace (vectors, fan-in, KH, KW, lanes): packed weights. ``streamed_above``: the result of a larger batch is
    streamed; None: never."""
    rows, columns = work.rows, work.columns
    n = tirx.Var(BATCH, "int32")
    with kernel() as builder:
        source = argument(work.source, (n, rows.inputs, columns.inputs, work.source_channels))
        w = argument("w", (work.channels * work.fan_in, rows.taps, columns.taps))
        bias = argument("bias", (work.channels,)) if work.bias else None
        result = argument(work.result, (n, rows.outputs, columns.outputs, work.channels))
        vectors = Vectors(work.channels, lanes)
        packed = argument("workspace", (vectors.count, work.fan_in, rows.taps, columns.taps, lanes))
        stream = None if streamed_above is None else Stream(result, vectors, n > streamed_above)
        operands = Operands(work, source, packed, bias, result, vectors, stream)

        pack(w, operands)
        for task in tasks(operands, config, n):
            loops = {"h": task.row_tiles, "w": task.column_tiles, "c": task.channel_groups}
            for at in nest(config.order, loops):
                left, run = at["w"]
                tile = Tile(operands, task.image, at["h"], config.tile_h, left, run, operands.vectors.numbered(at["c"]))
                if config.unroll == "taps":
                    tile.sum_unrolled()
                else:
                    for row in range(config.tile_h):
                        tile.sum_row(row, columns_too=config.unroll == "none")
    return s_tir.Schedule(builder.get())


def pack(w: Any, operands: Operands) -> None:
    """packed[v, m, i, j, lane] = w[c · fan_in + m, kh, kw], c that lane's channel in vector v; i and j count kh and kw
    in the order of what they meet."""
    work, vectors = operands.work, operands.vectors
    taps = work.rows.taps * work.columns.taps
    loop = parallel if taps * work.channels * work.fan_in >= PARALLEL_PACKING else serial
    for turn in loop("turn", vectors.count * work.fan_in):
        vector, m = turn // work.fan_in, turn % work.fan_in
        start = bind("start", vectors.start(vector))
        for kh in serial("kh", work.rows.taps):
            for kw in serial("kw", work.columns.taps):
                for lane in serial("lane", vectors.lanes):
                    at = (upwards(work.rows, kh), upwards(work.columns, kw))
                    store(operands.packed, w[(start + lane) * work.fan_in + m, kh, kw], vector, m, *at, lane)


@dataclass(frozen=True)
class Operands:
    """What the kernel reads and writes."""

    work: Gather
    source: Any
    packed: Any
    bias: Any
    result: Any
    vectors: Vectors
    stream: Stream | None
    """Stores the result, where it may be too large for the caches."""

    def finish(self, total: Expr, c: Expr) -> Expr:
        """A sum with the bias. Added last: sums that start from it make LLVM write slower loops than zeros do."""
        return total + self.bias[self.vectors.span(c)] if self.work.bias else total

    def load(self, image: Expr, row: Expr, column: Expr, c: Expr, m: Expr) -> Expr:
        """The source channels that the vector of result channels at ``c`` sums, the ``m``-th of each."""
        channels = self.vectors.span(c * self.work.fan_in + m, self.work.fan_in)
        if self.work.fan_out > 1:
            channels = tirx.floordiv(channels, self.vectors.splat(self.work.fan_out))
        return bind("value", self.source[image, row, column, channels])

    def weight(self, vector: Expr, m: Expr, kh: Expr, kw: Expr) -> Expr:
        at = (upwards(self.work.rows, kh), upwards(self.work.columns, kw))
        return self.packed[(vector, m, *at, self.vectors.span(0))]


@dataclass(frozen=True)
class Task:
    """Rows of one image from ``top`` on, in a block of channels: the loops over its tiles."""

    operands: Operands
    config: Config
    image: Expr
    top: Expr
    first_vector: Expr

    def row_tiles(self) -> Iterator[Expr]:
        """First rows of the tiles."""
        rows, block_h, tile_h = self.operands.work.rows, rows_in_block(self.config), self.config.tile_h
        tiles: Expr = ceil_div(min(block_h, rows.outputs), tile_h)
        if rows.outputs % block_h:
            tiles = least(tiles, ceil_div(rows.outputs - self.top, tile_h))
        for tile in serial("tile_h", tiles):
            yield bind("row", self.top + tile * tile_h)

    def column_tiles(self) -> Iterator[tuple[Expr, Run]]:
        """First columns of the tiles: the left edge, the interior in a loop, the right edge."""
        runs = rolled_column_runs if self.config.unroll == "none" else column_runs
        for run in runs(self.operands.work.columns, self.config.tile_w):
            for tile in serial("tile_w", run.tiles):
                yield bind("column", run.start + tile * run.width), run

    def channel_groups(self) -> Iterator[list[Expr]]:
        """Numbers of the vectors of the tiles."""
        count = vectors_in_block(self.operands.vectors, self.config)
        return self.operands.vectors.groups(self.first_vector, count, self.config.vectors_c)


def tasks(operands: Operands, config: Config, n: Expr) -> Iterator[Task]:
    """Shares out images × blocks of rows × blocks of channels over the threads."""
    row_blocks = ceil_div(operands.work.rows.outputs, rows_in_block(config))
    vectors = vectors_in_block(operands.vectors, config)
    channel_blocks = operands.vectors.count // vectors
    stream = operands.stream
    with stream.defined() if stream else contextlib.nullcontext():
        for task in parallel("task", n * (row_blocks * channel_blocks)):
            image = bind("image", task // (row_blocks * channel_blocks))
            top = bind("top", task // channel_blocks % row_blocks * rows_in_block(config))
            first_vector = task % channel_blocks * vectors if channel_blocks > 1 else 0
            yield Task(operands, config, image, top, first_vector)
        if stream:
            stream.fence()


def vectors_in_block(vectors: Vectors, config: Config) -> int:
    """``block_c``, in vectors; an equal part of all."""
    return vectors.count if config.block_c == vectors.channels else int(config.block_c) // vectors.lanes


def rows_in_block(config: Config) -> int:
    """``block_h``, in whole tiles."""
    return int(ceil_div(config.block_h, config.tile_h) * config.tile_h)


@dataclass(frozen=True)
class Tile:
    """One register tile: ``height`` rows × the columns of a run × some vectors of channels."""

    operands: Operands
    image: Expr
    top: Expr
    height: int
    left: Expr
    run: Run
    channels: list[tuple[Expr, Expr]]
    """Of every vector its number and its first channel."""

    def sum_unrolled(self) -> None:
        """All taps, straight code; one test for each source row keeps out of the padding."""
        rows, columns = self.operands.work.rows, self.operands.work.columns
        sums = Accumulators(self.operands.vectors, self.height, self.run.width, len(self.channels))
        for m in serial("m", self.operands.work.fan_in):
            for row_at, row_pairs in rows.reads(self.height).items():
                row = bind("source_row", rows.origin(self.top) + row_at)
                with when(inside(row, rows.inputs)):
                    for column_at, column_pairs in columns.reads_of(self.run):
                        column = columns.origin(self.left) + column_at
                        for v, (vector, c) in enumerate(self.channels):
                            value = self.operands.load(self.image, row, column, c, m)
                            for out_row, kh in row_pairs:
                                for out_column, kw in column_pairs:
                                    weight = self.operands.weight(vector, m, kh, kw)
                                    sums.add((out_row, out_column, v), value * weight)
        for row in range(self.height):
            with when(self._has(row)):
                self._write(sums, row, row)

    def sum_row(self, row: int, *, columns_too: bool) -> None:
        """Row ``row`` of the tile, with a loop over its kernel rows and, if asked, one over kernel columns."""
        rows, fan_in = self.operands.work.rows, self.operands.work.fan_in
        taps, origin = ascending(rows.tap_loop(row)), rows.origin(self.top)
        add_columns = self._add_rolled_columns if columns_too else self._add_columns
        with when(self._has(row)):
            sums = Accumulators(self.operands.vectors, 1, self.run.width, len(self.channels))
            if taps is not None:
                for m in serial("m", fan_in):
                    for q in serial("q_h", *live(rows, taps, origin)):
                        source_row = bind("source_row", origin + taps.at + q * taps.delta)
                        add_columns(sums, source_row, bind("kh", taps.first + q * taps.period), m)
            self._write(sums, 0, row)

    def _add_columns(self, sums: Accumulators, row: Expr, kh: Expr, m: Expr) -> None:
        columns = self.operands.work.columns
        for column_at, pairs in columns.reads_of(self.run):
            for v, (vector, c) in enumerate(self.channels):
                value = self.operands.load(self.image, row, columns.origin(self.left) + column_at, c, m)
                for out, kw in pairs:
                    sums.add((0, out, v), value * self.operands.weight(vector, m, kh, kw))

    def _add_rolled_columns(self, sums: Accumulators, row: Expr, kh: Expr, m: Expr) -> None:
        columns, width = self.operands.work.columns, self.run.width
        origin = columns.origin(self.left)
        for phase in range(min(columns.down, width)):
            taps = ascending(columns.tap_loop(phase))
            if taps is None:
                continue
            bounds = (0, taps.count) if self.run.interior else live(columns, taps, origin)
            for q in serial("q_w", *bounds):
                for out in range(phase, width, columns.down):
                    column = origin + columns.origin(out - phase) + taps.at + q * taps.delta
                    for v, (vector, c) in enumerate(self.channels):
                        weight = self.operands.weight(vector, m, kh, taps.first + q * taps.period)
                        sums.add((0, out, v), self.operands.load(self.image, row, column, c, m) * weight)

    def _has(self, row: int) -> Expr:
        """Whether row ``row`` of the tile is a row of the result."""
        rows = self.operands.work.rows.outputs
        return True if row == 0 or rows % self.height == 0 else self.top + row < rows

    def _write(self, sums: Accumulators, summed: int, row: int) -> None:
        """Row ``summed`` of the sums to row ``row`` of the tile."""
        for column in range(self.run.width):
            for v, (_, c) in enumerate(self.channels):
                at = (self.image, self.top + row, self.left + column)
                value = self.operands.finish(sums[summed, column, v], c)
                if self.operands.stream:
                    self.operands.stream.store(value, *at, c)
                else:
                    store(self.operands.result, value, *at, self.operands.vectors.span(c))


def upwards(axis: Axis, tap: Expr) -> Expr:
    """The number of a tap in the order of what they meet: LLVM computes an address that falls anew in every turn."""
    return tap if axis.step > 0 else axis.taps - 1 - tap


def ascending(taps: TapLoop | None) -> TapLoop | None:
    """The same taps in the order of what they meet."""
    if taps is None or taps.delta > 0:
        return taps
    last = taps.count - 1
    return TapLoop(
        first=taps.first + last * taps.period, period=-taps.period, count=taps.count,
        at=taps.at + last * taps.delta, delta=-taps.delta,
    )  # fmt: skip


def live(axis: Axis, taps: TapLoop, origin: Expr) -> tuple[Expr, Expr]:
    """The bounds of q within which a tap loop, ascending, stays inside the source."""
    start = origin + taps.at
    first = bind("first", most(ceil_div(-start, taps.delta), 0))
    return first, bind("stop", most(first, least(ceil_div(axis.inputs - start, taps.delta), taps.count)))
