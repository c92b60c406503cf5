"""How long the straight code of a kernel is, which says how long it takes to compile. No TVM here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from dwconv.schedules.taps import Axis, column_runs

MOST_CODE = 3000
"""Vector instructions in the straight code of a kernel. TVM and LLVM need 0.3 to 1 ms for each."""

WIDE_KERNEL = 16
"""From this width on a space also has loops over all taps: a kernel row, unrolled, may be too much code."""


def load_cost(multiplier: int) -> int:
    """Instructions that load a vector of the source: with a multiplier its channels are not neighbours."""
    return 1 if multiplier == 1 else 32


@dataclass(frozen=True, kw_only=True)
class RowCode:
    """The code for a row of tiles, with one kernel row and one vector of channels."""

    tiles: int
    reads: int
    """Columns of the source that are read."""
    products: int

    @classmethod
    def of(cls, columns: Axis, tile_w: int) -> RowCode:
        return _row_code(columns, tile_w)


@cache
def _row_code(columns: Axis, tile_w: int) -> RowCode:
    tile_reads = [columns.reads_of(run) for run in column_runs(columns, tile_w)]
    return RowCode(
        tiles=len(tile_reads),
        reads=sum(map(len, tile_reads)),
        products=sum(len(pairs) for reads in tile_reads for _, pairs in reads),
    )
