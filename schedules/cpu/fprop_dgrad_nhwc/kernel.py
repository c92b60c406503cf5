"""The kernel of fprop and dgrad in NHWC: every result is a sum of what its taps meet in the source.

result[o, c] = bias[c] + Σ over k of source[meets(o, k), c] · w[c, k]     (schedules/taps.py says what meets what)

In a register tile every source vector is loaded once and multiplied into all sums that it meets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tvm import s_tir, tirx

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.any_size import AnyAxis, at_any_size
from dwconv.schedules.cpu.emit.loops import WHOLE_ROW, ColumnBlock, has_row, is_one, tile_columns, tile_rows
from dwconv.schedules.cpu.emit.pixels import PixelRow
from dwconv.schedules.cpu.emit.vectors import Accumulators, NumberedVector, Vectors
from dwconv.schedules.cpu.emit.words import parallel
from dwconv.schedules.cpu.fprop_dgrad_nhwc.apart import AxisApart
from dwconv.schedules.cpu.fprop_dgrad_nhwc.cut import GatherNhwcCut, streamed_above
from dwconv.schedules.cpu.fprop_dgrad_nhwc.tensors import PixelTensors
from dwconv.schedules.cpu.shared.limits import vector_registers
from dwconv.schedules.emit import (
    BATCH,
    Expr,
    bind,
    ceil_div,
    divided,
    inside,
    is_number,
    kernel,
    least,
    most,
    nest,
    planes_met,
    serial,
    when,
)
from dwconv.schedules.space import Config
from dwconv.schedules.taps import Axis, TapLoop, TileRun


def schedule(workload: Workload, config: Config, target: CpuTarget) -> s_tir.Schedule:
    """Parameters: source (n, H, W, C), w (weights, KH, KW), bias (C′) if there is one, dy (n, OH, OW, C′) if the
    epilogue takes it, result (n, OH, OW, C′), workspace (vectors, fan-in, KH, KW, lanes): packed weights; in 3-D with
    depths before heights."""
    n, cut = tirx.Var(BATCH, "int32"), at_any_size(GatherNhwcCut.of(workload, config, target), workload)
    with kernel() as builder:
        vectors = Vectors(cut.work.channels, cut.lanes)
        tensors = PixelTensors.arguments(cut.work, vectors, n, streamed_above=streamed_above(workload, config, target))
        tensors.weights.pack()
        for task in tasks(tensors, cut, n):
            for tile in task.tiles():
                tile.sum()
    return s_tir.Schedule(builder.get())


@dataclass(frozen=True, kw_only=True)
class PixelTask:
    """Rows of one plane from ``top`` on, or a block of the columns of a single one, in the block of channels that
    begins with vector ``first_vector``."""

    tensors: PixelTensors
    cut: GatherNhwcCut
    image: Expr
    depth: Expr
    top: Expr
    columns: ColumnBlock = WHOLE_ROW
    first_vector: Expr = 0
    row_part: Expr = 0
    """Of the rows that lie ``row_step`` apart, the first one's number; ``top`` is counted in the part."""

    def tiles(self) -> Iterator[PixelTile]:
        """Loops over the register tiles, in the ``order`` of the configuration."""
        vectors, cut, at_a_time = self.tensors.vectors, self.cut, self.cut.config.vectors_c
        for runs in self._column_cuts():
            loops: dict[str, Callable[[], Iterator[Any]]] = {
                "h": lambda: tile_rows(cut.rows, self.top),
                "w": partial(self._columns_of, runs),
                "c": lambda: vectors.several(self.first_vector, cut.block_vectors, at_a_time=at_a_time, overlap=True),
            }
            for at in nest(cut.config.order, loops):
                part, left, run = at["w"]
                yield PixelTile(
                    tensors=self.tensors, cut=cut, image=self.image, depth=self.depth, top=at["h"], left=left, run=run,
                    vectors=vectors.numbered(at["c"]), part=part, row_part=self.row_part,
                )  # fmt: skip

    def _columns_of(self, runs: list[TileRun]) -> Iterator[tuple[Expr, Expr, TileRun]]:
        """Loops over the tiles of a row, part by part: (part, first column in it, run)."""
        for part in serial("part", self.cut.tile_step) if self.cut.tile_step > 1 else (0,):
            for left, run in tile_columns(runs, self.columns):
                yield part, left, run

    def _column_cuts(self) -> Iterable[list[TileRun]]:
        """Of known sizes there is one way to cut a row into tiles."""
        columns, config = self.cut.work.columns, self.cut.config
        if not isinstance(columns, AnyAxis):
            return [self.cut.column_runs]
        if config.unroll == "none":
            return [columns.rolled_runs(config.tile_w)]
        return columns.cuts(config.tile_w, overlap=True, narrower=not is_number(self.cut.work.channels))


def tasks(tensors: PixelTensors, cut: GatherNhwcCut, n: Expr) -> Iterator[PixelTask]:
    """Shares out images × depths × blocks of rows, or of columns × blocks of channels over the threads."""
    column_blocks, channel_blocks, stream = cut.column_blocks, cut.channel_blocks, tensors.stream
    row_blocks, depths = cut.rows.blocks * column_blocks, cut.work.depths.outputs
    if cut.row_step > 1:
        row_blocks = row_blocks * cut.row_step
    with stream.defined() if stream else contextlib.nullcontext():
        for task in parallel("task", n * (depths * row_blocks * channel_blocks)):
            image, depth = divided(bind("image", task // (row_blocks * channel_blocks)), depths)
            columns = WHOLE_ROW
            if not is_one(column_blocks):
                columns = ColumnBlock(bind("block", task // channel_blocks % column_blocks), column_blocks)
            block, row_part = task // channel_blocks % row_blocks // column_blocks, 0
            if cut.row_step > 1:
                row_part, block = divided(bind("block_of_rows", block), cut.rows.blocks)
            top = bind("top", block * cut.rows.block_rows)
            first_vector = task % channel_blocks * cut.block_vectors if channel_blocks > 1 else 0
            yield PixelTask(
                tensors=tensors, cut=cut, image=image, depth=depth, top=top, columns=columns,
                first_vector=first_vector, row_part=row_part,
            )  # fmt: skip
        if stream:
            stream.fence()


@dataclass(frozen=True, kw_only=True)
class PixelTile:
    """``tile_h`` rows from ``top`` on × the columns of a run from ``left`` on × some vectors of channels, of one plane.

    In 3-D a loop goes over the planes of the source that the plane meets: of each, the tile sums what it would in 2-D.
    """

    tensors: PixelTensors
    cut: GatherNhwcCut
    image: Expr
    depth: Expr
    top: Expr
    left: Expr
    """Counted in the part; so are columns below until they are ``_placed``."""
    run: TileRun
    vectors: list[NumberedVector]
    part: Expr = 0
    """Of the columns that lie ``tile_step`` apart, the first one's number."""
    row_part: Expr = 0

    def sum(self) -> None:
        """Computes and stores the results of the tile."""
        unroll = self.cut.config.unroll
        if unroll == "taps":
            self._sum_unrolled()
            return
        for row in range(self.cut.config.tile_h):
            self._sum_row(row, columns_too=unroll == "none")

    def _sum_unrolled(self) -> None:
        """All taps, straight code; one test for each source row keeps out of the padding."""
        work, tile_h = self.cut.work, self.cut.config.tile_h
        rows, columns = self.cut.row_axis, work.columns
        sums = Accumulators(self.tensors.vectors, tile_h, self.run.width, len(self.vectors))
        for plane in self._planes():
            weights = self._weights(plane, [(kh, kw) for kh in range(rows.taps) for kw in range(columns.taps)])
            for row_at, row_pairs in rows.reads(tile_h).items():
                row = bind("source_row", self._placed_row(rows.origin(self.top) + row_at))
                source = plane.row(row)
                with when(inside(row, work.rows.inputs)):
                    for column, column_pairs in self._columns():
                        for v, vector in enumerate(self.vectors):
                            value = plane.load(source, column, vector)
                            for out_row, kh in row_pairs:
                                for out_column, kw in column_pairs:
                                    sums.add((out_row, out_column, v), value * weights(v, kh, kw))
        for row in range(tile_h):
            with when(self._has_row(row)):
                self._store(sums, row, row)

    def _sum_row(self, row: int, *, columns_too: bool) -> None:
        """Row ``row`` of the tile, with a loop over its kernel rows; ``columns_too``: and one over kernel columns."""
        rows = self.cut.row_axis
        if isinstance(rows, AxisApart):
            rows = replace(rows, inputs=rows.inputs_in(self.row_part))
        taps, origin = ascending(rows.tap_loop(row)), rows.origin(self.top)
        add_columns = self._add_rolled_columns if columns_too else self._add_columns
        with when(self._has_row(row)):
            sums = Accumulators(self.tensors.vectors, 1, self.run.width, len(self.vectors))
            if taps is not None:
                for plane in self._planes():
                    for q in serial("q_h", *live_turns(rows, taps, origin)):
                        source_row = bind("source_row", self._placed_row(origin + taps.at + q * taps.delta))
                        add_columns(sums, plane, source_row, bind("kh", taps.first + q * taps.period))
            self._store(sums, 0, row)

    def _planes(self) -> Iterator[SourcePlane]:
        """Loops over the planes of the source that the tile sums."""
        work = self.cut.work
        for m in serial("m", work.fan_in):
            for kd, depth in planes_met(work.depths, self.depth):
                yield SourcePlane(self.tensors, (self.image, *work.axes.index(depth)), m, kd)

    def _add_columns(self, sums: Accumulators, plane: SourcePlane, row: Expr, kh: Expr) -> None:
        columns = self.cut.work.columns
        source = plane.row(row)
        weights = self._weights(plane, [(kh, kw) for kw in range(columns.taps)])
        for column, pairs in self._columns():
            for v, vector in enumerate(self.vectors):
                value = plane.load(source, column, vector)
                for out, kw in pairs:
                    sums.add((0, out, v), value * weights(v, kh, kw))

    def _weights(self, plane: SourcePlane, taps: list[tuple[Expr, int]]) -> Callable[[int, Expr, int], Expr]:
        """The weights of ``taps`` for the vector of a number, in registers if they find room."""
        free = vector_registers(self.cut.target) - self.cut.sums - 2
        if self.cut.work.axes.are_known or len(taps) * len(self.vectors) > free:
            return lambda v, kh, kw: plane.weight(self.vectors[v], kh, kw)
        held = {
            (v, tap): bind("weight", plane.weight(vector, *tap))
            for v, vector in enumerate(self.vectors)
            for tap in taps
        }
        return lambda v, kh, kw: held[v, (kh, kw)]

    def _columns(self) -> Iterator[tuple[Expr, list[tuple[int, int]]]]:
        """The columns of the source that the tile reads, each with the (output, tap) pairs that it meets."""
        columns = self.cut.columns
        for at, pairs in columns.reads_of(self.run):
            column = self._placed(columns.origin(self.left) + at)
            is_tested = columns.is_tested(self.run, at)
            with when(inside(column, self.cut.work.columns.inputs) if is_tested else True):
                yield column, pairs

    def _placed_row(self, row: Expr) -> Expr:
        """Where a row is in its image."""
        return row if self.cut.row_step == 1 else row * self.cut.row_step + self.row_part

    def _has_row(self, row: int) -> Expr:
        """Whether row ``row`` of the tile is one of the result."""
        outputs, step = self.cut.work.rows.outputs, self.cut.row_step
        if step == 1 or outputs % step == 0:
            return has_row(self.cut.rows, self.top, row)
        return self._placed_row(self.top + row) < outputs

    def _placed(self, column: Expr) -> Expr:
        """Where a column is in its row."""
        return column if self.cut.tile_step == 1 else column * self.cut.tile_step + self.part

    def _add_rolled_columns(self, sums: Accumulators, plane: SourcePlane, row: Expr, kh: Expr) -> None:
        columns, width = self.cut.work.columns, self.run.width
        origin, source = columns.origin(self.left), plane.row(row)
        for phase in range(min(columns.down, width)):
            taps = ascending(columns.tap_loop(phase))
            if taps is None:
                continue
            bounds = (0, taps.count) if self.run.interior else live_turns(columns, taps, origin)
            for q in serial("q_w", *bounds):
                for out in range(phase, width, columns.down):
                    column = origin + columns.origin(out - phase) + taps.at + q * taps.delta
                    for v, vector in enumerate(self.vectors):
                        weight = plane.weight(vector, kh, taps.first + q * taps.period)
                        sums.add((0, out, v), plane.load(source, column, vector) * weight)

    def _store(self, sums: Accumulators, summed: int, row: int) -> None:
        """Row ``summed`` of the sums to row ``row`` of the tile."""
        columns, outputs, tensors = self.cut.columns, self.cut.work.columns.outputs, self.tensors
        at = (self.image, *self.cut.work.axes.index(self.depth, self._placed_row(self.top + row)))
        result = tensors.row(tensors.result, *at)
        dy = tensors.row(tensors.dy, *at) if self.cut.work.reads_dy else None
        for column in range(self.run.width):
            place = self._placed(self.left + column)
            with when(place < outputs if columns.may_lack(self.run, column) else True):
                for v, vector in enumerate(self.vectors):
                    total = sums[summed, column, v]
                    tensors.store(total, result, place, vector=vector, dy=dy)


@dataclass(frozen=True)
class SourcePlane:
    """One plane of the source, in the ``m``-th of the channels that a result sums, which the result meets at tap ``kd``
    along the depth."""

    tensors: PixelTensors
    at: tuple[Expr, ...]
    m: Expr
    kd: Expr

    def row(self, row: Expr) -> PixelRow:
        return self.tensors.row(self.tensors.source, *self.at, row)

    def load(self, row: PixelRow, column: Expr, vector: NumberedVector) -> Expr:
        return self.tensors.load(row, column, vector=vector, m=self.m)

    def weight(self, vector: NumberedVector, kh: Expr, kw: Expr) -> Expr:
        return self.tensors.weights.vector(vector.number, self.m, self.kd, kh, kw)


def ascending(taps: TapLoop | None) -> TapLoop | None:
    """``taps`` in the order of what they meet."""
    if taps is None or taps.delta > 0:
        return taps
    last = taps.count - 1
    return TapLoop(
        first=taps.first + last * taps.period, period=-taps.period, count=taps.count,
        at=taps.at + last * taps.delta, delta=-taps.delta,
    )  # fmt: skip


def live_turns(axis: Axis, taps: TapLoop, origin: Expr) -> tuple[Expr, Expr]:
    """The bounds of q within which a tap loop, ascending, stays inside the source."""
    start = origin + taps.at
    first = bind("first", most(ceil_div(-start, taps.delta), 0))
    return first, bind("stop", most(first, least(ceil_div(axis.inputs - start, taps.delta), taps.count)))
