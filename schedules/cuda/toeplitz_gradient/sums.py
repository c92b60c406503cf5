"""The sums of a warp, which stay in registers to the end: columns of x by columns of dy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dwconv.schedules.cuda.emit.words import Registers
from dwconv.schedules.cuda.gpu.tensor_cores import COLUMNS
from dwconv.schedules.cuda.toeplitz_gradient.cut import ToeplitzGradientCut
from dwconv.schedules.emit import Expr


@dataclass(frozen=True, kw_only=True)
class Sums:
    """Matrices of 16 × 8, four sums of each in a lane."""

    cut: ToeplitzGradientCut
    of_rows: Registers | None
    """For every kernel row, unit of dy, and matrix of two units of x."""
    of_pairs: Registers | None
    """For every pair of kernel rows and unit of dy: the odd unit of x, for one of them and then for the other."""

    @classmethod
    def of(cls, cut: ToeplitzGradientCut) -> Sums:
        """All zero."""
        of_rows = Registers("sum", cut.group_kh, cut.units_w, cut.matrices, 4) if cut.matrices else None
        of_pairs = Registers("sum_of_pair", cut.pairs_kh, cut.units_w, 4) if cut.has_odd_unit else None
        for each in (of_rows, of_pairs):
            if each is not None:
                each.clear()
        return cls(cut=cut, of_rows=of_rows, of_pairs=of_pairs)

    def of_row(self, tap: int) -> Iterator[tuple[int, int, Expr]]:
        """(unit of x, column of dy, sum) of a lane for a kernel row, counted from its own place in both."""
        for of in range(self.cut.units_w):
            if self.of_rows is not None:
                for matrix in range(self.cut.matrices):
                    for each in range(4):
                        yield matrix * 2 + each // 2, of * COLUMNS + each % 2, self.of_rows[tap, of, matrix, each]
            if self.of_pairs is not None:
                for each in range(2):
                    value = self.of_pairs[tap // 2, of, tap % 2 * 2 + each]
                    yield len(self.cut.band) - 1, of * COLUMNS + each, value
