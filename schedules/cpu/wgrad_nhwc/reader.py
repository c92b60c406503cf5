"""How the NHWC weight gradient goes through x and dy, and adds what they give to the sums in registers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dwconv.schedules.any_size import AnyAxis
from dwconv.schedules.cpu.emit.loops import ColumnBlock, OutputRange, live_outputs, meeting_outputs, tile_columns
from dwconv.schedules.cpu.emit.pixels import PixelRow
from dwconv.schedules.cpu.emit.vectors import NumberedVector, Vectors, sum_in_pairs
from dwconv.schedules.cpu.emit.words import argument, load, prefetch
from dwconv.schedules.cpu.shared.weight_gradient import RegisterTaps
from dwconv.schedules.cpu.wgrad_nhwc.cut import WeightCut
from dwconv.schedules.cpu.wgrad_nhwc.sums import TapSums
from dwconv.schedules.emit import Expr, bind, inside, is_number, least, most, nest, serial, when
from dwconv.schedules.taps import Axis, TileRun, column_runs

Reads = list[tuple[Expr, list[tuple[int, int]]]]


@dataclass(frozen=True)
class XAndDyPlanes:
    """A plane of x and the plane of dy that it meets: the indices of each before those of rows and columns."""

    x: tuple[Expr, ...]
    dy: tuple[Expr, ...]


@dataclass(frozen=True, kw_only=True)
class SumShare:
    """What is summed at the same time: rows of a plane, or a block of the columns of one, in some vectors of
    channels."""

    block: OutputRange
    columns: ColumnBlock
    vectors: list[NumberedVector]


@dataclass(frozen=True, kw_only=True)
class GradientTile:
    """The dy that are loaded together: ``height`` × ``width`` from (``top``, ``left``) on."""

    top: Expr
    left: Expr
    height: int = 1
    width: int = 1
    reads: Reads
    """Columns of x from where the first column of the tile meets tap 0, with the (output, tap) pairs of each."""
    is_edge: bool = False
    """Whether some of these columns may be padding, which others is not known when compiling."""


@dataclass(frozen=True, kw_only=True)
class PixelReader:
    """Loads x and dy a vector of channels at a time."""

    cut: WeightCut
    vectors: Vectors
    x: Any
    dy: Any

    @classmethod
    def arguments(cls, cut: WeightCut, vectors: Vectors, n: Expr) -> PixelReader:
        """Emits the kernel's parameters."""
        work = cut.work
        x = argument("x", (n, *work.axes.inputs, work.input_pitch), work.dtype)
        dy = argument("dy", (n, *work.axes.outputs, work.channels), work.dtype)
        return cls(cut=cut, vectors=vectors, x=x, dy=dy)

    def planes(self, taps: RegisterTaps, image: Expr, depths: OutputRange) -> Iterator[XAndDyPlanes]:
        """A loop over the planes of dy among ``depths`` that count, each with the plane of x that it meets."""
        axes = self.cut.work.axes
        if taps.height:
            depths = live_outputs(axes.depths, taps.kd, depths)
        for depth in serial("depth", depths.first, depths.stop):
            x_depth = axes.depths.origin(depth) + axes.depths.shift + taps.kd * axes.depths.step
            yield XAndDyPlanes(x=(image, *axes.index(x_depth)), dy=(image, *axes.index(depth)))

    def add_rows(self, sums: TapSums, share: SumShare, *, planes: XAndDyPlanes) -> None:
        """Adds what a share gives; of a single kernel row, only those rows that it meets."""
        taps = sums.taps
        if taps.is_one_row:
            share = replace(share, block=live_outputs(self.cut.work.rows, taps.kh, share.block))
        if self.cut.config.unroll == "group" and taps.height:
            tiles = self._group_tiles
        else:
            tiles = self._tiles if isinstance(taps.kw, int) else self._pixels
        for tile in tiles(taps, share):
            if self.cut.prefetch:
                self._prefetch(taps, share, tile, planes=planes)
            self._add(sums, share, tile, planes=planes)

    def _pixels(self, taps: RegisterTaps, share: SumShare) -> Iterator[GradientTile]:
        """Loops over the dy that a single tap, whose column is a turn of a loop, meets."""
        columns = self.cut.work.columns
        reads: Reads = [(taps.kw * columns.step + columns.shift, [(0, 0)])]
        for row in serial("row", share.block.first, share.block.stop):
            live = live_outputs(columns, taps.kw, share.columns.outputs(columns.outputs))
            for column in serial("column", live.first, live.stop):
                yield GradientTile(top=row, left=column, reads=reads)

    def _group_tiles(self, taps: RegisterTaps, share: SumShare) -> Iterator[GradientTile]:
        """Loops over the dy that a group of taps, whose first column is a turn of a loop, meets: tiles of those that
        meet no padding, and one by one those beside them, which may."""
        columns, width = self.cut.work.columns, self.cut.config.tile_w
        shift = taps.kw * columns.step + columns.shift

        def tile(row: Expr, left: Expr, size: int, *, is_edge: bool) -> GradientTile:
            met = replace(columns, taps=taps.width, shift=0).reads(size)
            reads: Reads = [(shift + at, pairs) for at, pairs in met.items()]
            return GradientTile(top=row, left=left, width=size, reads=reads, is_edge=is_edge)

        for row in serial("row", share.block.first, share.block.stop):
            meeting = meeting_outputs(columns, taps, share.columns.outputs(columns.outputs))
            whole = bind("whole", (meeting.inner.stop - meeting.inner.first) // width)
            left_over = bind("left_over", meeting.inner.first + whole * width)
            for column in serial("column", meeting.any.first, meeting.inner.first):
                yield tile(row, column, 1, is_edge=True)
            for turn in serial("tile_w", whole):
                yield tile(row, bind("column", meeting.inner.first + turn * width), width, is_edge=False)
            for column in serial("column", left_over, meeting.any.stop):
                yield tile(row, column, 1, is_edge=True)

    def _tiles(self, taps: RegisterTaps, share: SumShare) -> Iterator[GradientTile]:
        """Loops over tiles of dy, in the ``order`` of the configuration."""
        columns = self.cut.work.columns.part(taps.kw, taps.width)
        for runs in self._column_cuts(columns):
            for height, rows in self._row_tiles(share.block):
                loops: dict[str, Callable[[], Iterator[Any]]] = {
                    "h": rows,
                    "w": partial(tile_columns, runs, share.columns),
                }
                for at in nest(self.cut.config.order, loops):
                    left, run = at["w"]
                    reads = columns.reads_of(run)
                    is_edge = any(columns.is_tested(run, at) for at, _ in reads)
                    yield GradientTile(
                        top=at["h"], left=left, height=height, width=run.width, reads=reads, is_edge=is_edge
                    )

    def _column_cuts(self, columns: Axis) -> Iterable[list[TileRun]]:
        """Of known sizes there is one way to cut a row into tiles."""
        width, narrower = self.cut.config.tile_w, not is_number(self.cut.work.channels)
        if isinstance(columns, AnyAxis):
            return columns.cuts(width, overlap=False, narrower=narrower)
        return [column_runs(columns, width)]

    def _row_tiles(self, block: OutputRange) -> list[tuple[int, Callable[[], Iterator[Expr]]]]:
        """The height of tiles with the loop over their first rows: whole ones, then one for each row that is left."""
        first, stop, height = block.first, block.stop, self.cut.tile_h
        if height == 1:
            return [(1, lambda: serial("row", first, stop))]
        middle = bind("middle", stop - (stop - first) % height)
        return [(height, lambda: tile_tops(height, first, middle)), (1, lambda: serial("row", middle, stop))]

    def _add(self, sums: TapSums, share: SumShare, tile: GradientTile, *, planes: XAndDyPlanes) -> None:
        rows, columns, taps = self.cut.work.rows, self.cut.work.columns, sums.taps
        outputs = range(tile.width) if taps.sums_dy else sorted({out for _, pairs in tile.reads for out, _ in pairs})
        dy_rows = [self._row(self.dy, *planes.dy, tile.top + row) for row in range(tile.height)]
        gradient = {
            (row, out, v): self._load_dy(dy_rows[row], tile.left + out, vector)
            for row in range(tile.height)
            for out in outputs
            for v, vector in enumerate(share.vectors)
        }
        if taps.sums_dy:
            for v in range(len(share.vectors)):
                sums.add_dy(v, sum_in_pairs([value for (_, _, of), value in gradient.items() if of == v]))
        origin = rows.origin(tile.top) + rows.shift + taps.kh * rows.step
        for row_at, row_pairs in replace(rows, taps=taps.height, shift=0).reads(tile.height).items():
            x_row = bind("x_row", origin + row_at)
            x_pixels = self._row(self.x, *planes.x, x_row)
            with when(taps.is_one_row or inside(x_row, rows.inputs)):
                for column_at, pairs in tile.reads:
                    column = columns.origin(tile.left) + column_at
                    if tile.is_edge:
                        column = bind("x_column", column)
                    with when(inside(column, columns.inputs) if tile.is_edge else True):
                        for v, vector in enumerate(share.vectors):
                            value = self._load_x(x_pixels, column, vector)
                            for row, a in row_pairs:
                                for out, b in pairs:
                                    sums.add(a, b, v, value * gradient[row, out, v])

    def _prefetch(self, taps: RegisterTaps, share: SumShare, tile: GradientTile, *, planes: XAndDyPlanes) -> None:
        """Requests what the tile ``prefetch`` rows below is the first to read: rows of dy, the rows of x that each of
        them adds, and of their columns those that the tiles to the left and right leave."""
        rows, columns, multiplier = self.cut.work.rows, self.cut.work.columns, self.cut.work.multiplier
        new_columns = tile.width * columns.up
        shared = max(0, len(tile.reads) - new_columns) // 2
        new_taps = [a for a in range(taps.height) if (taps.height - 1 - a) * rows.step < rows.up]
        for row in range(tile.height):
            below = bind("below", least(tile.top + row + self.cut.prefetch, rows.outputs - 1))
            dy_below = self._row(self.dy, *planes.dy, below)
            for out in range(tile.width):
                for vector in share.vectors:
                    prefetch(dy_below.tensor, *dy_below.at(tile.left + out, vector.start))
            for a in new_taps:
                x_row = rows.origin(below) + rows.shift + (taps.kh + a) * rows.step
                x_row = bind("x_below", most(least(x_row, rows.inputs - 1), 0))
                x_below = self._row(self.x, *planes.x, x_row)
                for column_at, _ in tile.reads[shared:][:new_columns]:
                    column = columns.origin(tile.left) + column_at
                    for vector in share.vectors:
                        prefetch(x_below.tensor, *x_below.at(column, vector.start // multiplier))

    def _row(self, tensor: Any, *before: Expr) -> PixelRow:
        return PixelRow.of(tensor, *before, is_known=self.cut.work.axes.are_known)

    def _load_x(self, row: PixelRow, column: Expr, vector: NumberedVector) -> Expr:
        channels = self.vectors.divided(self.vectors.span(vector.start), self.cut.work.multiplier)
        return bind("x_value", load(row.tensor, *row.at(column, channels)))

    def _load_dy(self, row: PixelRow, column: Expr, vector: NumberedVector) -> Expr:
        return bind("dy_value", load(row.tensor, *row.at(column, self.vectors.span(vector.start))))


def tile_tops(height: int, first: Expr, stop: Expr) -> Iterator[Expr]:
    """A loop over tiles: the first row of each."""
    for tile in serial("tile_h", (stop - first) // height):
        yield bind("row", first + tile * height)
