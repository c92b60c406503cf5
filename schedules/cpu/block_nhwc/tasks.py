"""The tasks of the convolution inside a block, and the tiles of each. A task keeps the last rows that the convolution
reads in a ring: what comes before it in a block is computed once for each pixel, and zeros around it stand for the
padding, which comes after the activation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from tvm import tirx

from dwconv.schedules.any_size import any_pieces
from dwconv.schedules.cpu.block_nhwc.cut import BAND_PIXELS, FusedBlockCut, Tap
from dwconv.schedules.cpu.block_nhwc.norms import Held, NormedImages, SumParts, first_part, shifted
from dwconv.schedules.cpu.emit.vectors import NumberedVector, Vectors
from dwconv.schedules.cpu.emit.words import parallel, scratch, settled
from dwconv.schedules.emit import Expr, bind, least, most, nest, planes_met, serial, store

Producer = Callable[[Expr, NumberedVector], Expr]
"""From a pixel of the image and a vector of channels to what the convolution reads there."""
Counter = Callable[[Expr, Expr, Expr], None]
"""Takes a vector of a task, what the convolution reads, and one if it is the task's own, else zero."""


class Ring:
    """held[row % rows, vector, left + column, lane], of ``count`` vectors of channels; of planes, whose rows are one
    after the other, held[plane % rows, vector, row · columns + left + column, lane]"""

    def __init__(self, of: FusedBlockCut, vectors: Vectors) -> None:
        """Emits the memory, with zeros beside the rows."""
        self.of, self.vectors, self.cut, self.count = of, vectors, of.ring, of.block_vectors
        cut, across = self.cut, of.across.inputs
        self.held = scratch("ring", cut.rows, self.count, across * cut.columns, vectors.lanes)
        right = cut.left + of.axes.columns.inputs
        for row in serial("ring_row", cut.rows):
            for v in serial("vector", self.count):
                for inner in serial("inner_row", across):
                    for first, stop in ((0, cut.left), (right, cut.columns)):
                        for column in serial("side", first, stop):
                            store(self.held, vectors.zero(), row, v, inner * cut.columns + column, vectors.span(0))

    def follow(
        self,
        row: Expr,
        *,
        first: Expr,
        of: Callable[[Expr], NumberedVector],
        produce: Producer,
        count: Counter | None = None,
    ) -> None:
        """Puts in what row ``row`` of the results is the first to meet, in a task that begins with row ``first``. Rows
        are prefetched one after the other. ``count`` is given what is put in, and one for a row that no task before
        puts in, else zero."""
        rows, across, columns = self.of.along, self.of.across.inputs, self.of.axes.columns.inputs
        nearest, farthest = rows.reach
        stop = bind("stop", most(0, least(rows.origin(row) + farthest + 1, rows.inputs)))
        before = most(0, least(rows.origin(row - 1) + farthest + 1, rows.inputs))
        start = bind("start", tirx.Select(row == first, most(0, rows.origin(row) + nearest), before))
        for source in serial("source_row", start, stop):
            slot = bind("slot", source % self.cut.rows)
            own = None
            if count:
                is_own = tirx.Or(first == 0, source >= before)
                own = bind("own", tirx.Select(is_own, tirx.FloatImm("float32", 1.0), tirx.FloatImm("float32", 0.0)))
            for inner in serial("source_inner", across):
                for column in serial("source_column", columns):
                    for v in serial("vector", self.count):
                        value = produce((source * across + inner) * columns + column, of(v))
                        if count:
                            value = bind("put", value)
                            count(v, value, own)
                        at = inner * self.cut.columns + (column + self.cut.left)
                        store(self.held, value, slot, v, at, self.vectors.span(0))

    def load(self, row: Expr, inner: Expr, v: Expr, column: Expr) -> Expr:
        """A vector of the row, in 3-D of a row of the plane, at a column counted from the image's first."""
        at = inner * self.cut.columns + (column + self.cut.left)
        return bind("value", self.held[row % self.cut.rows, v, at, self.vectors.span(0)])


@dataclass(frozen=True, kw_only=True)
class RowsTask:
    """Rows, or planes, of the results from ``top`` up to ``bottom``, in the block of channels that begins with
    ``first_vector``."""

    cut: FusedBlockCut
    vectors: Vectors
    part: Expr
    """The number of these rows among those of all images."""
    image: Expr
    top: Expr
    bottom: Expr
    first_vector: Expr
    column_tiles: list[tuple[Expr, Expr, int]]
    """Of a row: (the first column, how many tiles, their width)."""
    band_rows: Expr
    """Rows whose sums are added up before they are added to those of the task."""

    def vector(self, v: Expr) -> NumberedVector:
        number = bind("number", self.first_vector + v)
        return NumberedVector(number, bind("c", self.vectors.start(number)))

    def ring(self) -> Ring:
        return Ring(self.cut, self.vectors)

    def rows_in_bands(self, held: Held | None) -> Iterator[Expr]:
        """A loop over the rows. After each band of them the sums that are held are flushed."""
        height = self.band_rows
        for band in serial("band", (self.cut.results.block_rows + (height - 1)) // height):
            first = bind("band_first", least(self.top + band * height, self.bottom))
            yield from serial("row", first, bind("band_stop", least(first + height, self.bottom)))
            if held:
                held.flush(self.first_vector)

    def met(self, row: Expr, inner: Expr) -> Iterator[tuple[Tap, Expr, Expr]]:
        """Loops over the taps that meet rows of the source from a row of the result: (kd and kh, the plane or row, the
        row of a plane)."""
        for along, source in planes_met(self.cut.along, row):
            for across, source_inner in planes_met(self.cut.across, inner):
                yield self.cut.tap(along, across), source, source_inner

    def all_tiles(self) -> Iterator[tuple[Expr, Expr, int, Expr]]:
        """The row, and the first column, the width and the vector of each tile, over all rows of a plane."""
        for inner in serial("inner_row", self.cut.across.outputs):
            for left, width, v in self.tiles():
                yield inner, left, width, v

    def tiles(self) -> Iterator[tuple[Expr, int, Expr]]:
        """Loops over the tiles of a row, in the ``order`` of the configuration: (first column, width, vector)."""
        for start, count, width in self.column_tiles:
            loops = {
                "w": partial(tile_starts, start, count, width),
                "c": partial(serial, "vector", self.cut.block_vectors),
            }
            for at in nest(self.cut.config.order, loops):
                yield at["w"], width, at["c"]


def tile_starts(start: int, count: int, width: int) -> Iterator[Expr]:
    """A loop over tiles side by side: the first column of each."""
    for turn in serial("tile_w", count):
        yield bind("column", start + turn * width)


def tasks(cut: FusedBlockCut, vectors: Vectors, batch: NormedImages) -> Iterator[RowsTask]:
    """Shares out images × blocks of rows × blocks of channels over the threads."""
    rows, channel_blocks = cut.results, cut.channel_blocks
    columns = cut.axes.columns.outputs
    band_rows = most(1, BAND_PIXELS // (cut.across.outputs * columns))
    column_tiles = list(any_pieces(0, columns, cut.tile_widths)) if cut.any_axes else cut.column_tiles
    hold = settled if cut.any_axes else bind
    band_rows = hold("band_rows", band_rows)
    for task in parallel("task", batch.count * (rows.blocks * channel_blocks)):
        part, first = bind("part", task // channel_blocks), first_part(cut, batch)
        top = hold("top", part % rows.blocks * rows.block_rows)
        yield RowsTask(
            cut=cut,
            vectors=vectors,
            part=part if first is None else bind("part_of_all", first + part),
            image=hold("image", shifted(part // rows.blocks, batch.first)),
            top=top,
            bottom=hold("bottom", least(top + rows.block_rows, rows.rows)),
            first_vector=task % channel_blocks * cut.block_vectors if channel_blocks > 1 else 0,
            column_tiles=column_tiles,
            band_rows=band_rows,
        )


def parts_of_tasks(cut: FusedBlockCut, batch: NormedImages) -> SumParts:
    """The parts that tasks take sums of."""
    rows, columns = cut.results, cut.across.outputs * cut.axes.columns.outputs
    return SumParts(
        images=batch.count,
        blocks=rows.blocks,
        pixels=rows.block_rows * columns,
        image_pixels=rows.rows * columns,
        first=first_part(cut, batch),
    )
