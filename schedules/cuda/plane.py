"""The kernel of whole planes, for fprop and dgrad: in and out through shared memory, summed in registers.

The planes of a block are one piece of memory, whatever their size: they are copied as they lie, in whole vectors, and
so are the results, which take the place of their source. In between a thread owns some rows of a plane; it reads each
of its source rows once, and keeps what it summed until all threads have read theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tvm import s_tir, tirx

from dwconv.schedules.cuda.emit import (
    STATIC_SHARED_BYTES,
    Registers,
    argument,
    as_one_axis,
    barrier,
    blocks,
    blocks_per_sm,
    in_float32,
    shared,
    span,
    zero,
)
from dwconv.schedules.cuda.plane_layout import Held
from dwconv.schedules.cuda.plane_row import read_row
from dwconv.schedules.cuda.plane_threads import threads_of_planes
from dwconv.schedules.cuda.plane_tile import Planes, whole_vectors
from dwconv.schedules.cuda.reach import Reach, both
from dwconv.schedules.cuda.sliding import SlidingSum, SourceRow
from dwconv.schedules.cuda.turns import in_turns
from dwconv.schedules.emit import BATCH, Expr, bind, ceil_div, kernel, store, when

KERNEL_LOADS_UNDER_WAY = 4
"""Of one thread while it copies; of planes the configuration says how many."""
ROWS_AHEAD = 1


def schedule_plane(tiles: Planes, *, at_a_time: int) -> s_tir.Schedule:
    """Parameters: source (n, C, H, W), w (C, KH, KW), perhaps bias (C), result (n, C, OH, OW). Registers are
    shared out for ``at_a_time`` blocks on an SM."""
    n, work = tirx.Var(BATCH, "int32"), tiles.work
    rows, columns = work.rows, work.columns
    with kernel() as builder:
        source = argument(work.source, (n, work.channels, rows.inputs, columns.inputs), tiles.dtype)
        w = argument("w", (work.channels, rows.taps, columns.taps), tiles.dtype)
        bias = argument("bias", (work.channels,), tiles.dtype) if work.bias else None
        result = argument(work.result, (n, work.channels, rows.outputs, columns.outputs), tiles.dtype)
        dynamic = tiles.shared_bytes > STATIC_SHARED_BYTES
        for block in blocks("block", ceil_div(n * work.channels, tiles.planes)):
            for group, tile, number in threads_of_planes(tiles.tiling, tiles.layout.neighbours):
                with blocks_per_sm(at_a_time):
                    Block(
                        tiles=tiles,
                        source=as_one_axis(source),
                        w=as_one_axis(w),
                        bias=bias,
                        result=as_one_axis(result),
                        planes=shared("planes", tiles.held_elements, dtype=tiles.held, dynamic=dynamic),
                        kernels=shared("kernels", tiles.planes * tiles.kernel_words, dynamic=dynamic),
                        all_planes=n * work.channels,
                        first_plane=block * tiles.planes,
                        group=group,
                        tile=tile,
                        number=number,
                    ).sum()
    return s_tir.Schedule(builder.get())


@dataclass(frozen=True, kw_only=True)
class Block:
    """What the threads of a block do; tensors in global memory have one axis."""

    tiles: Planes
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
    """Of ``thread_planes`` planes of the block: the thread's."""
    tile: Expr
    """The thread's, in each of its planes."""
    number: Expr
    """Of the thread in its block."""

    def sum(self) -> None:
        threads = [self._thread_of(each) for each in range(self.tiles.thread_planes)]
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

    def _thread_of(self, each: int) -> Thread:
        tiles, rows, columns = self.tiles, self.tiles.work.rows, self.tiles.work.columns
        row = self.tile // tiles.tiles_w if tiles.tiles_h > 1 else 0
        column = self.tile % tiles.tiles_w if tiles.tiles_w > 1 else 0
        first = zero("float32")
        if self.bias is not None:
            plane = self.first_plane + (self.group * tiles.thread_planes + each)
            first = bind("first", in_float32(self.bias[plane % tiles.work.channels]))
        return Thread(
            work=tiles.work,
            rows=Reach(axis=rows, width=tiles.tile_h, tiles=tiles.tiles_h, index=row),
            columns=Reach(axis=columns, width=tiles.tile_w, tiles=tiles.tiles_w, index=column),
            rows_ahead=ROWS_AHEAD,
            block=self,
            each=each,
            first=first,
            results=Registers("result", tiles.tile_h * tiles.tile_w, dtype=tiles.held),
        )

    @property
    def _full(self) -> bool:
        """Whether every block has all its planes."""
        return self.tiles.work.channels % self.tiles.planes == 0

    # -- copies ----------------------------------------------------------------------------------------------------

    def _fetch_planes(self) -> None:
        """As they lie; zero where there are no more planes."""
        tiles, held, lanes = self.tiles, self.tiles.source, self.tiles.source.copied_lanes

        def fetch(value: Registers, item: Expr) -> Expr:
            exists = self._exists(held, item)
            if exists is not True:
                value.clear()
            with when(exists):
                start = self.first_plane * held.elements + item * lanes
                value.put(0, self.source[span(start, lanes)], lanes=lanes)
            return held.place(item)

        def keep(value: Registers, at: Expr) -> None:
            store(self.planes, _converted(value, tiles.held).vector(0, lanes), span(at, lanes))

        self._in_turns(held, value=lambda: Registers("value", lanes, dtype=tiles.dtype), fetch=fetch, keep=keep)

    def _fetch_kernels(self) -> None:
        """One for each plane, converted: the channels from the block's first on, round and round."""
        tiles, channels, words = self.tiles, self.tiles.work.channels, self.tiles.kernel_words
        lanes = tiles.copied_kernel_lanes
        first = self.first_plane % channels * words

        def fetch(value: Registers, item: Expr) -> Expr:
            start = (first + item * lanes) % (channels * words)
            value.put(0, self.w[span(start, lanes)], lanes=lanes)
            return item * lanes

        def keep(value: Registers, at: Expr) -> None:
            store(self.kernels, _converted(value, "float32").vector(0, lanes), span(at, lanes))

        in_turns(
            tiles.planes * words // lanes,
            thread=self.number,
            threads=tiles.threads,
            most=KERNEL_LOADS_UNDER_WAY,
            value=lambda: Registers("value", lanes, dtype=tiles.dtype),
            fetch=fetch,
            keep=keep,
        )

    def _write_planes(self) -> None:
        held, lanes = self.tiles.result, self.tiles.result.copied_lanes

        def fetch(value: Registers, item: Expr) -> Expr:
            value.put(0, self.planes[span(held.place(item), lanes)], lanes=lanes)
            return item

        def keep(value: Registers, item: Expr) -> None:
            with when(self._exists(held, item)):
                rounded = _converted(value, self.tiles.dtype)
                start = self.first_plane * held.elements + item * lanes
                store(self.result, rounded.vector(0, lanes), span(start, lanes))

        self._in_turns(held, value=lambda: Registers("value", lanes, dtype=self.tiles.held), fetch=fetch, keep=keep)

    def _in_turns(self, held: Held, **how: Any) -> None:
        """Over the vectors of the planes."""
        tiles = self.tiles
        in_turns(
            tiles.planes * held.elements // held.copied_lanes,
            thread=self.number,
            threads=tiles.threads,
            most=tiles.loads_under_way,
            **how,
        )

    def _exists(self, held: Held, item: Expr) -> Expr:
        """Whether the block has that vector: all have the same number in a plane, or in all of an image's."""
        if self._full:
            return True
        lanes = held.copied_lanes
        if held.elements % lanes == 0:
            return self.first_plane + item // (held.elements // lanes) < self.all_planes
        return self.first_plane * held.elements + item * lanes < self.all_planes * held.elements


def _converted(values: Registers, dtype: str) -> Registers:
    """The same in another type, if it is another."""
    if values.dtype == dtype:
        return values
    (lanes,) = values.sizes
    converted = Registers("converted", lanes, dtype=dtype)
    for lane in range(lanes):
        converted[lane] = values.in_float32(lane) if dtype == "float32" else values[lane].astype(dtype)
    return converted


@dataclass(frozen=True, kw_only=True)
class Thread(SlidingSum):
    """What one thread does with its ``each``-th plane, with rows that come from shared memory."""

    block: Block
    each: int
    first: Expr
    """What sums start from. It was asked for before the copies."""
    results: Registers
    """Finished, in the type in which shared memory holds them."""

    def start(self) -> Expr:
        return self.first

    def weights(self, m: Expr) -> Registers:
        tiles, taps = self.block.tiles, self.work.columns.taps
        start = self.block.group * (tiles.thread_planes * tiles.kernel_words)
        first = self.each * tiles.kernel_words
        read = whole_vectors(list(range(first, first + tiles.kernel_words)), tiles.kernel_lanes)
        values = Registers("kernel", len(read) * tiles.kernel_lanes)
        for slot, (at, lanes) in enumerate(read):
            values.put(slot * lanes, self.block.kernels[span(start + at, lanes)], lanes=lanes)
        weights = Registers("weight", self.work.rows.taps, taps)
        for tap in range(tiles.kernel_words):
            weights[tap // taps, tap % taps] = values[first + tap - read[0][0]]
        return weights

    def fetch(self, m: Expr, at: int) -> SourceRow:
        held, pitch = self.block.tiles.source, self.work.columns.inputs
        return read_row(
            self.block.planes,
            list(self.columns.live_reads()),
            lanes=held.lanes,
            start=self._start(held, self.rows.step * pitch, self.columns.step),
            first=self.each * held.pitch + at * pitch,
            exists=lambda column, lanes: both(
                self.rows.reads(at), self.columns.reads(column, lanes) if self.columns.tiles > 1 else True
            ),
        )

    def write(self, sums: Registers, row: int) -> None:
        for column in range(self.columns.width):
            if self.columns.writes(column, 1) is not False:  # a stride may make the tile wider than the plane
                slot = self._slots[row * self.work.columns.outputs + column]
                self.results[slot] = sums[row, column].astype(self.results.dtype)

    def store(self) -> None:
        """Puts all results where the source was."""
        tiles, pitch = self.block.tiles, self.work.columns.outputs
        start = self._start(tiles.result, self.rows.width * pitch, self.columns.width)
        first = self.each * tiles.result.pitch
        for at, lanes in tiles.result_pieces(self.each):
            row, column = divmod(at, pitch)
            of_row = min(lanes, pitch - column)  # a vector that goes on in the next row is there with its first
            exists = both(self.rows.writes(row), self.columns.writes(column, of_row)) if tiles.ragged else True
            if exists is not False:
                with when(exists):
                    values = self.results.vector(self._slots[at], lanes)
                    store(self.block.planes, values, span(start + first + at, lanes))

    @cached_property
    def _slots(self) -> dict[int, int]:
        """Where each result of the tile stands in registers: the widest vectors first, so that all are aligned."""
        slots, end = {}, 0
        for at, lanes in sorted(self.block.tiles.result_pieces(self.each), key=lambda piece: -piece[1]):
            slots.update({at + lane: end + lane for lane in range(lanes)})
            end += lanes
        return slots

    def _start(self, held: Held, down: int, across: int) -> Expr:
        """Where the thread's tile starts in shared memory, a multiple of the vectors in which it reads or writes."""
        start = self.block.group * (self.block.tiles.thread_planes * held.pitch)
        return start + self.rows.index * down + self.columns.index * across
