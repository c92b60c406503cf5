"""Loops over the register tiles of a task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dwconv.schedules.cpu.shared.blocks import RowCut
from dwconv.schedules.emit import Expr, bind, ceil_div, least, most, serial
from dwconv.schedules.taps import Axis, Run


@dataclass(frozen=True)
class OutputRange:
    """The outputs along an axis from ``first`` to ``stop`` − 1."""

    first: Expr
    stop: Expr


def live_outputs(axis: Axis, tap: Expr, among: OutputRange) -> OutputRange:
    """Those ``among`` outputs that meet an input, not padding, at ``tap``."""
    at = tap * axis.step + axis.shift
    first = bind("first", most(among.first, ceil_div(-at, axis.up)))
    stop = bind("stop", most(first, least(among.stop, (axis.inputs - 1 - at) // axis.up + 1)))
    return OutputRange(first, stop)


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
