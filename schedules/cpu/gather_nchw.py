"""The kernel behind fprop and dgrad in NCHW: every result is a sum of what its taps meet in the source.

    result[c, o] = bias[c] + Σ over k of source[c, meets(o, k)] · w[c, k]     (schedules/taps.py says what meets what)

Vectors lie along a row. A vector of the source is loaded once for each kernel column and added to all rows of the tile
that it meets; weights are single numbers, the same in every lane. With a strided gradient each column phase of the
results has sums of its own, which are interleaved when they are stored.

Padding beside a row is zeros in some lanes, which are multiplied like the others: a weight that is not finite gives NaN
there, as in PyTorch's op without oneDNN. Rows of padding are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from dwconv.schedules.cpu.emit import Accumulators, Vectors, argument, parallel
from dwconv.schedules.cpu.gather_nchw_space import column_tiles, rows_in_block
from dwconv.schedules.cpu.planes import InPlace, Rows, Staging, interleave, store_columns
from dwconv.schedules.cpu.weights_nchw import Weights, everywhere
from dwconv.schedules.emit import BATCH, Expr, bind, ceil_div, inside, kernel, least, serial, turns_inside, when
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config
from dwconv.schedules.taps import Run, full_source_loops


def schedule_gather_nchw(work: Gather, config: Config, *, lanes: int) -> s_tir.Schedule:
    """Parameters: source (n, C, H, W), w (weights, KH, KW), bias (C′) if there is one, result (n, C′, OH, OW)."""
    rows, columns = work.rows, work.columns
    n = tirx.Var(BATCH, "int32")
    with kernel() as builder:
        source = argument(work.source, (n, work.source_channels, rows.inputs, columns.inputs))
        w = argument("w", (work.weights, rows.taps, columns.taps))
        bias = argument("bias", (work.channels,)) if work.bias else None
        result = argument(work.result, (n, work.channels, rows.outputs, columns.outputs))
        vectors = Vectors(-(-columns.outputs // columns.down), lanes)
        operands = Operands(work, config, source, w, bias, result, vectors)
        groups = work.channels // work.fan_out
        blocks = ceil_div(rows.outputs, rows_in_block(config))
        for task in parallel("task", ceil_div(n * groups, config.planes) * blocks):
            top = bind("top", task % blocks * rows_in_block(config)) if blocks > 1 else 0
            block = Block.allocate(operands, top)
            for turn in serial("plane", config.planes):
                plane = bind("number", task // blocks * config.planes + turn)
                with when(True if config.planes == 1 else plane < n * groups):
                    block.sum_group(bind("image", plane // groups), bind("group", plane % groups))
    return s_tir.Schedule(builder.get())


@dataclass(frozen=True)
class Operands:
    """What the kernel reads and writes."""

    work: Gather
    config: Config
    source: Any
    w: Any
    bias: Any
    """None where there is none."""
    result: Any
    vectors: Vectors


@dataclass(frozen=True)
class Block:
    """Rows of results from ``top`` on, in one plane after the other, and the scratch memory for them."""

    operands: Operands
    top: Expr
    staging: Staging | None
    staged: Any

    @classmethod
    def allocate(cls, operands: Operands, top: Expr) -> Block:
        work, config, vectors = operands.work, operands.config, operands.vectors
        staging = None
        if config.stage == "scratch":
            height = rows_in_block(config)
            staging = Staging.of(work.rows, work.columns, vectors=vectors, block_h=height, planes=work.fan_in)
        return cls(operands, top, staging, staging.allocate() if staging else None)

    def sum_group(self, image: Expr, group: Expr) -> None:
        """The results that read the same planes of the source."""
        work = self.operands.work
        reader = self._reader((image, group * work.fan_in))
        for out in serial("out", work.fan_out):
            channel = bind("channel", group * work.fan_out + out)
            weights = Weights.of_channel(self.operands.vectors, work, self.operands.w, channel)
            for row in self._row_tiles():
                for group_w, run in self._column_tiles():
                    tile = Tile(self.operands, reader, (image, channel, row), group_w, run)
                    if self.operands.config.unroll == "kw":
                        tile.sum_rolled(weights)
                    else:
                        tile.sum_unrolled(weights)

    def _reader(self, first: tuple[Expr, Expr]) -> Rows:
        operands = self.operands
        if self.staging is None:
            return InPlace(operands.vectors, operands.work.columns, operands.source, first)
        rows = operands.work.rows
        top = bind("source_top", rows.origin(self.top) + rows.spanned(1)[0])
        return self.staging.fill(self.staged, operands.source, first, top)

    def _row_tiles(self) -> Iterator[Expr]:
        """First rows of the tiles."""
        rows, block_h, tile_h = (
            self.operands.work.rows,
            rows_in_block(self.operands.config),
            self.operands.config.tile_h,
        )
        tiles: Expr = ceil_div(min(block_h, rows.outputs), tile_h)
        if rows.outputs % block_h:
            tiles = least(tiles, ceil_div(rows.outputs - self.top, tile_h))
        for tile in serial("tile_h", tiles):
            yield bind("row", self.top + tile * tile_h)

    def _column_tiles(self) -> Iterator[tuple[Expr, Run]]:
        """First groups of columns of the tiles: edges, and the interior in a loop."""
        columns, config = self.operands.work.columns, self.operands.config
        width = config.vectors_w * self.operands.vectors.lanes * columns.down
        for run in column_tiles(columns, width=width, stage=config.stage):
            for tile in serial("tile_w", run.tiles):
                yield bind("column", run.start // columns.down + tile * (run.width // columns.down)), run


@dataclass(frozen=True)
class Tile:
    """One register tile: ``tile_h`` rows × some vectors of groups × the column phases of a group."""

    operands: Operands
    reader: Rows
    at: tuple[Expr, Expr, Expr]
    """(image, channel, row) of the first result."""
    group: Expr
    run: Run

    def sum_unrolled(self, weights: Weights) -> None:
        """All taps, straight code; one test for each row of the source keeps out of the padding."""
        work, height = self.operands.work, self.operands.config.tile_h
        sums = self._zeros()
        for m in serial("m", work.fan_in):
            for row_at, row_pairs in work.rows.reads(height).items():
                row = bind("source_row", work.rows.origin(self.at[2]) + row_at)
                is_row = inside(row, work.rows.inputs)
                if is_row is not False:
                    with when(is_row):
                        self._add_row(sums, weights, m, row, row_pairs)
        self._write(sums)

    def sum_rolled(self, weights: Weights) -> None:
        """Loops over rows of the source, kernel columns unrolled. In every turn each row of the loop meets a kernel
        row: a weight of zero would not keep out what is not finite."""
        work = self.operands.work
        sums = self._zeros()
        origin = bind("origin", work.rows.origin(self.at[2]))
        for m in serial("m", work.fan_in):
            for loop in full_source_loops(work.rows, self.operands.config.tile_h):
                first = bind("first_row", origin + loop.at)
                for turn in serial("turn", *turns_inside(first, loop.delta, loop.count, size=work.rows.inputs)):
                    pairs = [(out, bind("kh", kh + turn * step)) for out, kh, step in loop.meetings]
                    self._add_row(sums, weights, m, first + turn * loop.delta, pairs)
        self._write(sums)

    def _add_row(self, sums: Accumulators, weights: Weights, m: Expr, row: Expr, pairs: list[tuple[int, Expr]]) -> None:
        """What row ``row`` of the source gives to the (row of the tile, kernel row) ``pairs``."""
        columns, lanes = self.operands.work.columns, self.operands.vectors.lanes
        source = [self.reader.row(m, row, self.group + v * lanes) for v in range(self._vectors_w())]
        for column_at, column_pairs in columns.reads(columns.down).items():
            loaded = [(v, row.load(column_at)) for v, row in enumerate(source)]
            values = [(v, bind("value", value)) for v, value in loaded if value is not None]
            if not values:
                continue
            for out_row, kh in pairs:
                for phase, kw in column_pairs:
                    weight = weights.vector(m, kh, kw)
                    for v, value in values:
                        sums.add((out_row, phase, v), value * weight)

    def _zeros(self) -> Accumulators:
        columns = self.operands.work.columns
        return Accumulators(self.operands.vectors, self.operands.config.tile_h, columns.down, self._vectors_w())

    def _vectors_w(self) -> int:
        return -(-self.run.width // (self.operands.vectors.lanes * self.operands.work.columns.down))

    def _write(self, sums: Accumulators) -> None:
        columns, vectors, bias = self.operands.work.columns, self.operands.vectors, self.operands.bias
        image, channel, top = self.at
        offset = None if bias is None else bind("offset", everywhere(vectors, bias[channel]))
        for row in range(self.operands.config.tile_h):
            with when(self._has(row)):
                for v in range(self._vectors_w()):
                    phases = interleave(vectors, [sums[row, phase, v] for phase in range(columns.down)])
                    for number, total in enumerate(phases):
                        value = total if offset is None else total + offset
                        column = (self.group + v * vectors.lanes) * columns.down + number * vectors.lanes
                        store_columns(vectors, self.operands.result, value, (image, channel, top + row), column)

    def _has(self, row: int) -> Expr:
        """Whether row ``row`` of the tile is a row of the result."""
        rows, height = self.operands.work.rows.outputs, self.operands.config.tile_h
        return True if row == 0 or rows % height == 0 else self.at[2] + row < rows
