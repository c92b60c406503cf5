"""A plane of x and one of dy, a tile at a time: ``tile_h`` rows × one vector of dy stay in registers while the rows of
x that they meet go by."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from dwconv.schedules.any_size import any_pieces
from dwconv.schedules.cpu.emit.loops import ColumnBlock, OutputRange, live_outputs, meeting_outputs, tile_columns
from dwconv.schedules.cpu.emit.rows import InPlace, Plane, ReadRows
from dwconv.schedules.cpu.emit.vectors import Accumulators, Vectors, keep, lanes_from, lanes_inside, load_columns, total
from dwconv.schedules.cpu.emit.words import argument, load_lanes
from dwconv.schedules.cpu.shared.weight_gradient import RegisterTaps
from dwconv.schedules.cpu.wgrad_nchw.cut import WgradNchwCut
from dwconv.schedules.emit import Expr, bind, ceil_div, inside, least, serial, when
from dwconv.schedules.taps import Axis, TileRun


class PlaneInputs:
    """x and dy, and which lanes of them count."""

    def __init__(self, cut: WgradNchwCut, n: Expr) -> None:
        """Emits the kernel's parameters."""
        work = cut.work
        self.cut = cut
        self.vectors = Vectors(work.columns.outputs, cut.lanes)
        """The columns of a row of dy."""
        self.x = argument("x", (n, work.input_pitch, *work.axes.inputs), work.dtype)
        self.dy = argument("dy", (n, work.channels, *work.axes.outputs), work.dtype)
        self.runs: list[TileRun] = []
        """The tiles of a row; the next, those that read nothing of x."""
        self.runs_of_dy: list[TileRun] = []

    def cut_rows(self) -> None:
        """Where sizes are symbols, emits how many tiles there are."""
        self.runs, runs_of_dy = (
            self.columns.vector_runs(self.vectors.lanes, 1, is_padded=is_padded) for is_padded in (False, True)
        )
        self.runs_of_dy = runs_of_dy if self.cut.work.bias else []

    @property
    def rows(self) -> Axis:
        return self.cut.work.rows

    @property
    def columns(self) -> Axis:
        return self.cut.work.columns

    @property
    def is_one_vector(self) -> bool:
        """Whether a row of dy is one vector: then which lanes count is the same for all that a sum is made of."""
        return self.cut.work.axes.are_known and self.columns.outputs <= self.vectors.lanes

    def height(self, top: Expr) -> Expr:
        """Rows of the block of dy from row ``top`` on."""
        block_h = self.cut.config.block_h
        return block_h if self.cut.work.axes.are_known else bind("height", least(block_h, self.rows.outputs - top))

    def row_pieces(self, top: Expr) -> list[tuple[Expr, Expr, int]]:
        """(the first row, how many, their height): the tiles of that block."""
        if self.cut.work.axes.are_known:
            return [(top + tiles.first, tiles.count, tiles.size) for tiles in self.cut.row_tiles]
        tile_h, block_h = self.cut.config.tile_h, self.cut.config.block_h
        return list(any_pieces(top, top + self.height(top), {tile_h, block_h % tile_h}))

    def tested(self, column: Expr, at: int) -> Expr:
        """The lanes that ``live`` says, as they are found when the kernel runs."""
        columns, vectors = self.columns, self.vectors
        is_x = lanes_inside(vectors, columns.origin(column) + at, columns.inputs, step=columns.up)
        return tirx.And(is_x, lanes_inside(vectors, column, columns.outputs))

    def live(self, column: Expr, at: int) -> tuple[int, int] | None:
        """The lanes of a tile at ``column`` where both an x and a dy are, None if all. In the others there is a zero
        on one side, but perhaps NaN or infinity on the other."""
        if not isinstance(column, int):
            return None
        columns, lanes = self.columns, self.vectors.lanes
        nearest = columns.origin(column) + at
        first = max(0, -(nearest // columns.up))
        stop = lanes
        if self.cut.work.axes.are_known:
            stop = min(lanes, columns.outputs - column, -((nearest - columns.inputs) // columns.up))
        return None if (first, stop) == (0, lanes) else (first, stop)

    def total(self, value: Expr, kw: Expr) -> Expr:
        """The sum of the lanes that count, of a vector that tap ``kw`` summed up."""
        if self.cut.unroll == "group":  # no others were added
            return total(self.vectors, value)
        at = self.columns.step * kw + self.columns.shift
        return total(self.vectors, keep(self.vectors, value, self.live(0, at) if self.is_one_vector else None))


@dataclass(frozen=True, kw_only=True)
class PlanePair:
    """Rows of a plane of x, and the plane of dy that they meet."""

    inputs: PlaneInputs
    source: ReadRows
    dy: Plane
    columns: ColumnBlock
    """Which of the columns of dy count."""

    def add_rows(self, sums: Accumulators, taps: RegisterTaps, top: Expr) -> None:
        """Adds what the block of rows from ``top`` on gives to ``taps``."""
        if self.inputs.cut.unroll == "group":
            self._add_group(sums, taps)
            return
        for first, count, height in self.inputs.row_pieces(top):
            for turn in serial("tile_h", count):
                row = bind("row", first + turn * height)
                for column, run in tile_columns(self.inputs.runs, self.columns):
                    self._add_tile(sums, taps, row, height, column, is_tested=run.is_tested)

    def _add_group(self, sums: Accumulators, taps: RegisterTaps) -> None:
        """Adds what a block of a single row gives to a group of kernel columns, the first of which is a turn of a loop:
        vectors of dy that meet no padding, and beside them vectors of which each tap has lanes of its own."""
        inputs, columns, lanes = self.inputs, self.inputs.columns, self.inputs.vectors.lanes
        within = self.columns.outputs(columns.outputs)
        meeting = meeting_outputs(columns, taps, within)
        inner = meeting.inner
        whole = bind("whole", (inner.stop - inner.first) // lanes)
        for stop, first in ((inner.first, meeting.any.first), (meeting.any.stop, inner.first + whole * lanes)):
            first = bind("edge_first", first)
            for turn in serial("edge", ceil_div(stop - first, lanes)):
                column = bind("column", first + turn * lanes)
                end = bind("end", least(column + lanes, stop))
                for b in range(taps.width):
                    live = live_outputs(columns, taps.kw + b, OutputRange(column, end))
                    self._add_lanes(sums, b, taps.kw + b, column, live)
        for turn in serial("tile_w", whole):
            column = bind("column", inner.first + turn * lanes)
            dy = bind("dy_value", load_columns(inputs.vectors, inputs.dy, self.dy.row(0), column))
            for b in range(taps.width):
                x = load_columns(inputs.vectors, inputs.x, self._x.row(0), column + self._shift(taps.kw + b))
                sums.add((0, b), x * dy)

    def _add_lanes(self, sums: Accumulators, b: int, kw: Expr, column: Expr, live: OutputRange) -> None:
        """The ``live`` ones of the vector of dy from ``column`` on: nothing else is touched."""
        inputs = self.inputs
        lanes = lanes_from(inputs.vectors, column, live.first, live.stop)
        dy = load_lanes(inputs.dy, lanes, *self.dy.row(0), column)
        x = load_lanes(inputs.x, lanes, *self._x.row(0), column + self._shift(kw))
        sums.add((0, b), x * dy)

    @property
    def _x(self) -> Plane:
        """The plane of x, which a group of kernel columns reads in place."""
        assert isinstance(self.source, InPlace)
        return self.source.first

    def _shift(self, kw: Expr) -> Expr:
        return kw * self.inputs.columns.step + self.inputs.columns.shift

    def _add_tile(
        self, sums: Accumulators, taps: RegisterTaps, row: Expr, height: int, column: Expr, *, is_tested: bool
    ) -> None:
        """The tile of ``height`` rows of dy from (``row``, ``column``) on."""
        inputs, rows, vectors = self.inputs, self.inputs.rows, self.inputs.vectors
        gradient = [
            bind("dy_value", load_columns(vectors, inputs.dy, self.dy.row(row + out), column, is_tested=is_tested))
            for out in range(height)
        ]
        for row_at, row_pairs in rows.part(0, taps.height).reads(height).items():
            x_row = bind("x_row", rows.origin(row) + (row_at + taps.kh * rows.step))
            is_row = inside(x_row, rows.inputs)
            if is_row is False:
                continue
            with when(is_row):
                source = self.source.row(0, x_row, column, is_tested=is_tested)
                for column_at, column_pairs in inputs.columns.part(taps.kw, taps.width).reads(1).items():
                    value = source(column_at)
                    if value is None:
                        continue
                    lanes = None if inputs.is_one_vector else inputs.live(column, column_at)
                    value = bind("x_value", keep(vectors, value, lanes))
                    live = inputs.tested(column, column_at) if is_tested else None
                    met = [bind("dy_met", keep(vectors, dy, lanes)) if lanes else dy for dy in gradient]
                    for out, a in row_pairs:
                        for _, b in column_pairs:
                            sums.add((a, b), value * met[out], live)
