"""What the tiles along one axis of an image read and multiply, all of them together. No TVM here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from dwconv.schedules.taps import Axis, column_runs, rolled_column_runs


@dataclass(frozen=True, kw_only=True)
class AxisWork:
    """Tiles side by side along an axis; padding is neither read nor multiplied."""

    tiles: int
    reads: int
    """Inputs that tiles read, each as often as there are tiles that read it."""
    products: int
    """Pairs of an output and a tap that meet an input."""
    span: int
    """Inputs from the first to the last that one tile reads."""
    edges: int
    """Tiles that have code of their own, since their inputs are partly padding, or fewer."""


@cache
def row_tiles(axis: Axis, size: int) -> AxisWork:
    """Tiles of ``size`` rows in a loop. The last computes rows beyond the end, too, as far as there are inputs."""
    tiles = -(-axis.outputs // size)
    reads = products = 0
    for at, pairs in axis.reads(size).items():
        live = axis.live_tiles(at, width=size)
        reads += live
        products += live * len(pairs)
    return AxisWork(tiles=tiles, reads=reads, products=products, span=axis.spanned(size)[1], edges=0)


@cache
def column_tiles(axis: Axis, size: int) -> AxisWork:
    """Tiles of ``size`` columns, written out at the edges."""
    return _column_tiles(axis, size, rolled=False)


@cache
def rolled_column_tiles(axis: Axis, size: int) -> AxisWork:
    """The same where taps are loops, and edges therefore narrow."""
    return _column_tiles(axis, size, rolled=True)


def _column_tiles(axis: Axis, size: int, *, rolled: bool) -> AxisWork:
    runs = rolled_column_runs(axis, size) if rolled else column_runs(axis, size)
    met = [(run.tiles, axis.reads_of(run)) for run in runs]
    return AxisWork(
        tiles=sum(tiles for tiles, _ in met),
        reads=sum(tiles * len(reads) for tiles, reads in met),
        products=sum(tiles * sum(len(pairs) for _, pairs in reads) for tiles, reads in met),
        span=axis.spanned(size)[1],
        edges=sum(run.tiles for run in runs if not run.interior),
    )
