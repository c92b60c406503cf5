"""Loops over the register tiles of a task."""

from __future__ import annotations

from collections.abc import Iterator

from dwconv.schedules.cpu.shared.blocks import RowCut
from dwconv.schedules.emit import Expr, bind, ceil_div, least, serial
from dwconv.schedules.taps import Run


def tile_rows(cut: RowCut, top: Expr) -> Iterator[Expr]:
    """A loop over the tiles of the block that begins at row ``top``: the first row of each."""
    tiles: Expr = ceil_div(min(cut.block_rows, cut.rows), cut.tile_h)
    if cut.rows % cut.block_rows:
        tiles = least(tiles, ceil_div(cut.rows - top, cut.tile_h))
    for tile in serial("tile_h", tiles):
        yield bind("row", top + tile * cut.tile_h)


def has_row(cut: RowCut, top: Expr, row: int) -> Expr:
    """Whether row ``row`` of the tile that begins at ``top`` is a row of the result."""
    return True if row == 0 or cut.rows % cut.tile_h == 0 else top + row < cut.rows


def tile_columns(runs: list[Run]) -> Iterator[tuple[Expr, Run]]:
    """Loops over the tiles of a row, edges and interior: the first column of each."""
    for run in runs:
        for tile in serial("tile_w", run.tiles):
            yield bind("column", run.start + tile * run.width), run
