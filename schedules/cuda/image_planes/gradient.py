"""The kernel behind wgrad of small NCHW maps: whole planes through shared memory, sums in registers.

    dw[c, k] = Σ over n, o of x[n, c, o·stride + k·dilation − padding] · dy[n, c, o]
    dbias[c] = Σ over n, o of dy[n, c, o]

A thread reads each of its rows once, whatever their alignment.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from dwconv.schedules.cuda.image_planes.thread import PlanesThread
from dwconv.schedules.emit import Expr


@dataclass(frozen=True, kw_only=True)
class GradientThread(PlanesThread):
    """One thread, and what it owns."""

    def take(self, turn: Expr) -> None:
        """Straight code: the rows of x one by one, each with the rows of dy that it meets."""
        cut, taps = self.cut, self.cut.columns.taps
        rows, columns = self.reach
        x_start, dy_start = self.starts(self.x, self.dy, turn)
        live_rows, live_columns = rows.live_reads(), columns.live_reads()
        for each in range(cut.thread_planes):
            gradient: dict[int, dict[int, Expr]] = {}
            for at, pairs in live_rows.items():
                for out_row in sorted({out_row for out_row, _ in pairs} - gradient.keys()):
                    gradient[out_row] = self._gradient_row(out_row, start=dy_start, each=each)
                read = self.met_row(self.x, at, start=x_start, each=each).in_float32(live_columns)
                for offset, met in live_columns.items():
                    for (out_row, a), (out, b) in itertools.product(pairs, met):
                        if out in gradient[out_row]:
                            tap = a * taps + b
                            self.sums[each, tap] = self.sums[each, tap] + read[offset] * gradient[out_row][out]
            if cut.workload.bias:
                for out_row in sorted(set(range(cut.tile_h)) - gradient.keys()):  # those that meet padding alone
                    self._gradient_row(out_row, start=dy_start, each=each)

    def _gradient_row(self, row: int, *, start: Expr, each: int) -> dict[int, Expr]:
        """A row of dy, which the gradient of the bias sums up, too."""
        found, bias = self.tile_row(self.dy, row, start=start, each=each), self.cut.taps
        if self.cut.workload.bias:
            for value in found.values():
                self.sums[each, bias] = self.sums[each, bias] + value
        return found
