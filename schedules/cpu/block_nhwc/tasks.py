"""The tasks of the convolution inside a block, and the tiles of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from dwconv.schedules.any_size import any_pieces
from dwconv.schedules.cpu.block_nhwc.cut import BAND_PIXELS, Cut
from dwconv.schedules.cpu.block_nhwc.ring import Ring
from dwconv.schedules.cpu.block_nhwc.sums import Held, Parts
from dwconv.schedules.cpu.emit.vectors import NumberedVector, Vectors
from dwconv.schedules.cpu.emit.words import parallel, settled
from dwconv.schedules.emit import Expr, bind, least, most, nest, serial


@dataclass(frozen=True, kw_only=True)
class Task:
    """Rows of the results from ``top`` up to ``bottom``, in the block of channels that begins with ``first_vector``."""

    cut: Cut
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
        return Ring.empty(self.cut.axes, self.vectors, self.cut.ring, self.cut.block_vectors)

    def rows_in_bands(self, held: Held | None) -> Iterator[Expr]:
        """A loop over the rows. After each band of them the sums that are held are flushed."""
        height = self.band_rows
        for band in serial("band", (self.cut.results.block_rows + (height - 1)) // height):
            first = bind("band_first", least(self.top + band * height, self.bottom))
            yield from serial("row", first, bind("band_stop", least(first + height, self.bottom)))
            if held:
                held.flush(self.first_vector)

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


def tasks(cut: Cut, vectors: Vectors, n: Expr) -> Iterator[Task]:
    """Shares out images × blocks of rows × blocks of channels over the threads."""
    rows, channel_blocks = cut.results, cut.channel_blocks
    columns = cut.axes.columns.outputs
    band_rows = most(1, BAND_PIXELS // columns)
    column_tiles = list(any_pieces(0, columns, cut.tile_widths)) if cut.any_axes else cut.column_tiles
    hold = settled if cut.any_axes else bind
    band_rows = hold("band_rows", band_rows)
    for task in parallel("task", n * (rows.blocks * channel_blocks)):
        part = bind("part", task // channel_blocks)
        top = hold("top", part % rows.blocks * rows.block_rows)
        yield Task(
            cut=cut,
            vectors=vectors,
            part=part,
            image=hold("image", part // rows.blocks),
            top=top,
            bottom=hold("bottom", least(top + rows.block_rows, rows.rows)),
            first_vector=task % channel_blocks * cut.block_vectors if channel_blocks > 1 else 0,
            column_tiles=column_tiles,
            band_rows=band_rows,
        )


def parts_of_tasks(cut: Cut, n: Expr) -> Parts:
    """The parts that tasks take sums of."""
    rows, columns = cut.results, cut.axes.columns.outputs
    return Parts(
        images=n,
        blocks=rows.blocks,
        pixels=rows.block_rows * columns,
        image_pixels=rows.rows * columns,
    )
