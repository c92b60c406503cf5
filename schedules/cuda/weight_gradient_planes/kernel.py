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

from dwconv.schedules.cuda.emit.planes import read_row, threads_of_planes
from dwconv.schedules.cuda.emit.reach import Reach
from dwconv.schedules.cuda.emit.sliding_sum import SourceRow
from dwconv.schedules.cuda.emit.split_sum import add_parts, sum_over_threads
from dwconv.schedules.cuda.emit.words import (
    Registers,
    Start,
    argument,
    as_one_axis,
    barrier,
    blocks,
    blocks_per_sm,
    commit_copies,
    copy_async,
    keep,
    shared,
    wait_for_copies,
)
from dwconv.schedules.cuda.gpu.hardware import STATIC_SHARED_BYTES
from dwconv.schedules.cuda.gpu.plane_layout import HeldPlanes
from dwconv.schedules.cuda.weight_gradient_planes.cut import Cut
from dwconv.schedules.emit import BATCH, Expr, all_of, bind, kernel, serial, store, when


def schedule_planes(cut: Cut, *, at_a_time: int) -> s_tir.Schedule:
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
                        x=StagedPlanes.of("x", x, cut.x, cut),
                        dy=StagedPlanes.of("dy", dy, cut.dy, cut),
                        sums=Registers("sums", cut.thread_planes, cut.sums_of_channel),
                        batch=n,
                        part=block // cut.channel_blocks,
                        first_channel=block % cut.channel_blocks * cut.planes,
                        unit=unit,
                        tile=tile,
                        number=number,
                    )
                    thread.sum()
                    if partial is None:
                        thread.write(*((total, 0) for total in totals))
                    else:
                        first, weights = thread.part * cut.results, workload.channels * cut.taps
                        thread.write(*((partial, first + at) for at in (0, weights)[: len(totals)]))
        if partial is not None:
            add_parts(partial, totals, count=cut.split_n, dtype=workload.dtype)
    return s_tir.Schedule(builder.get())


@dataclass(frozen=True, kw_only=True)
class StagedPlanes:
    """x or dy: in global memory, and the planes of some turns in shared memory, image after image."""

    elements: Any
    planes: Any
    held: HeldPlanes

    @classmethod
    def of(cls, name: str, elements: Any, held: HeldPlanes, cut: Cut) -> StagedPlanes:
        dynamic = cut.shared_bytes > STATIC_SHARED_BYTES
        room = cut.pipeline * cut.images * cut.planes * held.pitch
        planes = shared(f"{name}_planes", room, dtype=elements.dtype, dynamic=dynamic)
        return cls(elements=elements, planes=planes, held=held)


@dataclass(frozen=True, kw_only=True)
class Thread:
    """One thread, and what it owns."""

    cut: Cut
    x: StagedPlanes
    dy: StagedPlanes
    sums: Registers
    batch: Expr
    part: Expr
    first_channel: Expr
    """The first channel of the block."""
    unit: Expr
    """Its group of channels, of its image: image after image."""
    tile: Expr
    number: Expr
    """The number of the thread in its block."""

    def sum(self) -> None:
        """Through all images of the block; then over the threads."""
        ahead = self.cut.pipeline - 1
        self.sums.clear()
        for turn in range(ahead):
            self._copy(turn)
        at_a_time = self.cut.images * self.cut.split_n
        for turn in serial("turn", tirx.truncdiv(self.batch - self._first_image(0) + (at_a_time - 1), at_a_time)):
            self._copy(turn + ahead)
            wait_for_copies(pending=ahead)
            barrier()
            self._add_images(turn)
            barrier()
        groups = self.cut.groups
        sum_over_threads(self.sums, mate=self._mate, mates=self.cut.mates, others=groups, slot=self._slot)

    def write(self, weights: Start, bias: Start | None = None) -> None:
        """To memory: each into a tensor, counted from an element."""
        cut, taps = self.cut, self.cut.taps
        with when(cut.mates == 1 or self._mate == 0):
            for each in range(cut.thread_planes):
                channel = bind("channel", self.first_channel + self._group * cut.thread_planes + each)
                with when(cut.full or channel < cut.workload.channels):
                    into, start = weights
                    for tap in range(taps):
                        store(into, self.sums[each, tap].astype(into.dtype), start + channel * taps + tap)
                    if bias is not None:
                        into, start = bias
                        store(into, self.sums[each, taps].astype(into.dtype), start + channel)

    # -- its place -------------------------------------------------------------------------------------------------

    @property
    def _group(self) -> Expr:
        return self.unit % self.cut.groups

    def _first_image(self, turn: Expr) -> Expr:
        """The first image of a turn of the block."""
        return (turn * self.cut.split_n + self.part) * self.cut.images

    @property
    def _mate(self) -> Expr:
        """Its number among the threads whose sums it meets, in the order of threads."""
        cut, image = self.cut, self.unit // self.cut.groups
        if cut.layout.neighbours == "tiles":
            return image * cut.tiling.plane_threads + self.tile
        return self.tile * cut.images + image

    def _slot(self, mate: Expr, width: int) -> Expr:
        """In the order of the threads, so that those of a warp use different banks: halving goes over whole images,
        whose number is a power of 2, and then over the tiles of the first."""
        groups, neighbours = self.cut.groups, self.cut.layout.neighbours
        if neighbours == "planes":
            return mate * groups + self._group
        if neighbours == "even planes":
            return (self._group % 2 * width + mate) * (groups // 2) + self._group // 2
        together = min(self.cut.tiling.plane_threads, width)
        return (mate // together * groups + self._group) * together + mate % together

    # -- copies ----------------------------------------------------------------------------------------------------

    def _copy(self, turn: Expr) -> None:
        """Asks for the planes of a turn, by all threads alike; zeros where there are no more images or channels."""
        cut, channels = self.cut, self.cut.workload.channels
        first_image = bind("first_image", self._first_image(turn))
        with when(first_image < self.batch):
            for copy in range(max(cut.copies(self.x.held), cut.copies(self.dy.held))):
                item = copy * cut.threads + self.number
                for tensor in (self.x, self.dy):
                    held, lanes = tensor.held, tensor.held.copied_lanes
                    piece = cut.planes * held.elements // lanes
                    with when((copy + 1) * cut.threads <= cut.images * piece or item < cut.images * piece):
                        image = item // piece if cut.images > 1 else 0
                        at = (item - image * piece) * lanes
                        start = ((first_image + image) * channels + self.first_channel) * held.elements
                        exists = first_image + image < self.batch
                        within = cut.full or at < (channels - self.first_channel) * held.elements
                        copy_async(
                            tensor.planes,
                            self._stage(tensor, turn) + held.place(item),
                            tensor.elements,
                            start + at,
                            elements=lanes,
                            valid=all_of(exists, within),
                        )
        commit_copies()

    def _stage(self, tensor: StagedPlanes, turn: Expr) -> Expr:
        """Where the planes of a turn start in shared memory."""
        cut = self.cut
        return turn % cut.pipeline * (cut.images * cut.planes * tensor.held.pitch) if cut.pipeline > 1 else 0

    # -- sums ------------------------------------------------------------------------------------------------------

    def _add_images(self, turn: Expr) -> None:
        """The thread's own. Straight code: the rows of x one by one, each with the rows of dy that it meets."""
        cut, tiling, taps = self.cut, self.cut.tiling, self.cut.columns.taps
        across = tiling.tiles_w
        row, column = (self.tile // across, self.tile % across) if across > 1 else (self.tile, 0)
        rows = Reach(axis=cut.rows, width=cut.tile_h, tiles=tiling.tiles_h, index=row)
        columns = Reach(axis=cut.columns, width=cut.tile_w, tiles=tiling.tiles_w, index=column)
        x_start, dy_start = (
            self._start(tensor, turn, row * down, column * across)
            for tensor, down, across in (
                (self.x, rows.step * cut.columns.inputs, columns.step),
                (self.dy, cut.tile_h * cut.columns.outputs, cut.tile_w),
            )
        )
        live_rows, live_columns = rows.live_reads(), columns.live_reads()
        for each in range(cut.thread_planes):
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
            if cut.workload.bias:
                for out_row in sorted(set(range(cut.tile_h)) - gradient.keys()):  # those that meet padding alone
                    self._gradient_row(rows, columns, out_row, start=dy_start, each=each)

    def _start(self, tensor: StagedPlanes, turn: Expr, down: Expr, across: Expr) -> Expr:
        """Where the thread's tile begins in shared memory, a multiple of the vectors in which it reads."""
        held = tensor.held
        start = self._stage(tensor, turn) + self.unit * (self.cut.thread_planes * held.pitch) + down + across
        return keep("start", start // held.lanes) * held.lanes

    def _x_row(self, rows: Reach, columns: Reach, at: int, *, start: Expr, each: int) -> SourceRow:
        held = self.x.held
        return read_row(
            self.x.planes,
            list(columns.live_reads()),
            lanes=held.lanes,
            start=start,
            first=each * held.pitch + at * columns.axis.inputs,
            exists=lambda column, lanes: all_of(
                rows.reads(at), columns.reads(column, lanes) if columns.tiles > 1 else True
            ),
        )

    def _gradient_row(self, rows: Reach, columns: Reach, row: int, *, start: Expr, each: int) -> dict[int, Expr]:
        """A row of dy, which the gradient of the bias sums up, too."""
        held, bias = self.dy.held, self.cut.taps
        wanted = [column for column in range(columns.width) if columns.writes(column) is not False]
        read = read_row(
            self.dy.planes,
            wanted,
            lanes=held.lanes,
            start=start,
            first=each * held.pitch + row * columns.axis.outputs,
            exists=lambda column, lanes: all_of(
                rows.writes(row), columns.writes(column, lanes) if columns.tiles > 1 else True
            ),
        )
        found = read.in_float32({column: [] for column in wanted})
        if self.cut.workload.bias:
            for value in found.values():
                self.sums[each, bias] = self.sums[each, bias] + value
        return found
