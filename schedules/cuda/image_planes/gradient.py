"""The kernel behind wgrad of small NCHW maps: whole planes through shared memory, sums in registers.

    dw[c, k] = Σ over n, o of x[n, c, o·stride + k·dilation − padding] · dy[n, c, o]
    dbias[c] = Σ over n, o of dy[n, c, o]

A thread reads each of its rows once, whatever their alignment.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tvm import s_tir, tirx

from dwconv.schedules.cuda.emit.sliding_sum import threads_of_planes
from dwconv.schedules.cuda.emit.split_sum import add_parts
from dwconv.schedules.cuda.emit.words import Registers, argument, as_one_axis, blocks, blocks_per_sm
from dwconv.schedules.cuda.image_planes.cut import GradientCut
from dwconv.schedules.cuda.image_planes.thread import PlanesThread, StagedPlanes
from dwconv.schedules.emit import BATCH, Expr, kernel


def schedule_gradient(cut: GradientCut, *, at_a_time: int) -> s_tir.Schedule:
    """Parameters: x (n, C, H, W), dy (n, C, OH, OW), dw (C, KH, KW), with a bias dbias (C) and, if there is more than
    one part, workspace (parts, results): all of dw, then all of dbias. Registers are shared out for ``at_a_time``
    blocks on an SM."""
    workload, tiling = cut.workload, cut.tiling
    n = tirx.Var(BATCH, "int32")
    with kernel() as builder:
        x = argument("x", (n, workload.channels, *workload.input_size), workload.dtype)
        dy = argument("dy", (n, workload.channels, *workload.output_size), workload.dtype)
        totals = [argument("dw", workload.weight_shape, workload.dtype)]
        if workload.bias:
            totals.append(argument("dbias", (workload.channels,), workload.dtype))
        workspace = argument("workspace", (cut.split_n, cut.results), "float32") if cut.split_n > 1 else None
        x, dy, totals = as_one_axis(x), as_one_axis(dy), [as_one_axis(total) for total in totals]
        partial = None if workspace is None else as_one_axis(workspace)
        for block in blocks("block", cut.channel_blocks * cut.split_n):
            for unit, tile, number in threads_of_planes(tiling, cut.layout.neighbours):
                with blocks_per_sm(at_a_time):
                    thread = Thread(
                        cut=cut,
                        x=StagedPlanes.of("x", x, cut.met, cut),
                        dy=StagedPlanes.of("dy", dy, cut.tiled, cut),
                        sums=Registers("sums", cut.thread_planes, cut.sums_of_channel),
                        batch=n,
                        part=block // cut.channel_blocks,
                        first_channel=block % cut.channel_blocks * cut.planes,
                        unit=unit,
                        tile=tile,
                        number=number,
                    )
                    thread.sum()
                    thread.write_sums(totals, partial)
        if partial is not None:
            add_parts(partial, totals, count=cut.split_n, dtype=workload.dtype)
    return s_tir.Schedule(builder.get())


@dataclass(frozen=True, kw_only=True)
class Thread(PlanesThread):
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
