"""The kernels that sum over images: whole planes through shared memory, sums in registers.

    wgrad           dw[c, k] = Σ over n, o of x[n, c, o·stride + k·dilation − padding] · dy[n, c, o]
                    dbias[c] = Σ over n, o of dy[n, c, o]
    both gradients  dw; dx[n, c, i] = Σ over k of dy[n, c, o] · w[c, k]      where o·stride + k·dilation − padding = i

A thread reads each of its rows once, whatever their alignment. For both gradients it has a tile of x, and multiplies
what it reads of dy for dx by x as well; dx takes the place of x.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm import s_tir, tirx

from dwconv.schedules.cuda.emit.sliding_sum import Pairs, SlidingSource, SlidingSum, SourceRow, threads_of_planes
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
from dwconv.schedules.cuda.wgrad_nchw_plane.cut import BackwardCut, ImagePlanes
from dwconv.schedules.cuda.wgrad_nchw_plane.plane_thread import PlanesThread, StagedTensor
from dwconv.schedules.emit import BATCH, Expr, all_of, bind, kernel, least, store, when
from dwconv.schedules.gather import Gather


def schedule_images(cut: ImagePlanes, *, at_a_time: int) -> s_tir.Schedule:
    """Parameters: x (n, C, H, W), dy (n, C, OH, OW), dw (C, KH, KW), perhaps dbias (C); for both gradients dy, x, w, dx
    as x, dw as w; then, if there is more than one part, workspace (parts, results): all of dw, then all of dbias.
    Registers are shared out for ``at_a_time`` blocks on an SM."""
    workload, n = cut.workload, tirx.Var(BATCH, "int32")
    thread_of: type[PlanesThread] = BackwardThread if cut.writes else GradientThread
    shapes = {
        **dict.fromkeys(("x", "dx"), (n, workload.channels, *workload.input_size)),
        "dy": (n, workload.channels, *workload.output_size),
        **dict.fromkeys(("w", "dw"), workload.weight_shape),
        "dbias": (workload.channels,),
    }
    with kernel() as builder:
        names = (*workload.inputs, *workload.results)
        arguments = [argument(name, shapes[name], workload.dtype) for name in names]
        workspace = argument("workspace", (cut.split_n, cut.results), "float32") if cut.split_n > 1 else None
        tensors = {name: as_one_axis(tensor) for name, tensor in zip(names, arguments, strict=True)}
        totals = [tensors[name] for name in workload.results if name != "dx"]
        partial = None if workspace is None else as_one_axis(workspace)
        for block in blocks("block", cut.channel_blocks * cut.split_n):
            for unit, tile, number in threads_of_planes(cut.tiling, cut.layout.neighbours):
                with blocks_per_sm(at_a_time):
                    thread = thread_of.made(
                        tensors, cut=cut, batch=n, unit=unit, tile=tile, number=number,
                        x=StagedTensor.of("x", tensors["x"], cut.tiled if cut.writes else cut.met, cut),
                        dy=StagedTensor.of("dy", tensors["dy"], cut.met if cut.writes else cut.tiled, cut),
                        sums=Registers("sums", cut.thread_planes, cut.sums_of_channel),
                        part=block // cut.channel_blocks, first_channel=block % cut.channel_blocks * cut.planes,
                    )  # fmt: skip
                    thread.sum()
                    thread.write_sums(totals, partial)
        if partial is not None:
            add_parts(partial, totals, count=cut.split_n, dtype=workload.dtype)
    return s_tir.Schedule(builder.get())


@dataclass(frozen=True, kw_only=True)
class GradientThread(PlanesThread):
    """One thread, and what it owns."""

    def take(self, turn: Expr) -> None:
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
            OnePlaneThread(
                gather=Gather.of(self.cut.workload), rows=rows, columns=columns, rows_ahead=ROWS_AHEAD,
                thread=self, each=each, dy_start=dy_start, x_start=x_start,
            ).sum()  # fmt: skip
        barrier()
        self.write_planes(self.x, self.dx, turn)


@dataclass(frozen=True, kw_only=True)
class OnePlaneThread(SlidingSum):
    """The work of one thread on its ``each``-th plane of an image."""

    thread: BackwardThread
    each: int
    dy_start: Expr
    x_start: Expr
    pixels: dict[int, dict[int, Expr]] = field(default_factory=dict)
    """x, row by row."""

    def start(self) -> Expr:
        return zero("float32")

    def weights(self, plane: SlidingSource) -> Registers:
        return self.thread.weights[self.each]

    def fetch(self, plane: SlidingSource, at: int) -> SourceRow:
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
