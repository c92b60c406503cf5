"""The kernel behind wgrad in NCHW: every weight is the correlation of a plane of the input with one of the gradient.

    dw[c, k] = Σ over n, o of x[n, c // multiplier, o·stride + k·dilation − padding] · dy[n, c, o]

Vectors lie along a row. A tile of dy stays in registers while the rows of x that it meets go by: an x is loaded once
for each kernel column, and meets as many dy as there are kernel rows in the group. The lanes of each sum are added up
once, at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dwconv.schedules.cpu.correlate_nchw_space import TapParts, row_tiles, tap_parts
from dwconv.schedules.cpu.emit import Accumulators, Vectors, argument, parallel
from dwconv.schedules.cpu.gather_nchw_space import column_tiles
from dwconv.schedules.cpu.planes import InPlace, Rows, Staging, keep, load_columns, total
from dwconv.schedules.emit import BATCH, Expr, bind, inside, kernel, serial, store, when
from dwconv.schedules.space import Config
from dwconv.schedules.taps import Axis, column_runs
from dwconv.workload import Workload

PARALLEL_SUM = 16384
"""Partial sums below this number are added up by one thread: it takes less time than waking the others."""


def schedule_correlation_nchw(workload: Workload, config: Config, *, lanes: int) -> s_tir.Schedule:
    """Parameters: x (n, C, H, W), dy (n, C·M, OH, OW), dw (C·M, KH, KW), dbias (C·M) if there is a bias and,
    if tasks are planes, what each image gives: workspace (n, C·M, KH, KW) and, for the bias, workspace_1 (n, C·M)."""
    rows, columns = Axis.of_convolution(workload, 0), Axis.of_convolution(workload, 1)
    channels = workload.out_channels
    n = tirx.Var(BATCH, "int32")
    with kernel() as builder:
        x = argument("x", (n, workload.channels, rows.inputs, columns.inputs))
        dy = argument("dy", (n, channels, rows.outputs, columns.outputs))
        dw = argument("dw", workload.weight_shape)
        results = Results(dw, argument("dbias", (channels,)) if workload.bias else None)
        operands = Operands(x, dy, rows, columns, workload.multiplier, Vectors(columns.outputs, lanes), config)
        if config.parallel == "channels":
            for channel in parallel("channel", channels):
                correlation = Correlation.allocate(operands)
                correlation.add_up(channel, (0, n), results)
        else:
            partial = argument("workspace", (n, channels, *workload.kernel))
            partial_bias = argument("workspace_1", (n, channels)) if workload.bias else None
            for task in parallel("task", n * channels):
                image, channel = bind("image", task // channels), bind("channel", task % channels)
                correlation = Correlation.allocate(operands)
                correlation.add_up(channel, (image, image + 1), Results(partial, partial_bias, (image,)))
            add_images(partial, dw, n)
            if workload.bias:
                add_images(partial_bias, results.dbias, n)
    return s_tir.Schedule(builder.get())


@dataclass(frozen=True)
class Results:
    """Where the gradient of the weights goes, and that of the bias; ``at`` is what comes before the channel."""

    dw: Any
    dbias: Any
    at: tuple[Expr, ...] = ()

    def put_weight(self, value: Expr, channel: Expr, kh: Expr, kw: Expr) -> None:
        store(self.dw, value, *self.at, channel, kh, kw)

    def put_bias(self, value: Expr, channel: Expr) -> None:
        store(self.dbias, value, *self.at, channel)


def add_images(partial: Any, result: Any, n: Expr) -> None:
    """In the order of the images, whichever thread summed them: the same bits every time."""
    channels, *taps = (int(size) for size in result.shape)
    loop = parallel if channels * math.prod(taps) > PARALLEL_SUM else serial
    for channel in loop("channel", channels):
        for at in positions(taps):
            store(result, tirx.FloatImm("float32", 0.0), channel, *at)
        for image in serial("image", n):
            for at in positions(taps):
                store(result, result[(channel, *at)] + partial[(image, channel, *at)], channel, *at)


def positions(sizes: Sequence[int]) -> Iterator[tuple[Expr, ...]]:
    """Loops over all positions of an array."""
    if not sizes:
        yield ()
        return
    for first in serial("tap", sizes[0]):
        for rest in positions(sizes[1:]):
            yield (first, *rest)


@dataclass(frozen=True)
class Operands:
    """What the kernel reads, and how."""

    x: Any
    dy: Any
    rows: Axis
    columns: Axis
    multiplier: int
    vectors: Vectors
    config: Config

    @property
    def one_vector(self) -> bool:
        """Whether a row of dy is one vector: then which lanes count is the same for all that a sum is made of."""
        return self.columns.outputs <= self.vectors.lanes

    def live(self, column: Expr, at: int) -> tuple[int, int] | None:
        """The lanes of a tile at ``column`` where both an x and a dy are, None if all. In the others there is a zero
        on one side, but perhaps what is not finite on the other."""
        if not isinstance(column, int):
            return None
        columns, lanes = self.columns, self.vectors.lanes
        nearest = columns.origin(column) + at
        first = max(0, -(nearest // columns.up))
        stop = min(lanes, columns.outputs - column, -((nearest - columns.inputs) // columns.up))
        return None if (first, stop) == (0, lanes) else (first, stop)

    def total(self, value: Expr, kw: int) -> Expr:
        """The sum of the lanes that count of what tap ``kw`` summed up."""
        at = self.columns.step * kw + self.columns.shift
        return total(self.vectors, keep(self.vectors, value, self.live(0, at) if self.one_vector else None))


@dataclass(frozen=True)
class TapGroup:
    """The taps that are summed at the same time: ``height`` × ``width`` from (kh, kw) on."""

    kh: Expr
    height: int
    kw: int
    width: int


@dataclass(frozen=True)
class Correlation:
    """The weights of one channel, and the scratch memory of their task."""

    operands: Operands
    parts: TapParts
    staging: Staging | None
    staged: Any
    totals: Any
    """The vectors of sums of all taps, where they are too many for registers."""

    @classmethod
    def allocate(cls, operands: Operands) -> Correlation:
        config, vectors = operands.config, operands.vectors
        parts = tap_parts(operands.rows.taps, operands.columns.taps, config)
        staging = totals = None
        if config.stage == "scratch":
            staging = Staging.of(operands.rows, operands.columns, vectors=vectors, block_h=config.block_h, planes=1)
        if not parts.one:
            shape = (operands.rows.taps, operands.columns.taps, vectors.lanes)
            totals = IRBuilder.name("totals", T.alloc_buffer(shape, "float32", scope="global"))
            for kh in serial("kh", shape[0]):
                for kw in serial("kw", shape[1]):
                    store(totals, vectors.zero(), kh, kw, vectors.span(0))
        return cls(operands, parts, staging, staging.allocate() if staging else None, totals)

    def add_up(self, channel: Expr, images: tuple[Expr, Expr], results: Results) -> None:
        """The gradients of ``channel`` over ``images``."""
        rows, vectors = self.operands.rows, self.operands.vectors
        block_h = self.operands.config.block_h
        sums = Accumulators(vectors, rows.taps, self.operands.columns.taps) if self.parts.one else None
        bias = Accumulators(vectors, 1) if results.dbias is not None else None
        for image in serial("image", *images):
            for block in serial("block", rows.outputs // block_h):
                top = bind("top", block * block_h)
                reader = self._reader((image, channel // self.operands.multiplier), top)
                if bias is not None:
                    self._add_gradient(bias, (image, channel), top)
                for taps in self._groups():
                    tile = Tile(self.operands, reader, taps, (image, channel))
                    if sums is not None:
                        tile.add_rows(sums, top)
                    else:
                        group = Accumulators(vectors, taps.height, taps.width)
                        tile.add_rows(group, top)
                        for (a, b), value in group.items():
                            where = (taps.kh + a, taps.kw + b, vectors.span(0))
                            store(self.totals, self.totals[where] + value, *where)
        if bias is not None:
            results.put_bias(total(vectors, bias[(0,)]), channel)
        if sums is not None:
            for (kh, kw), value in sums.items():
                results.put_weight(self.operands.total(value, kw), channel, kh, kw)
            return
        for kh in serial("kh", rows.taps):
            for kw in range(self.operands.columns.taps):
                value = bind("value", self.totals[kh, kw, vectors.span(0)])
                results.put_weight(self.operands.total(value, kw), channel, kh, kw)

    def _add_gradient(self, bias: Accumulators, plane: tuple[Expr, Expr], top: Expr) -> None:
        """The block of dy from row ``top`` on."""
        operands = self.operands
        for row in serial("row", operands.config.block_h):
            for run in column_tiles(operands.columns, width=operands.vectors.lanes, stage="scratch"):
                for tile in serial("tile_w", run.tiles):
                    column = run.start + tile * run.width
                    bias.add((0,), load_columns(operands.vectors, operands.dy, (*plane, top + row), column))

    def _reader(self, first: tuple[Expr, Expr], top: Expr) -> Rows:
        operands = self.operands
        if self.staging is None:
            return InPlace(operands.vectors, operands.columns, operands.x, first)
        return self.staging.fill(
            self.staged, operands.x, first, bind("x_top", operands.rows.origin(top) + operands.rows.spanned(1)[0])
        )

    def _groups(self) -> Iterator[TapGroup]:
        """Groups of kernel rows are a loop, and what is left over; those of kernel columns follow each other."""
        for first, count, height in self.parts.rows:
            for turn in serial("kh", count):
                for kw, width in self.parts.columns:
                    yield TapGroup(bind("kh", first + turn * height), height, kw, width)


@dataclass(frozen=True)
class Tile:
    """A group of taps on its way through a plane, ``tile_h`` rows × one vector of dy at a time."""

    operands: Operands
    reader: Rows
    taps: TapGroup
    plane: tuple[Expr, Expr]
    """(image, channel) of dy."""

    def add_rows(self, sums: Accumulators, top: Expr) -> None:
        """What the block of rows from ``top`` on gives."""
        operands = self.operands
        for first, count, height in row_tiles(operands.config):
            for turn in serial("tile_h", count):
                row = bind("row", top + first + turn * height)
                for run in column_runs(operands.columns, operands.vectors.lanes):
                    for tile in serial("tile_w", run.tiles):
                        self._add_tile(sums, row, height, bind("column", run.start + tile * run.width))

    def _add_tile(self, sums: Accumulators, row: Expr, height: int, column: Expr) -> None:
        operands, taps = self.operands, self.taps
        gradient = [
            bind("dy_value", load_columns(operands.vectors, operands.dy, (*self.plane, row + out), column))
            for out in range(height)
        ]
        for row_at, row_pairs in operands.rows.part(0, taps.height).reads(height).items():
            at = row_at + taps.kh * operands.rows.step
            x_row = bind("x_row", operands.rows.origin(row) + at)
            is_row = inside(x_row, operands.rows.inputs)
            if is_row is False:
                continue
            with when(is_row):
                source = self.reader.row(0, x_row, column)
                for column_at, column_pairs in operands.columns.part(taps.kw, taps.width).reads(1).items():
                    value = source.load(column_at)
                    if value is None:
                        continue
                    lanes = None if operands.one_vector else operands.live(column, column_at)
                    value = bind("x_value", keep(operands.vectors, value, lanes))
                    met = [bind("dy_met", keep(operands.vectors, dy, lanes)) if lanes else dy for dy in gradient]
                    for out, a in row_pairs:
                        for _, b in column_pairs:
                            sums.add((a, b), value * met[out])
