"""The kernel of banded matrices, for fprop and dgrad: a row of the kernel at a time, on tensor cores.

A block brings the source into shared memory, map by map, and its kernel rows, each twice. A warp goes down
the source rows of its tile: it loads the 16 of a product once, and multiplies them by every kernel row that a row of
the tile meets there. What a product sums over begins at a whole vector of a source row: the matrix of weights has
zeros where a column of the result does not reach.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tvm import s_tir, tirx

from dwconv.schedules.cuda.emit.tensor_cores import (
    Maps,
    MovingThreads,
    PixelMaps,
    load_matrices,
    multiply_add,
    shared_out,
)
from dwconv.schedules.cuda.emit.words import (
    Registers,
    argument,
    barrier,
    blocks,
    blocks_per_sm,
    commit_copies,
    in_float32,
    in_register,
    shared,
    span,
    threads,
    turns,
    unrolled,
    wait_for_copies,
    zero,
)
from dwconv.schedules.cuda.fprop_dgrad_toeplitz.cut import RowTurn, ToeplitzCut, first_of_band
from dwconv.schedules.cuda.gpu.hardware import STATIC_SHARED_BYTES, WARP
from dwconv.schedules.cuda.gpu.tensor_cores import COLUMNS, ROWS, UNIT, StagedMaps
from dwconv.schedules.emit import BATCH, Expr, all_of, ceil_div, inside, int32, kernel, least, serial, store, when

HALVES = (0, 1)
"""The two rows of a product of which a lane has sums: lane / 4 and 8 below."""


def schedule_products(cut: ToeplitzCut, *, at_a_time: int) -> s_tir.Schedule:
    """Parameters: source (n, C, H, W) or (n, H, W, C), w (C, KH, KW), perhaps bias (C), result (n, C, OH, OW) or
    (n, OH, OW, C). Registers are shared out for ``at_a_time`` blocks on an SM."""
    n, gather = tirx.Var(BATCH, "int32"), cut.gather
    rows, columns = gather.rows, gather.columns

    def shape(height: int, width: int) -> tuple[Expr, ...]:
        return (n, height, width, gather.channels) if cut.channels_last else (n, gather.channels, height, width)

    with kernel() as builder:
        source = argument(gather.source, shape(rows.inputs, columns.inputs), cut.dtype)
        w = argument("w", (gather.channels, rows.taps, columns.taps), cut.dtype)
        bias = argument("bias", (gather.channels,), cut.dtype) if gather.bias else None
        result = argument(gather.result, shape(rows.outputs, columns.outputs), cut.dtype)
        channel_blocks, down, across = -(-gather.channels // cut.planes), cut.blocks_h, cut.blocks_w
        dynamic = cut.shared_bytes > STATIC_SHARED_BYTES
        for images in blocks("images", ceil_div(n, cut.images)):
            for block in blocks("block", channel_blocks * down * across, axis="y"):
                for plane in threads("plane", cut.warps_c, axis="z"):
                    for warp in threads("warp", cut.warps_h * cut.warps_w, axis="y"):
                        for lane in threads("lane", WARP):
                            with blocks_per_sm(at_a_time):
                                ToeplitzRowsBlock(
                                    cut=cut, n=n, source=source, w=w, bias=bias, result=result,
                                    staged=shared("staged", cut.shared_elements, dtype=cut.dtype, dynamic=dynamic),
                                    first_image=images * cut.images,
                                    first_channel=block // (down * across) * cut.planes,
                                    top=block // across % down * cut.block_h if down > 1 else 0,
                                    left=block % across * cut.block_w if across > 1 else 0,
                                    plane=plane, of_warp=plane,
                                    down=warp // cut.warps_w if cut.warps_h > 1 else 0,
                                    across=warp % cut.warps_w if cut.warps_w > 1 else 0,
                                    lane=lane,
                                ).sum()  # fmt: skip
    return s_tir.Schedule(builder.get())


@dataclass(frozen=True, kw_only=True)
class ToeplitzRowsBlock:
    """The work of a thread of a block."""

    cut: ToeplitzCut
    n: Expr
    source: Any
    w: Any
    bias: Any | None
    result: Any
    staged: Any
    """The source of its channels, then their kernel rows."""
    first_image: Expr
    """Of the block; so are the next three."""
    first_channel: Expr
    top: Expr
    left: Expr
    plane: Expr
    """The channel of its warp, in the block."""
    of_warp: Expr
    """The first of these in every turn."""
    down: Expr
    """The number of its warp down; and across."""
    across: Expr
    lane: Expr
    may_be_none: bool = False
    """Whether the channel may be none of the block's."""

    def sum(self) -> None:
        ahead = (
            Registers("ahead", self.cut.weights_of_thread, dtype=self.cut.dtype) if self.cut.bands_in_turns else None
        )
        if ahead is not None:
            self._load_weights(ahead)
        if self.cut.lean:
            self._clear_kernel_rows()
            self._clear_last_units()
        self._stage_source()
        if self.cut.lean:
            barrier()
        if ahead is None:
            for block in self._in_turns():
                block._stage_kernel_rows()
            if self.cut.turns_c > 1:
                wait_for_copies()
                barrier()
        for block in self._in_turns():
            if ahead is not None:
                block._put_weights(ahead)
                replace(block, plane=block.plane + self.cut.warps_c, may_be_none=True)._load_weights(ahead)
                barrier()
            block._sum_channel()
        barrier()
        self._write()

    def _in_turns(self) -> Iterator[ToeplitzRowsBlock]:
        for turn in serial("turn_c", self.cut.turns_c):
            yield replace(self, plane=self.plane + turn * self.cut.warps_c)

    def _sum_channel(self) -> None:
        """Its source is waited for here if no other comes after it."""
        cut = self.cut
        sums = Registers("sum", cut.tile_h, cut.tiles, 4)
        if self.bias is None:
            sums.clear()
        else:
            bias = in_float32(self.bias[least(self._channel, cut.gather.channels - 1)])
            sums.fill(in_register("first", bias, dtype="float32"))
        if cut.turns_c == 1:
            wait_for_copies()
            barrier()
        for turn in cut.turns:
            for number in serial("turn", turn.count):
                self._add(sums, turn, number)
        barrier()
        self._round(sums)

    # -- staging -------------------------------------------------------------------------------------------------------

    def _stage_source(self) -> None:
        if self.cut.channels_last:
            self._pixels(self.cut.source).copy(self.source, self._of_block)
            return
        movers = MovingThreads(
            thread=self._thread,
            threads=self.cut.threads_of_channel,
            first_image=self.first_image,
            channel=self._channel,
            exists=self._is_result,
        )
        self._maps.copy(self.source, movers)
        commit_copies()

    def _clear_kernel_rows(self) -> None:
        cut = self.cut
        elements = cut.bands * cut.kernel_elements
        lanes = math.gcd(elements, UNIT)
        for vector in self._by_all_threads(elements // lanes):
            store(self.staged, zero(cut.dtype, lanes), span(cut.bands_at + vector * lanes, lanes))

    def _clear_last_units(self) -> None:
        """What is on the right of the last row of each image."""
        cut, held = self.cut, self.cut.source
        for vector in self._by_all_threads(cut.planes * held.images * held.last_units):
            number, unit = vector // held.last_units, vector % held.last_units
            at = cut.maps.map_at(number // held.images) + number % held.images * (held.image_units * UNIT)
            store(self.staged, zero(cut.dtype, UNIT), span(at + (len(held.rows) * held.row_units + unit) * UNIT, UNIT))

    def _by_all_threads(self, count: int) -> Iterator[Expr]:
        cut, thread = self.cut, self._thread_of_block
        for turn in turns("turn", -(-count // cut.threads)):
            number = turn * cut.threads + thread
            with when(count % cut.threads == 0 or number < count):
                yield number

    def _scatter_weights(self) -> None:
        """Each to its kernel row, turned as the source meets it, and to the copy, one element on."""
        for number in turns("turn", self.cut.weights_of_thread):
            value = Registers("value", 1, dtype=self.cut.dtype)
            for tap in self._weight(number):
                value[0] = self.w[(self._channel, *tap)]
                self._put_weight(value[0], *tap)

    def _load_weights(self, ahead: Registers) -> None:
        for number in range(self.cut.weights_of_thread):
            for tap in self._weight(number):
                ahead[number] = self.w[(self._channel, *tap)]

    def _put_weights(self, ahead: Registers) -> None:
        for number in range(self.cut.weights_of_thread):
            for tap in self._weight(number):
                self._put_weight(ahead[number], *tap)

    def _weight(self, number: Expr) -> Iterator[tuple[Expr, Expr]]:
        """(kernel row, column) of a weight of a thread, if there is one."""
        cut, columns = self.cut, self.cut.gather.columns.taps
        weights, together = cut.gather.rows.taps * columns, cut.threads_of_channel
        weight = in_register("weight", number * together + self._thread)
        with when(all_of(weights % together == 0 or weight < weights, self._is_channel)):
            row = in_register("row", tirx.truncdiv(weight, int32(columns)))  # to TVM it may be below 0
            yield row, weight - row * columns

    def _put_weight(self, value: Expr, row: Expr, column: Expr) -> None:
        at = in_register("at", self._kernel_row(row) + self.cut.weight_at(column))
        for copy in range(2):
            store(self.staged, value, at + copy * (self.cut.band_apart + 1))

    def _stage_kernel_rows(self) -> None:
        """Each turned as the source meets it, with zeros on both sides; and its copy, one element on."""
        cut, columns = self.cut, self.cut.gather.columns
        if cut.lean:
            self._scatter_weights()
            return
        for row, at in shared_out(cut.band_sharing, self._thread):
            distance = at % cut.band_apart - at // cut.band_apart + first_of_band(cut.band)
            tap = (distance - columns.shift) * columns.step
            value = Registers.zeros("weight", 1, dtype=cut.dtype)
            with when(all_of(inside(tap, columns.taps), self._is_channel)):
                value[0] = self.w[self._channel, row, tap]
            store(self.staged, value[0], self._kernel_row(row) + at)

    @property
    def _maps(self) -> Maps:
        return self._held(self.cut.source)

    def _held(self, held: StagedMaps) -> Maps:
        first = self.cut.maps.map_at(self.plane)
        return Maps(held=held, staged=self.staged, first=first, top=self.top, left=self.left)

    def _pixels(self, held: StagedMaps) -> PixelMaps:
        maps = self.cut.maps
        return PixelMaps(held=held, staged=self.staged, planes=maps, first=0, top=self.top, left=self.left)

    @property
    def _of_block(self) -> MovingThreads:
        cut = self.cut

        def exists(image: Expr, group: Expr) -> Expr:
            is_channel = self.first_channel + group * UNIT < cut.gather.channels
            return all_of(self.first_image + image < self.n, cut.gather.channels % cut.planes == 0 or is_channel)

        return MovingThreads(
            thread=self._thread_of_block,
            threads=cut.threads,
            first_image=self.first_image,
            channel=self.first_channel,
            exists=exists,
        )

    @property
    def _thread(self) -> Expr:
        return (self.down * self.cut.warps_w + self.across) * WARP + self.lane

    @property
    def _thread_of_block(self) -> Expr:
        return self.plane * self.cut.threads_of_channel + self._thread

    def _kernel_row(self, row: Expr) -> Expr:
        cut = self.cut
        channel = self.of_warp if cut.bands_in_turns else self.plane
        return cut.bands_at + channel * cut.kernel_elements + row * (2 * cut.band_apart)

    @property
    def _channel(self) -> Expr:
        return self.first_channel + self.plane

    @property
    def _is_channel(self) -> Expr:
        cut = self.cut
        return all_of(
            cut.gather.channels % cut.planes == 0 or self._channel < cut.gather.channels,
            not self.may_be_none or self.plane < cut.planes,
        )

    def _is_result(self, image: Expr) -> Expr:
        """Whether the batch has that image of the block, and the layer the warp's channel."""
        return all_of(self.first_image + image < self.n, self._is_channel)

    # -- products ------------------------------------------------------------------------------------------------------

    def _add(self, sums: Registers, turn: RowTurn, number: Expr) -> None:
        cut, lane, rows = self.cut, self.lane, self.cut.gather.rows
        weights = self._weights(turn, turn.first + number * turn.taps)
        row = self.down * cut.warp_h + number * (turn.taps * rows.step)
        start = self._maps.row_of_matrix(lane % ROWS) + (self.across * (cut.tile_w // COLUMNS) + lane // ROWS) * UNIT
        start = in_register("start", start + row * (cut.source.row_units * UNIT))
        for at, met in cut.meetings(turn):
            tested = cut.leaves_padding_out and not cut.knows_padding
            live_row = self.top + row + (at - cut.live_rows.start)
            with when(inside(live_row, len(cut.live_rows)) if tested else True):
                source = self._load_row(start + (at - cut.rows.start) * (cut.source.row_units * UNIT))
                for out, tap in met:
                    self._multiply(sums, source, weights, out, tap)

    def _multiply(self, sums: Registers, source: Registers, weights: Registers, out: int, tap: int) -> None:
        cut = self.cut
        for tile in range(cut.tiles):
            for units in cut.depths(tile):
                multiply_add(
                    [sums[out, tile, part] for part in range(4)],
                    [source[unit - cut.units_of_warp.start, half] for unit in units for half in HALVES],
                    [weights[tap, unit - tile - cut.band.start] for unit in units],
                    dtype=cut.dtype,
                )

    def _load_row(self, at: Expr) -> Registers:
        units = self.cut.units_of_warp
        source = Registers("source", len(units), 2, dtype="uint32")
        for unit in range(0, len(units), 2):
            into = [source[of, half] for of in range(unit, min(unit + 2, len(units))) for half in HALVES]
            load_matrices(into, self.staged, at + (units[unit] - self.cut.units.start) * UNIT)
        return source

    def _weights(self, turn: RowTurn, kernel_row: Expr) -> Registers:
        """Of every kernel row of a turn the words of a lane, one for each unit of the band: two neighbours of the row
        or, for odd columns, of its copy."""
        cut, lane = self.cut, self.lane
        weights = Registers("tap", turn.taps, len(cut.band), dtype="uint32")
        column = lane // 4
        start = self._kernel_row(kernel_row) + column % 2 * cut.band_apart
        start = in_register("band", start + (lane % 4 * 2 - column // 2 * 2 + COLUMNS))
        for tap in range(turn.taps):
            for unit in range(len(cut.band)):
                pair = self.staged[span(start + (tap * 2 * cut.band_apart + unit * UNIT), 2)]
                weights[tap, unit] = tirx.reinterpret("uint32", pair)
        return weights

    # -- results -------------------------------------------------------------------------------------------------------

    def _round(self, sums: Registers) -> None:
        cut, results = self.cut, self._held(self.cut.results)
        for half in HALVES:
            start = results.row_of_matrix(self.lane // 4 + half * (ROWS // 2))
            start = start + self.down * (cut.warp_h * cut.results.row_units * UNIT)
            start = in_register("result_at", start + self.across * cut.tile_w + self.lane % 4 * 2)
            for out in range(cut.tile_h):
                for tile in range(cut.tiles):
                    rounded = Registers("rounded", 2, dtype=cut.dtype)
                    for lane in range(2):
                        rounded[lane] = sums[out, tile, half * 2 + lane].astype(cut.dtype)
                    at = start + (out * cut.row_apart * cut.results.row_units * UNIT + tile * COLUMNS)
                    store(self.staged, rounded.vector(0, 2), span(at, 2))

    def _write(self) -> None:
        """From shared memory: a warp writes whole rows to global memory, not two results a lane."""
        cut, gather, lanes = self.cut, self.cut.gather, self.cut.results.lanes
        results = self._held(cut.results)
        if cut.channels_last:
            self._pixels(cut.results).write(self.result, self._of_block)
            return
        for row, vector in shared_out(cut.result_sharing, self._thread):
            column = self.left + vector * lanes
            inside_map = all_of(
                cut.blocks_h * cut.block_h == gather.rows.outputs or self.top + row < gather.rows.outputs,
                cut.blocks_w * cut.block_w == gather.columns.outputs or column < gather.columns.outputs,
            )
            for image in unrolled("image", cut.images):
                with when(all_of(inside_map, self._is_result(image))):
                    value = self.staged[span(results.row(image, row) + vector * lanes, lanes)]
                    at = (self.first_image + image, self._channel, self.top + row, span(column, lanes))
                    store(self.result, value, *at)
