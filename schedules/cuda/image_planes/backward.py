"""The kernel behind both gradients of NCHW maps: whole planes through shared memory, dx in the place of x.

    dx[n, c, i] = Σ over k of dy[n, c, o] · w[c, k]          where o · stride + k · dilation − padding = i
    dw[c, k] = Σ over n, o of dy[n, c, o] · x[n, c, i]

A thread has a tile of x. It multiplies what it reads of dy for dx by x as well; sums of dw stay in its registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dwconv.schedules.cuda.emit.sliding_sum import Pairs, SlidingSum, SourcePlane, SourceRow
from dwconv.schedules.cuda.emit.words import (
    Registers,
    barrier,
    in_float32,
    seen_apart,
    span,
    zero,
)
from dwconv.schedules.cuda.image_planes.cut import BackwardCut
from dwconv.schedules.cuda.image_planes.thread import PlanesThread
from dwconv.schedules.emit import Expr, all_of, bind, least, store, when
from dwconv.schedules.gather import Gather

ROWS_AHEAD = 1


@dataclass(frozen=True, kw_only=True)
class BackwardThread(PlanesThread):
    """One thread, and what it owns."""

    cut: BackwardCut
    dx: Any
    results: Any
    """The planes of x by another name."""
    weights: list[Registers]
    """Of each of its channels."""

    @classmethod
    def made(cls, tensors: Mapping[str, Any], **fields: Any) -> BackwardThread:
        cut = fields["cut"]
        thread = cls(
            dx=tensors["dx"],
            results=seen_apart("results", fields["x"].planes),
            weights=[Registers("weight", *cut.workload.kernel) for _ in range(cut.thread_planes)],
            **fields,
        )
        thread._load(tensors["w"])
        return thread

    def _load(self, w: Any) -> None:
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

    thread: BackwardThread
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
