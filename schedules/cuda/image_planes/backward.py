"""The kernel behind both gradients of NCHW maps: whole planes through shared memory, dx in the place of x.

    dx[n, c, i] = Σ over k of dy[n, c, o] · w[c, k]          where o · stride + k · dilation − padding = i
    dw[c, k] = Σ over n, o of dy[n, c, o] · x[n, c, i]

A thread has a tile of x. It multiplies what it reads of dy for dx by x as well; sums of dw stay in its registers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tvm import s_tir, tirx

from dwconv.schedules.cuda.emit.sliding_sum import Pairs, SlidingSum, SourcePlane, SourceRow, threads_of_planes
from dwconv.schedules.cuda.emit.split_sum import add_parts
from dwconv.schedules.cuda.emit.words import (
    Registers,
    argument,
    as_one_axis,
    barrier,
    blocks,
    blocks_per_sm,
    in_float32,
    seen_apart,
    span,
    zero,
)
from dwconv.schedules.cuda.image_planes.cut import BackwardCut
from dwconv.schedules.cuda.image_planes.thread import PlanesThread, StagedPlanes
from dwconv.schedules.emit import BATCH, Expr, all_of, bind, kernel, least, store, when
from dwconv.schedules.gather import Gather

ROWS_AHEAD = 1


def schedule_backward(cut: BackwardCut, *, at_a_time: int) -> s_tir.Schedule:
    """Parameters: dy (n, C, OH, OW), x (n, C, H, W), w (C, KH, KW), dx as x, dw as w and, if there is more than one
    part, workspace (parts, results). Registers are shared out for ``at_a_time`` blocks on an SM."""
    workload, tiling = cut.workload, cut.tiling
    n = tirx.Var(BATCH, "int32")
    of_x = (n, workload.channels, *workload.input_size)
    with kernel() as builder:
        dy = argument("dy", (n, workload.channels, *workload.output_size), workload.dtype)
        x = argument("x", of_x, workload.dtype)
        w = argument("w", workload.weight_shape, workload.dtype)
        dx = argument("dx", of_x, workload.dtype)
        dw = argument("dw", workload.weight_shape, workload.dtype)
        workspace = argument("workspace", (cut.split_n, cut.results), "float32") if cut.split_n > 1 else None
        dy, x, w, dx, dw = (as_one_axis(tensor) for tensor in (dy, x, w, dx, dw))
        partial = None if workspace is None else as_one_axis(workspace)
        for block in blocks("block", cut.channel_blocks * cut.split_n):
            for unit, tile, number in threads_of_planes(tiling, cut.layout.neighbours):
                with blocks_per_sm(at_a_time):
                    x_planes = StagedPlanes.of("x", x, cut.tiled, cut)
                    thread = Thread(
                        cut=cut,
                        x=x_planes,
                        dy=StagedPlanes.of("dy", dy, cut.met, cut),
                        sums=Registers("sums", cut.thread_planes, cut.sums_of_channel),
                        batch=n,
                        part=block // cut.channel_blocks,
                        first_channel=block % cut.channel_blocks * cut.planes,
                        unit=unit,
                        tile=tile,
                        number=number,
                        dx=dx,
                        results=seen_apart("results", x_planes.planes),
                        weights=[Registers("weight", *workload.kernel) for _ in range(cut.thread_planes)],
                    )
                    thread.load(w)
                    thread.sum()
                    thread.write_sums([dw], partial)
        if partial is not None:
            add_parts(partial, [dw], count=cut.split_n, dtype=workload.dtype)
    return s_tir.Schedule(builder.get())


@dataclass(frozen=True, kw_only=True)
class Thread(PlanesThread):
    """One thread, and what it owns."""

    cut: BackwardCut
    dx: Any
    results: Any
    """The planes of x by another name."""
    weights: list[Registers]
    """Of each of its channels."""

    def load(self, w: Any) -> None:
        """Its weights. A channel that does not exist has those of the last one."""
        channels, (_, columns) = self.cut.workload.channels, self.cut.workload.kernel
        for each, weights in enumerate(self.weights):
            channel = self.first_channel + (self.group * self.cut.thread_planes + each)
            channel = bind("channel", channel if self.cut.full else least(channel, channels - 1))
            for tap in range(self.cut.taps):
                weights[divmod(tap, columns)] = in_float32(w[channel * self.cut.taps + tap])

    def take(self, turn: Expr) -> None:
        rows, columns = self.reach
        dy_start, x_start = self.starts(self.dy, self.x, turn)
        for each in range(self.cut.thread_planes):
            Plane(
                gather=Gather.of(self.cut.workload),
                rows=rows,
                columns=columns,
                rows_ahead=ROWS_AHEAD,
                thread=self,
                each=each,
                dy_start=dy_start,
                x_start=x_start,
            ).sum()
        barrier()
        self.write_planes(self.x, self.dx, turn)


@dataclass(frozen=True, kw_only=True)
class Plane(SlidingSum):
    """The work of one thread on its ``each``-th plane of an image."""

    thread: Thread
    each: int
    dy_start: Expr
    x_start: Expr
    pixels: dict[int, dict[int, Expr]] = field(default_factory=dict)
    """x, row by row."""

    def start(self) -> Expr:
        return zero("float32")

    def weights(self, plane: SourcePlane) -> Registers:
        return self.thread.weights[self.each]

    def fetch(self, plane: SourcePlane, at: int) -> SourceRow:
        return self.thread.met_row(self.thread.dy, at, start=self.dy_start, each=self.each)

    def multiply(self, values: dict[int, Expr], weights: Registers, sums: Registers, met: Pairs) -> None:
        for row in sorted({row for row, _ in met} - self.pixels.keys()):
            exists = self.rows.writes(row) is not False
            thread = self.thread
            self.pixels[row] = thread.tile_row(thread.x, row, start=self.x_start, each=self.each) if exists else {}
        super().multiply(values, weights, sums, met)
        dw, taps = self.thread.sums, self.columns.axis.taps
        for offset, pairs in self.columns.live_reads().items():
            for row, kh in met:
                for column, kw in pairs:
                    if column in self.pixels[row]:
                        at = self.each, kh * taps + kw
                        dw[at] = dw[at] + values[offset] * self.pixels[row][column]

    def write(self, sums: Registers, row: int) -> None:
        """In the place of x, all of whose row has been read."""
        cut, planes, pitch = self.thread.cut, self.thread.results, self.columns.axis.outputs
        first = self.x_start + self.each * cut.tiled.pitch
        for at, lanes in cut.row_pieces(self.each, row):
            column = at - row * pitch
            with when(all_of(self.rows.writes(row), self.columns.writes(column, lanes))):
                value = Registers("value", lanes, dtype=planes.dtype)
                for lane in range(lanes):
                    value[lane] = sums[row, column + lane].astype(planes.dtype)
                store(planes, value.vector(0, lanes), span(first + at, lanes))
