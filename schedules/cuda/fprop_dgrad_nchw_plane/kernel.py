"""The kernel of whole planes, for fprop and dgrad: in and out through shared memory, summed in registers.

The planes of a block are one piece of memory, whatever their size: they are copied as they lie, in whole vectors, and
so are the results, which take the place of their source. In between a thread owns some rows of a plane; it reads each
of its source rows once, and keeps what it summed until all threads have read theirs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tvm import s_tir, tirx

from dwconv.schedules.cuda.emit.sliding_sum import (
    Reach,
    SlidingSource,
    SlidingSum,
    SourceRow,
    read_row,
    threads_of_planes,
)
from dwconv.schedules.cuda.emit.words import (
    Registers,
    as_one_axis,
    barrier,
    blocks,
    blocks_per_sm,
    gather_arguments,
    in_float32,
    in_turns,
    shared,
    span,
    zero,
)
from dwconv.schedules.cuda.fprop_dgrad_nchw_plane.cut import PlanesCut
from dwconv.schedules.cuda.gpu.hardware import SHARED_LANES, STATIC_SHARED_BYTES
from dwconv.schedules.cuda.gpu.memory import slots_of, whole_vectors
from dwconv.schedules.cuda.gpu.plane_layout import HeldPlanes
from dwconv.schedules.emit import BATCH, Expr, all_of, bind, ceil_div, kernel, store, when

KERNEL_LOADS_UNDER_WAY = 4
"""Loads of weights of one thread while it copies; for planes the configuration says how many."""
ROWS_AHEAD = 1


def schedule_planes(cut: PlanesCut, *, at_a_time: int) -> s_tir.Schedule:
    """Parameters: source (n, C, H, W), w (C, KH, KW), perhaps bias (C), result (n, C, OH, OW). Registers are
    shared out for ``at_a_time`` blocks on an SM."""
    n, gather = tirx.Var(BATCH, "int32"), cut.gather
    with kernel() as builder:
        source, w, bias, result = gather_arguments(cut.gather, n, dtype=cut.dtype)
        dynamic = cut.shared_bytes > STATIC_SHARED_BYTES
        for block in blocks("block", ceil_div(n * gather.channels, cut.planes)):
            for group, tile, number in threads_of_planes(cut.tiling, cut.layout.neighbours):
                with blocks_per_sm(at_a_time):
                    PlanesBlock(
                        cut=cut, source=as_one_axis(source), w=as_one_axis(w), bias=bias, result=as_one_axis(result),
                        planes=shared("planes", cut.held_elements, dtype=cut.held, dynamic=dynamic),
                        kernels=shared("kernels", cut.planes * cut.kernel_words, dynamic=dynamic),
                        all_planes=n * gather.channels, first_plane=block * cut.planes,
                        group=group, tile=tile, number=number,
                    ).sum()  # fmt: skip
    return s_tir.Schedule(builder.get())


@dataclass(frozen=True, kw_only=True)
class PlanesBlock:
    """The work of the threads of a block; tensors in global memory have one axis."""

    cut: PlanesCut
    source: Any
    w: Any
    bias: Any | None
    result: Any
    planes: Any
    """Source, then results."""
    kernels: Any
    all_planes: Expr
    first_plane: Expr
    group: Expr
    """The thread's group of ``thread_planes`` planes."""
    tile: Expr
    """The thread's, in each of its planes."""
    number: Expr
    """The number of the thread in its block."""

    def sum(self) -> None:
        threads = [self._thread_of(each) for each in range(self.cut.thread_planes)]
        self._fetch_planes()
        self._fetch_kernels()
        barrier()
        for thread in threads:
            thread.sum()
        barrier()
        for thread in threads:
            thread.store()
        barrier()
        self._write_planes()

    def _thread_of(self, each: int) -> StagedPlaneThread:
        cut, rows, columns = self.cut, self.cut.gather.rows, self.cut.gather.columns
        tiles_h, tiles_w = cut.tiling.tiles_h, cut.tiling.tiles_w
        row, column = self.tile // tiles_w if tiles_h > 1 else 0, self.tile % tiles_w if tiles_w > 1 else 0
        first = zero("float32")
        if self.bias is not None:
            plane = self.first_plane + (self.group * cut.thread_planes + each)
            first = bind("first", in_float32(self.bias[plane % cut.gather.channels]))
        return StagedPlaneThread(
            gather=cut.gather, rows_ahead=ROWS_AHEAD, block=self, each=each, first=first,
            rows=Reach(axis=rows, width=cut.tile_h, tiles=tiles_h, index=row),
            columns=Reach(axis=columns, width=cut.tile_w, tiles=tiles_w, index=column),
            results=Registers("result", cut.tile_h * cut.tile_w, dtype=cut.held),
        )  # fmt: skip

    @property
    def _full(self) -> bool:
        return self.cut.gather.channels % self.cut.planes == 0

    # -- copies ----------------------------------------------------------------------------------------------------

    def _fetch_planes(self) -> None:
        cut, held, lanes = self.cut, self.cut.source, self.cut.source.copied_lanes

        def fetch(value: Registers, item: Expr) -> Expr:
            exists = self._exists(held, item)
            if exists is not True:
                value.clear()
            with when(exists):
                start = self.first_plane * held.elements + item * lanes
                value.put(0, self.source[span(start, lanes)], lanes=lanes)
            return held.place(item)

        def keep(value: Registers, at: Expr) -> None:
            store(self.planes, _converted(value, cut.held).vector(0, lanes), span(at, lanes))

        self._in_turns(held, value=lambda: Registers("value", lanes, dtype=cut.dtype), fetch=fetch, keep=keep)

    def _fetch_kernels(self) -> None:
        """One for each plane, converted: the channels from the block's first on, round and round."""
        cut, channels, words = self.cut, self.cut.gather.channels, self.cut.kernel_words
        lanes = math.gcd(cut.planes * words, channels * words, SHARED_LANES)
        first = self.first_plane % channels * words

        def fetch(value: Registers, item: Expr) -> Expr:
            start = (first + item * lanes) % (channels * words)
            value.put(0, self.w[span(start, lanes)], lanes=lanes)
            return item * lanes

        def keep(value: Registers, at: Expr) -> None:
            store(self.kernels, _converted(value, "float32").vector(0, lanes), span(at, lanes))

        in_turns(
            cut.planes * words // lanes,
            thread=self.number,
            threads=cut.threads,
            most=KERNEL_LOADS_UNDER_WAY,
            value=lambda: Registers("value", lanes, dtype=cut.dtype),
            fetch=fetch,
            keep=keep,
        )

    def _write_planes(self) -> None:
        held, lanes = self.cut.result, self.cut.result.copied_lanes

        def fetch(value: Registers, item: Expr) -> Expr:
            value.put(0, self.planes[span(held.place(item), lanes)], lanes=lanes)
            return item

        def keep(value: Registers, item: Expr) -> None:
            with when(self._exists(held, item)):
                rounded = _converted(value, self.cut.dtype)
                start = self.first_plane * held.elements + item * lanes
                store(self.result, rounded.vector(0, lanes), span(start, lanes))

        self._in_turns(held, value=lambda: Registers("value", lanes, dtype=self.cut.held), fetch=fetch, keep=keep)

    def _in_turns(self, held: HeldPlanes, **how: Any) -> None:
        cut = self.cut
        in_turns(
            cut.planes * held.elements // held.copied_lanes,
            thread=self.number,
            threads=cut.threads,
            most=cut.loads_under_way,
            **how,
        )

    def _exists(self, held: HeldPlanes, item: Expr) -> Expr:
        if self._full:
            return True
        lanes = held.copied_lanes
        if held.elements % lanes == 0:
            return self.first_plane + item // (held.elements // lanes) < self.all_planes
        return self.first_plane * held.elements + item * lanes < self.all_planes * held.elements


def _converted(values: Registers, dtype: str) -> Registers:
    if values.dtype == dtype:
        return values
    (lanes,) = values.sizes
    converted = Registers("converted", lanes, dtype=dtype)
    for lane in range(lanes):
        converted[lane] = values.in_float32(lane) if dtype == "float32" else values[lane].astype(dtype)
    return converted


@dataclass(frozen=True, kw_only=True)
class StagedPlaneThread(SlidingSum):
    """The work of one thread on its ``each``-th plane, with rows that come from shared memory."""

    block: PlanesBlock
    each: int
    first: Expr
    """Where sums start. It was loaded before the copies."""
    results: Registers
    """Finished, in the type in which shared memory holds them."""

    def start(self) -> Expr:
        return self.first

    def weights(self, plane: SlidingSource) -> Registers:
        cut, taps = self.block.cut, self.gather.columns.taps
        start = self.block.group * (cut.thread_planes * cut.kernel_words)
        first = self.each * cut.kernel_words
        read = whole_vectors(list(range(first, first + cut.kernel_words)), cut.kernel_lanes)
        values = Registers("kernel", len(read) * cut.kernel_lanes)
        for slot, (at, lanes) in enumerate(read):
            values.put(slot * lanes, self.block.kernels[span(start + at, lanes)], lanes=lanes)
        weights = Registers("weight", self.gather.rows.taps, taps)
        for tap in range(cut.kernel_words):
            weights[tap // taps, tap % taps] = values[first + tap - read[0][0]]
        return weights

    def fetch(self, plane: SlidingSource, at: int) -> SourceRow:
        held, pitch = self.block.cut.source, self.gather.columns.inputs
        return read_row(
            self.block.planes,
            list(self.columns.live_reads()),
            lanes=held.lanes,
            start=self._start(held, self.rows.step * pitch, self.columns.step),
            first=self.each * held.pitch + at * pitch,
            exists=lambda column, lanes: all_of(
                self.rows.reads(at), self.columns.reads(column, lanes) if self.columns.tiles > 1 else True
            ),
        )

    def write(self, sums: Registers, row: int) -> None:
        for column in range(self.columns.width):
            if self.columns.writes(column, 1) is not False:  # a stride may make the tile wider than the plane
                slot = self._slots[row * self.gather.columns.outputs + column]
                self.results[slot] = sums[row, column].astype(self.results.dtype)

    def store(self) -> None:
        cut, pitch = self.block.cut, self.gather.columns.outputs
        start = self._start(cut.result, self.rows.width * pitch, self.columns.width)
        first = self.each * cut.result.pitch
        for at, lanes in cut.result_pieces(self.each):
            row, column = divmod(at, pitch)
            of_row = min(lanes, pitch - column)  # a vector that goes on in the next row is there with its first
            exists = all_of(self.rows.writes(row), self.columns.writes(column, of_row)) if cut.ragged else True
            if exists is not False:
                with when(exists):
                    values = self.results.vector(self._slots[at], lanes)
                    store(self.block.planes, values, span(start + first + at, lanes))

    @cached_property
    def _slots(self) -> dict[int, int]:
        return slots_of(self.block.cut.result_pieces(self.each))

    def _start(self, held: HeldPlanes, down: int, across: int) -> Expr:
        """Where the thread's tile starts in shared memory, a multiple of the vectors in which it reads or writes."""
        start = self.block.group * (self.block.cut.thread_planes * held.pitch)
        return start + self.rows.index * down + self.columns.index * across
