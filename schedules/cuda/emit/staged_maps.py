"""Maps brought to shared memory by threads together, in rows of whole units."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dwconv.schedules.cuda.emit.words import Registers, copy_async, in_register, span, turns, unrolled
from dwconv.schedules.cuda.gpu.hardware import LEAST_COPY_BYTES, VECTOR_BYTES
from dwconv.schedules.cuda.gpu.staged_maps import Sharing, StagedMaps
from dwconv.schedules.cuda.gpu.tensor_cores import UNIT
from dwconv.schedules.emit import Expr, all_of, inside, store, when


def shared_out(sharing: Sharing, thread: Expr) -> Iterator[tuple[Expr, Expr]]:
    """Every vector of every row once: (row, vector)."""
    across, down = sharing.across, sharing.down
    first = in_register("first_row", thread // across)
    with when(down * across == sharing.threads or first < down):
        for part in turns("part", sharing.parts):
            vector = in_register("vector", thread % across + part * across)
            with when(sharing.vectors % across == 0 or vector < sharing.vectors):
                for turn in turns("turn", sharing.turns):
                    row = in_register("row", turn * down + first)
                    with when(sharing.rows % down == 0 or row < sharing.rows):
                        yield row, vector


@dataclass(frozen=True, kw_only=True)
class Maps:
    """The maps of one channel in shared memory."""

    held: StagedMaps
    staged: Any
    """Shared memory."""
    first: Expr
    """Where they begin in it."""
    top: Expr
    """The row of the map from which ``held.rows`` are counted; and the column for ``held.units``."""
    left: Expr

    def row(self, image: Expr, row: Expr) -> Expr:
        """Where a row that is held begins."""
        return self.first + (image * self.held.image_units + row * self.held.row_units) * UNIT

    def row_of_matrix(self, m: Expr) -> Expr:
        """Where row m of a matrix begins, in the first row of each strip."""
        return self.row(m // self.held.strips, m % self.held.strips * self.held.tile_h)

    def copy(
        self,
        source: Any,
        *,
        first_image: Expr,
        channel: Expr,
        exists: Callable[[Expr], Expr],
        thread: Expr,
        threads: int,
    ) -> None:
        """Copies the rows from global memory, zeros where there is nothing, and into the pad after each: then
        neighbouring threads write neighbouring words. ``exists``: whether the batch has that image of the block."""
        held, lanes, dtype = self.held, self.held.lanes, source.dtype
        for row, vector in shared_out(held.sharing(threads), thread):
            source_row = self.top + (row + held.rows.start)
            column = self.left + (vector * lanes + held.units.start * UNIT)
            is_inside = all_of(inside(source_row, held.height), inside(column, held.width))
            for image in unrolled("image", held.images):
                at, there = self.row(image, row) + vector * lanes, all_of(is_inside, exists(image))
                indices = (first_image + image, channel, source_row)
                if lanes * VECTOR_BYTES // UNIT >= LEAST_COPY_BYTES:
                    copy_async(self.staged, at, source, *indices, column, elements=lanes, valid=there)
                    continue
                value = Registers("value", lanes, dtype=dtype)
                value.clear()
                with when(there):
                    value.put(0, source[(*indices, span(column, lanes))], lanes=lanes)
                store(self.staged, value.vector(0, lanes), span(at, lanes))
