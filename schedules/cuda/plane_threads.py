"""The threads of a block that has whole planes, in the order in which those of a warp meet in no bank."""

from __future__ import annotations

from collections.abc import Iterator

from dwconv.schedules.cuda.emit import threads
from dwconv.schedules.cuda.plane_layout import Neighbours, Tiling, place_of
from dwconv.schedules.emit import Expr


def threads_of_planes(tiling: Tiling, neighbours: Neighbours) -> Iterator[tuple[Expr, Expr, Expr]]:
    """(the planes it has, its tile of them, its number in the block) of a thread."""
    down, across = tiling.counts(neighbours)
    names = ("unit", "tile") if neighbours == "tiles" else ("tile", "unit")
    for outer in threads(names[0], down, axis="y"):
        for inner in threads(names[1], across):
            unit, tile = place_of(neighbours, outer, inner, units=tiling.units)
            yield unit, tile, outer * across + inner
