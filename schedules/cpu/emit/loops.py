"""Loops over the register tiles of a task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dwconv.schedules.cpu.emit.words import settled
from dwconv.schedules.cpu.shared.row_blocks import RowCut
from dwconv.schedules.cpu.shared.weight_gradient import RegisterTaps
from dwconv.schedules.emit import Expr, all_of, bind, ceil_div, least, most, serial, when
from dwconv.schedules.taps import Axis, TileRun


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


@dataclass(frozen=True)
class Meeting:
    """The outputs that meet an input at some of several taps, and among them, one after the other, those that do at
    all of them."""

    any: OutputRange
    inner: OutputRange


def meeting_outputs(axis: Axis, taps: RegisterTaps, among: OutputRange) -> Meeting:
    """Those ``among`` outputs that meet kernel columns ``taps``, neighbours the first of which is a turn of a loop."""
    first, last = (live_outputs(axis, tap, among) for tap in (taps.kw, taps.kw + taps.width - 1))
    # A tap that none of them meets has its place beyond all of them.
    start = settled("any_first", least(least(first.first, last.first), among.stop))
    stop = settled("any_stop", most(start, least(most(first.stop, last.stop), among.stop)))
    inner = settled("inner_first", least(most(first.first, last.first), stop))
    inner_stop = settled("inner_stop", most(inner, least(least(first.stop, last.stop), stop)))
    return Meeting(any=OutputRange(start, stop), inner=OutputRange(inner, inner_stop))


def tile_rows(cut: RowCut, top: Expr) -> Iterator[Expr]:
    """A loop over the tiles of the block that begins at row ``top``: the first row of each."""
    tiles: Expr = ceil_div(least(cut.block_rows, cut.rows), cut.tile_h)
    if not divides(cut.block_rows, cut.rows):
        tiles = least(tiles, ceil_div(cut.rows - top, cut.tile_h))
    for tile in serial("tile_h", tiles):
        yield bind("row", top + tile * cut.tile_h)


def has_row(cut: RowCut, top: Expr, row: int) -> Expr:
    """Whether row ``row`` of the tile that begins at ``top`` is a row of the result."""
    return True if row == 0 or divides(cut.tile_h, cut.rows) else top + row < cut.rows


def is_one(count: Expr) -> bool:
    """Whether it is known to be 1."""
    return isinstance(count, int) and count == 1


def divides(tile: int, size: Expr) -> bool:
    """Whether tiles are known to be whole."""
    return isinstance(size, int) and size % tile == 0


@dataclass(frozen=True)
class ColumnBlock:
    """One of ``count`` blocks of the columns of a row, by its number. Each has as many of the interior tiles; what is
    before them belongs to the first block, what is behind them to the last."""

    number: Expr
    count: Expr

    def tiles(self, tiles: Expr) -> tuple[Expr, Expr]:
        """Which of as many tiles in a row are its own, as the bounds of a loop."""
        each = ceil_div(tiles, self.count)
        first = bind("first_tile", least(self.number * each, tiles))
        return first, bind("stop_tile", least(first + each, tiles))

    def outputs(self, columns: Expr) -> OutputRange:
        """Its columns, where tiles may begin anywhere."""
        if is_one(self.count):
            return OutputRange(0, columns)
        return OutputRange(*self.tiles(columns))


WHOLE_ROW = ColumnBlock(0, 1)


def tile_columns(
    runs: list[TileRun], block: ColumnBlock = WHOLE_ROW, *, cell: int = 1
) -> Iterator[tuple[Expr, TileRun]]:
    """Loops over the tiles of a block of a row, edges and interior: the first column of each or, where ``cell`` columns
    are one, its first cell."""
    interior = next((at for at, run in enumerate(runs) if run.interior), len(runs))
    for at, run in enumerate(runs):
        if is_one(block.count):
            is_here, tiles = True, (0, run.tiles)
        elif run.interior:
            is_here, tiles = True, block.tiles(run.tiles)
        else:
            is_here, tiles = block.number == (0 if at < interior else block.count - 1), (0, run.tiles)
        with when(all_of(is_here, run.exists)):
            for tile in serial("tile_w", *tiles):
                column = run.at(tile) if cell == 1 else run.start // cell + tile * (run.width // cell)
                yield bind("column", column), run
