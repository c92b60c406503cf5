"""The kernel behind wgrad of small NCHW maps: whole planes through shared memory, sums in registers.

    dw[c, k] = Σ over n, o of x[n, c, o·stride + k·dilation − padding] · dy[n, c, o]
    dbias[c] = Σ over n, o of dy[n, c, o]

The planes that a block has of an image are one piece of memory; cp.async brings it as it lies, for the next turns while
this one is summed. A thread reads each of its rows once, whatever their alignment, and keeps its sums to the end.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from dwconv.schedules.cuda.correlate import Start, keep
from dwconv.schedules.cuda.correlation_plane import PlaneCorrelation
from dwconv.schedules.cuda.emit import (
    STATIC_SHARED_BYTES,
    Registers,
    argument,
    as_one_axis,
    barrier,
    blocks,
    blocks_per_sm,
    commit_copies,
    copy_async,
    shared,
    wait_for_copies,
)
from dwconv.schedules.cuda.plane_layout import Held
from dwconv.schedules.cuda.plane_row import read_row
from dwconv.schedules.cuda.plane_threads import threads_of_planes
from dwconv.schedules.cuda.reach import Reach, both
from dwconv.schedules.cuda.sliding import SourceRow
from dwconv.schedules.cuda.split_sum import add_parts, sum_over_threads
from dwconv.schedules.emit import BATCH, Expr, bind, kernel, serial, store, when


def schedule_plane_correlation(work: PlaneCorrelation, *, at_a_time: int) -> s_tir.Schedule:
    """Parameters: x (n, C, H, W), dy (n, C, OH, OW), dw (C, KH, KW), with a bias dbias (C) and, if there is more than
    one part, workspace (parts, results): all of dw, then all of dbias. Registers are shared out for ``at_a_time``
    blocks on an SM."""
    workload, tiling = work.workload, work.tiling
    n = tirx.Var(BATCH, "int32")
    with kernel() as builder:
        x = argument("x", (n, workload.channels, *workload.input_size), workload.dtype)
        dy = argument("dy", (n, workload.channels, *workload.output_size), workload.dtype)
        totals = [argument("dw", workload.weight_shape, workload.dtype)]
        if workload.bias:
            totals.append(argument("dbias", (workload.channels,), workload.dtype))
        workspace = argument("workspace", (work.split_n, work.results), "float32") if work.split_n > 1 else None
        x, dy, totals = as_one_axis(x), as_one_axis(dy), [as_one_axis(total) for total in totals]
        partial = None if workspace is None else as_one_axis(workspace)
        for block in blocks("block", work.channel_blocks * work.split_n):
            for unit, tile, number in threads_of_planes(tiling, work.layout.neighbours):
                with blocks_per_sm(at_a_time):
                    thread = Thread(
                        work=work,
                        x=Staged.of("x", x, work.x, work),
                        dy=Staged.of("dy", dy, work.dy, work),
                        sums=Registers("sums", work.thread_planes, work.sums_of_channel),
                        batch=n,
                        part=block // work.channel_blocks,
                        first_channel=block % work.channel_blocks * work.planes,
                        unit=unit,
                        tile=tile,
                        number=number,
                    )
                    thread.sum()
                    if partial is None:
                        thread.write(*((total, 0) for total in totals))
                    else:
                        first, weights = thread.part * work.results, workload.channels * work.taps
                        thread.write(*((partial, first + at) for at in (0, weights)[: len(totals)]))
        if partial is not None:
            add_parts(partial, totals, count=work.split_n, dtype=workload.dtype)
    return s_tir.Schedule(builder.get())


@dataclass(frozen=True, kw_only=True)
class Staged:
    """x or dy: in global memory, and the planes of some turns in shared memory, image after image."""

    elements: Any
    planes: Any
    held: Held

    @classmethod
    def of(cls, name: str, elements: Any, held: Held, work: PlaneCorrelation) -> Staged:
        dynamic = work.shared_bytes > STATIC_SHARED_BYTES
        room = work.pipeline * work.images * work.planes * held.pitch
        planes = shared(f"{name}_planes", room, dtype=elements.dtype, dynamic=dynamic)
        return cls(elements=elements, planes=planes, held=held)


@dataclass(frozen=True, kw_only=True)
class Thread:
    """One thread, and what it owns."""

    work: PlaneCorrelation
    x: Staged
    dy: Staged
    sums: Registers
    batch: Expr
    part: Expr
    first_channel: Expr
    """Of the block."""
    unit: Expr
    """Its group of channels, of its image: image after image."""
    tile: Expr
    number: Expr
    """Of the thread in its block."""

    def sum(self) -> None:
        """Through all images of the block; then over the threads."""
        ahead = self.work.pipeline - 1
        self.sums.clear()
        for turn in range(ahead):
            self._copy(turn)
        at_a_time = self.work.images * self.work.split_n
        for turn in serial("turn", tirx.truncdiv(self.batch - self._first_image(0) + (at_a_time - 1), at_a_time)):
            self._copy(turn + ahead)
            wait_for_copies(pending=ahead)
            barrier()
            self._add_images(turn)
            barrier()
        groups = self.work.groups
        sum_over_threads(self.sums, mate=self._mate, mates=self.work.mates, others=groups, slot=self._slot)

    def write(self, weights: Start, bias: Start | None = None) -> None:
        """To memory: each into a tensor, counted from an element."""
        work, taps = self.work, self.work.taps
        with when(work.mates == 1 or self._mate == 0):
            for each in range(work.thread_planes):
                channel = bind("channel", self.first_channel + self._group * work.thread_planes + each)
                with when(work.full or channel < work.workload.channels):
                    into, start = weights
                    for tap in range(taps):
                        store(into, self.sums[each, tap].astype(into.dtype), start + channel * taps + tap)
                    if bias is not None:
                        into, start = bias
                        store(into, self.sums[each, taps].astype(into.dtype), start + channel)

    # -- its place -------------------------------------------------------------------------------------------------

    @property
    def _group(self) -> Expr:
        return self.unit % self.work.groups

    def _first_image(self, turn: Expr) -> Expr:
        """Of a turn of the block."""
        return (turn * self.work.split_n + self.part) * self.work.images

    @property
    def _mate(self) -> Expr:
        """Its number among the threads whose sums it meets, in the order of threads."""
        work, image = self.work, self.unit // self.work.groups
        if work.layout.neighbours == "tiles":
            return image * work.tiling.plane_threads + self.tile
        return self.tile * work.images + image

    def _slot(self, mate: Expr, width: int) -> Expr:
        """In the order of the threads, so that those of a warp use different banks: halving goes over whole images,
        whose number is a power of 2, and then over the tiles of the first."""
        groups, neighbours = self.work.groups, self.work.layout.neighbours
        if neighbours == "planes":
            return mate * groups + self._group
        if neighbours == "even planes":
            return (self._group % 2 * width + mate) * (groups // 2) + self._group // 2
        together = min(self.work.tiling.plane_threads, width)
        return (mate // together * groups + self._group) * together + mate % together

    # -- copies ----------------------------------------------------------------------------------------------------

    def _copy(self, turn: Expr) -> None:
        """Asks for the planes of a turn, by all threads alike; zeros where there are no more images or channels."""
        work, channels = self.work, self.work.workload.channels
        first_image = bind("first_image", self._first_image(turn))
        with when(first_image < self.batch):
            for copy in range(max(work.copies(self.x.held), work.copies(self.dy.held))):
                item = copy * work.threads + self.number
                for tensor in (self.x, self.dy):
                    held, lanes = tensor.held, tensor.held.copied_lanes
                    piece = work.planes * held.elements // lanes
                    with when((copy + 1) * work.threads <= work.images * piece or item < work.images * piece):
                        image = item // piece if work.images > 1 else 0
                        at = (item - image * piece) * lanes
                        start = ((first_image + image) * channels + self.first_channel) * held.elements
                        exists = first_image + image < self.batch
                        within = work.full or at < (channels - self.first_channel) * held.elements
                        copy_async(
                            tensor.planes,
                            self._stage(tensor, turn) + held.place(item),
                            tensor.elements,
                            start + at,
                            elements=lanes,
                            valid=both(exists, within),
                        )
        commit_copies()

    def _stage(self, tensor: Staged, turn: Expr) -> Expr:
        """Where the planes of a turn start in shared memory."""
        work = self.work
        return turn % work.pipeline * (work.images * work.planes * tensor.held.pitch) if work.pipeline > 1 else 0

    # -- sums ------------------------------------------------------------------------------------------------------

    def _add_images(self, turn: Expr) -> None:
        """The thread's own. Straight code: the rows of x one by one, each with the rows of dy that it meets."""
        work, tiling, taps = self.work, self.work.tiling, self.work.columns.taps
        across = tiling.tiles_w
        row, column = (self.tile // across, self.tile % across) if across > 1 else (self.tile, 0)
        rows = Reach(axis=work.rows, width=work.tile_h, tiles=tiling.tiles_h, index=row)
        columns = Reach(axis=work.columns, width=work.tile_w, tiles=tiling.tiles_w, index=column)
        x_start, dy_start = (
            self._start(tensor, turn, row * down, column * across)
            for tensor, down, across in (
                (self.x, rows.step * work.columns.inputs, columns.step),
                (self.dy, work.tile_h * work.columns.outputs, work.tile_w),
            )
        )
        live_rows, live_columns = rows.live_reads(), columns.live_reads()
        for each in range(work.thread_planes):
            gradient: dict[int, dict[int, Expr]] = {}
            for at, pairs in live_rows.items():
                for out_row in sorted({out_row for out_row, _ in pairs} - gradient.keys()):
                    gradient[out_row] = self._gradient_row(rows, columns, out_row, start=dy_start, each=each)
                read = self._x_row(rows, columns, at, start=x_start, each=each).in_float32(live_columns)
                for offset, met in live_columns.items():
                    for (out_row, a), (out, b) in itertools.product(pairs, met):
                        if out in gradient[out_row]:
                            tap = a * taps + b
                            self.sums[each, tap] = self.sums[each, tap] + read[offset] * gradient[out_row][out]
            if work.workload.bias:
                for out_row in sorted(set(range(work.tile_h)) - gradient.keys()):  # those that meet padding alone
                    self._gradient_row(rows, columns, out_row, start=dy_start, each=each)

    def _start(self, tensor: Staged, turn: Expr, down: Expr, across: Expr) -> Expr:
        """Of the thread's tile in shared memory, a multiple of the vectors in which it reads."""
        held = tensor.held
        start = self._stage(tensor, turn) + self.unit * (self.work.thread_planes * held.pitch) + down + across
        return keep("start", start // held.lanes) * held.lanes

    def _x_row(self, rows: Reach, columns: Reach, at: int, *, start: Expr, each: int) -> SourceRow:
        held = self.x.held
        return read_row(
            self.x.planes,
            list(columns.live_reads()),
            lanes=held.lanes,
            start=start,
            first=each * held.pitch + at * columns.axis.inputs,
            exists=lambda column, lanes: both(
                rows.reads(at), columns.reads(column, lanes) if columns.tiles > 1 else True
            ),
        )

    def _gradient_row(self, rows: Reach, columns: Reach, row: int, *, start: Expr, each: int) -> dict[int, Expr]:
        """Of dy, which is also what the bias sums up."""
        held, bias = self.dy.held, self.work.taps
        wanted = [column for column in range(columns.width) if columns.writes(column) is not False]
        read = read_row(
            self.dy.planes,
            wanted,
            lanes=held.lanes,
            start=start,
            first=each * held.pitch + row * columns.axis.outputs,
            exists=lambda column, lanes: both(
                rows.writes(row), columns.writes(column, lanes) if columns.tiles > 1 else True
            ),
        )
        found = read.in_float32({column: [] for column in wanted})
        if self.work.workload.bias:
            for value in found.values():
                self.sums[each, bias] = self.sums[each, bias] + value
        return found
