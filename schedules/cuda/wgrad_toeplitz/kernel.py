"""The kernel of diagonal sums, for wgrad: rows of x times rows of dy on tensor cores.

A block brings rows of x and of dy into shared memory as they lie, a group of images after the other; where channels
come last, map by map, and the pixels of the next group may wait there. A warp loads dy of a tile once, and goes down
the rows of x, each of which it multiplies by every row of dy that meets it at one of its kernel rows. The sums stay in
registers to the end: of each kernel row a matrix of columns of x by columns of dy, in which a weight is a diagonal.
For a bias dy is multiplied by ones, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tvm import s_tir, tirx

from dwconv.schedules.cuda.emit.split_sum import add_parts
from dwconv.schedules.cuda.emit.tensor_cores import Maps, MovingThreads, PixelMaps, Waiting, load_matrices, multiply_add
from dwconv.schedules.cuda.emit.words import (
    Registers,
    argument,
    as_one_axis,
    barrier,
    blocks,
    blocks_per_sm,
    commit_copies,
    in_register,
    shared,
    span,
    start_of,
    threads,
    turns,
    unrolled,
    wait_for_copies,
    zero,
)
from dwconv.schedules.cuda.gpu.hardware import STATIC_SHARED_BYTES, WARP
from dwconv.schedules.cuda.gpu.tensor_cores import COLUMNS, ONES, ROWS, UNIT, StagedMaps
from dwconv.schedules.cuda.wgrad_toeplitz.cut import ToeplitzGradientCut
from dwconv.schedules.emit import BATCH, Expr, all_of, bind, ceil_div, inside, kernel, serial, store, when


@dataclass(frozen=True, kw_only=True)
class MatrixSums:
    """Matrices of 16 × 8, four sums of each in a lane."""

    cut: ToeplitzGradientCut
    of_rows: Registers | None
    """For every kernel row, unit of dy, and matrix of two units of x."""
    of_pairs: Registers | None
    """For every pair of kernel rows and unit of dy: the odd unit of x, for one of them and then for the other."""

    @classmethod
    def of(cls, cut: ToeplitzGradientCut) -> MatrixSums:
        of_rows = Registers("sum", cut.group_kh, cut.units_w, cut.matrices, 4) if cut.matrices else None
        of_pairs = Registers("sum_of_pair", -(-cut.group_kh // 2), cut.units_w, 4) if cut.has_odd_unit else None
        for each in filter(None, (of_rows, of_pairs)):
            each.clear()
        return cls(cut=cut, of_rows=of_rows, of_pairs=of_pairs)

    def of_row(self, tap: int) -> Iterator[tuple[int, int, Expr]]:
        """(unit of x, column of dy, sum) of a lane for a kernel row, counted from its own place in both."""
        for of in range(self.cut.units_w):
            if self.of_rows is not None:
                for matrix in range(self.cut.matrices):
                    for each in range(4):
                        yield matrix * 2 + each // 2, of * COLUMNS + each % 2, self.of_rows[tap, of, matrix, each]
            if self.of_pairs is not None:
                for each in range(2):
                    value = self.of_pairs[tap // 2, of, tap % 2 * 2 + each]
                    yield len(self.cut.band) - 1, of * COLUMNS + each, value


HALVES = range(2)
"""Of the 16 rows of a product: words of 8 of them each."""


def schedule_diagonals(cut: ToeplitzGradientCut, *, at_a_time: int) -> s_tir.Schedule:
    """Parameters: x (n, C, H, W) or (n, H, W, C), dy as x, dw (C, KH, KW), with a bias dbias (C) and, if the images are
    split, workspace (parts, results): all of dw, then all of dbias. Registers are shared out for ``at_a_time`` blocks
    on an SM."""
    n, workload = tirx.Var(BATCH, "int32"), cut.workload
    channels, parts = workload.channels, cut.split_n

    def image(name: str, height: int, width: int) -> Any:
        shape = (n, height, width, channels) if cut.channels_last else (n, channels, height, width)
        return argument(name, shape, cut.dtype)

    with kernel() as builder:
        x = image("x", cut.rows.inputs, cut.columns.inputs)
        dy = image("dy", cut.rows.outputs, cut.columns.outputs)
        totals = [argument("dw", (channels, cut.rows.taps, cut.columns.taps), cut.dtype)]
        if workload.bias:
            totals.append(argument("dbias", (channels,), cut.dtype))
        workspace = argument("workspace", (parts, cut.results), "float32") if parts > 1 else None
        totals = [as_one_axis(total) for total in totals]
        partial = None if workspace is None else as_one_axis(workspace)
        for number in blocks("block", cut.channel_blocks * parts * cut.blocks_kh):
            block = number // cut.blocks_kh if cut.blocks_kh > 1 else number
            for warp in threads("warp_kh", cut.planes * cut.warps_kh, axis="z"):
                for warp_w in threads("warp_w", cut.warps_w, axis="y"):
                    for lane in threads("lane", WARP):
                        with blocks_per_sm(at_a_time):
                            dynamic, size = cut.shared_bytes > STATIC_SHARED_BYTES, cut.waiting_elements
                            waiting = shared("waiting", size, dtype=cut.dtype, dynamic=dynamic) if size else None
                            ToeplitzGradientBlock(
                                cut=cut, n=n, x=x, dy=dy, into=totals if partial is None else [partial, partial],
                                staged=shared("staged", cut.elements, dtype=cut.dtype, dynamic=dynamic),
                                waiting=waiting,
                                waiting_start=0 if waiting is None else start_of(waiting, elements=size),
                                passed=shared("passed", cut.words_passed, dynamic=dynamic),
                                first_channel=block // parts * cut.planes, part=block % parts,
                                first_kh=number % cut.blocks_kh * cut.block_kh if cut.blocks_kh > 1 else 0,
                                plane=warp // cut.warps_kh if cut.planes > 1 else 0,
                                warp_kh=warp % cut.warps_kh if cut.planes > 1 else warp,
                                warp_w=warp_w, lane=lane,
                            ).sum()  # fmt: skip
        if partial is not None:
            add_parts(partial, totals, count=parts, dtype=cut.dtype)
    return s_tir.Schedule(builder.get())


@dataclass(frozen=True, kw_only=True)
class ToeplitzGradientBlock:
    """The work of the threads of a block."""

    cut: ToeplitzGradientCut
    n: Expr
    x: Any
    dy: Any
    into: Sequence[Any]
    """Where its sums go: dw and dbias, or the workspace; flat."""
    staged: Any
    """x, then dy."""
    waiting: Any
    """The pixels of the next item, in the same order, if they wait; and its address."""
    waiting_start: Expr
    passed: Any
    """Sums of all warps for one kernel row of each."""
    first_channel: Expr
    part: Expr
    first_kh: Expr
    """The first kernel row of the block."""
    plane: Expr
    """The channel of its warp, in the block."""
    warp_kh: Expr
    """Which group of the block's kernel rows its warp has."""
    warp_w: Expr
    """Which tiles its warp has."""
    lane: Expr

    def sum(self) -> None:
        cut = self.cut
        sums = MatrixSums.of(cut)
        bias = Registers.zeros("bias_sum", 4) if cut.workload.bias else None
        items = ceil_div(self.n, cut.images) * cut.blocks_h
        items = tirx.truncdiv(items - self.part + (cut.split_n - 1), cut.split_n)  # of the block
        if cut.pipeline > 1:
            self._clear()
            with when(items > 0):
                self._stage(0)
        for turn in serial("turn", items):
            if cut.pipeline == 1:
                barrier()
                self._stage(turn)
            wait_for_copies()
            barrier()
            if cut.pipeline > 1:
                self._take_apart()
                barrier()
                with when(turn + 1 < items):
                    self._stage(turn + 1)
            self._add(sums, bias, *self._maps())
        self._add_diagonals(sums)
        if bias is not None:
            self._add_columns(bias)

    def _stage(self, turn: Expr) -> None:
        cut = self.cut
        item = bind("item", self.part + turn * cut.split_n)
        image = in_register("first_image", item // cut.blocks_h * cut.images)
        top = in_register("top", item % cut.blocks_h * cut.block_h)

        def exists(number: Expr, group: Expr = 0) -> Expr:
            is_channel = self.first_channel + group * UNIT < cut.workload.channels
            return all_of(image + number < self.n, cut.workload.channels % cut.planes == 0 or is_channel)

        movers = MovingThreads(
            thread=self._thread, threads=cut.threads, first_image=image, channel=self.first_channel, exists=exists
        )
        held: Sequence[Waiting | Maps] = self._maps(top)
        if cut.channels_last:
            held = self._waiting(top) if cut.pipeline > 1 else self._pixels(top)
        for each, source in zip(held, (self.x, self.dy), strict=True):
            each.copy(source, movers)
        commit_copies()

    def _clear(self) -> None:
        cut, zeros = self.cut, Registers("zero", UNIT, dtype=self.cut.dtype)
        zeros.clear()
        for turn in turns("turn", -(-cut.elements // (UNIT * cut.threads))):
            at = in_register("at", (self._thread + turn * cut.threads) * UNIT)
            with when(at < cut.elements):
                store(self.staged, zeros.vector(0, UNIT), span(at, UNIT))

    def _take_apart(self) -> None:
        warp = self._group * self.cut.warps_w + self.warp_w
        for pixels, waiting in zip(self._pixels(), self._waiting(), strict=True):
            pixels.take_apart(waiting, warp=warp, warps=self.cut.warps, lane=self.lane)

    @property
    def _group(self) -> Expr:
        return self.plane * self.cut.warps_kh + self.warp_kh

    @cached_property
    def _thread(self) -> Expr:
        return (self._group * self.cut.warps_w + self.warp_w) * WARP + self.lane

    def _operands(self, top: Expr) -> Iterator[tuple[StagedMaps, Expr, Expr, Expr]]:
        """Of x and of dy: the maps, where those of the block begin, and the row and column from which they are
        counted."""
        cut = self.cut
        yield cut.x, 0, top + self.first_kh * cut.rows.step, 0
        yield cut.dy, cut.maps(cut.x).all_elements, top, -cut.offset

    def _maps(self, top: Expr = 0) -> list[Maps]:
        """x and dy of the warp's channel."""
        return [
            Maps(
                held=held, staged=self.staged, first=first + self.cut.maps(held).map_at(self.plane), top=top, left=left
            )
            for held, first, top, left in self._operands(top)
        ]

    def _pixels(self, top: Expr = 0) -> list[PixelMaps]:
        """The operands of all channels of the block, where channels come last."""
        return [
            PixelMaps(held=held, staged=self.staged, planes=self.cut.maps(held), first=first, top=top, left=left)
            for held, first, top, left in self._operands(top)
        ]

    def _waiting(self, top: Expr = 0) -> list[Waiting]:
        found, first = [], 0
        for held, _, held_top, _ in self._operands(top):
            laid = self.cut.waiting(held)
            found.append(Waiting(laid=laid, staged=self.waiting, start=self.waiting_start, first=first, top=held_top))
            first += laid.elements
        return found

    # -- products ------------------------------------------------------------------------------------------------------

    def _add(self, sums: MatrixSums, bias: Registers | None, x: Maps, dy: Maps) -> None:
        cut = self.cut
        for number in serial("product", cut.products_of_warp):
            product = self.warp_w * cut.products_of_warp + number
            unit = product * (cut.tiles_w * cut.units_w)
            with when(cut.products_of_warp * cut.warps_w == cut.products_w or product < cut.products_w):
                gradients = self._load_gradients(dy, unit)
                if bias is not None:
                    self._add_ones(bias, gradients)
                self._add_rows(sums, gradients, x, unit)

    def _load_gradients(self, dy: Maps, unit: Expr) -> Registers:
        cut = self.cut
        others = self.lane // ROWS if cut.units_w > 1 else 0
        start = in_register("dy_at", dy.row_of_matrix(self.lane % ROWS) + (unit + others) * UNIT)
        gradients = Registers("gradient", cut.tile_h, cut.units_w, 2, dtype="uint32")
        for row in range(cut.tile_h):
            into = [gradients[row, of, half] for of in range(cut.units_w) for half in HALVES]
            load_matrices(into, self.staged, start + row * (cut.dy.row_units * UNIT), transposed=True)
        return gradients

    def _add_ones(self, bias: Registers, gradients: Registers) -> None:
        ones = tirx.const(ONES[self.cut.dtype], "uint32")
        for row, of in itertools.product(range(self.cut.tile_h), range(self.cut.units_w)):
            self._multiply(bias, (), [ones] * 4, gradients, row, of)

    def _add_rows(self, sums: MatrixSums, gradients: Registers, x: Maps, unit: Expr) -> None:
        """Rows of x, each times all rows of dy that it meets."""
        cut, lane = self.cut, self.lane
        row_of_lane, unit_of_lane = lane % ROWS, lane // ROWS
        if cut.lean:  # both units of 8 rows come first
            row_of_lane, unit_of_lane = lane // ROWS * UNIT + lane % UNIT, lane // UNIT % 2
        first = x.row_of_matrix(row_of_lane)
        unit = unit + self.warp_kh * (cut.group_kh * cut.rows.step * cut.x.row_units)
        if sums.of_rows is not None:
            start = in_register("x_at", first + (unit + unit_of_lane) * UNIT)
            for at, met in cut.meetings:
                source = self._load_row(start + self._from_first(at))
                for (row, tap), of in itertools.product(met, range(cut.units_w)):
                    for matrix in range(cut.matrices):
                        self._multiply(sums.of_rows, (tap, of, matrix), source[matrix], gradients, row, of)
        if sums.of_pairs is not None:
            start = in_register("odd_at", first + (unit + (len(cut.band) - 1)) * UNIT)
            both = in_register("pair_at", start + unit_of_lane * (cut.x.row_units * UNIT))
            for at, met in cut.pairs_met:
                source = self._load_pair(start, both, at)
                for (row, pair), of in itertools.product(met, range(cut.units_w)):
                    self._multiply(sums.of_pairs, (pair, of), source, gradients, row, of)

    def _multiply(
        self, sums: Registers, at: tuple[int, ...], source: Sequence[Expr], gradients: Registers, row: int, of: int
    ) -> None:
        words = [gradients[row, of, half] for half in HALVES]
        multiply_add([sums[(*at, each)] for each in range(4)], source, words, dtype=self.cut.dtype)

    def _from_first(self, at: int) -> int:
        return (at - self.cut.x.rows.start) * (self.cut.x.row_units * UNIT)

    def _load_row(self, at: Expr) -> list[list[Expr]]:
        """The 16 rows of a product, of all units of a band: a matrix of each two, and of one that is left over, with
        zeros, where it is not for pairs of rows."""
        units = len(self.cut.band) - self.cut.has_odd_unit
        source = Registers("source", units, 2, dtype="uint32")
        matrices = []
        for unit in range(0, units, 2):
            words = [source[of, half] for of in range(unit, min(unit + 2, units)) for half in HALVES]
            load_matrices(words, self.staged, at + unit * UNIT, transposed=True)
            if not self.cut.lean:
                words += [zero("uint32")] * (4 - len(words))
                words = [words[each] for each in (0, 2, 1, 3)]
            matrices.append(words)
        return matrices

    def _load_pair(self, start: Expr, both: Expr, at: int) -> list[Expr]:
        """The odd unit of a row of x and of the next one: a matrix, with zeros for a row that meets nothing."""
        rows = [at, at + self.cut.rows.step]
        met = [row in dict(self.cut.meetings) for row in rows]
        source = Registers("odd", 4, dtype="uint32")
        words = [source[each] for each in range(4)]
        from_row = (both if all(met) else start) + self._from_first(rows[met.index(True)])
        load_matrices(words, self.staged, from_row, transposed=True)
        return [words[each] if met[each % 2] else zero("uint32") for each in range(4)]

    # -- results -------------------------------------------------------------------------------------------------------

    def _add_diagonals(self, sums: MatrixSums) -> None:
        """Adds up the diagonals of all warps of a group, one kernel row of each group after the other: always in the
        order of the warps and columns."""
        cut, taps_h, taps_w = self.cut, self.cut.rows.taps, self.cut.columns.taps
        own = self._group * cut.sums_of_group + self.warp_w * cut.sums_of_warp
        own = in_register("own", own + self.lane // 4 + self.lane % 4 * (2 * cut.diagonal_pitch))
        for tap in range(cut.group_kh):
            barrier()
            for unit, column, value in sums.of_row(tap):
                store(self.passed, value, own + (unit * UNIT + column * cut.diagonal_pitch))
            barrier()
            weights = cut.planes * cut.warps_kh * taps_w
            for turn in range(-(-weights // cut.threads)):
                weight = bind("weight", self._thread + turn * cut.threads)
                group, channel = weight // taps_w, self.first_channel
                if cut.planes > 1:
                    group, channel = group % cut.warps_kh, channel + group // cut.warps_kh
                kernel_row = self.first_kh + group * cut.group_kh + tap
                is_channel = cut.workload.channels % cut.planes == 0 or channel < cut.workload.channels
                with when(all_of(weight < weights, kernel_row < taps_h, is_channel)):
                    added = Registers.zeros("added", 1)
                    first = weight // taps_w * cut.sums_of_group + weight % taps_w * cut.columns.step
                    first = in_register("first", first + cut.diagonal)
                    for warp in unrolled("warp", cut.warps_w):
                        for column in unrolled("column", cut.columns.outputs if cut.is_whole else cut.tile_w):
                            at = first + warp * cut.sums_of_warp + column * (cut.diagonal_pitch + 1)
                            of_x = weight % taps_w * cut.columns.step + cut.diagonal + column
                            with when(inside(of_x, cut.columns.inputs) if cut.is_whole else True):
                                added[0] = added[0] + self.passed[at]
                    at = channel * (taps_h * taps_w) + kernel_row * taps_w + weight % taps_w
                    self._store(added[0], at, of_bias=False)

    def _add_columns(self, bias: Registers) -> None:
        """Adds up the columns of dy that the warps of a channel have summed up: every row of their sums is the same."""
        cut, channel = self.cut, self.first_channel + self._thread
        own = self._group * cut.sums_of_group + self.warp_w * cut.sums_of_warp
        barrier()
        with when(self.lane < COLUMNS // 2):
            for each in range(2):
                store(self.passed, bias[each], own + self.lane * 2 + each)
        barrier()
        is_channel = cut.workload.channels % cut.planes == 0 or channel < cut.workload.channels
        is_first = cut.blocks_kh == 1 or self.first_kh == 0  # all that have its kernel rows have summed up the same
        with when(all_of(self._thread < cut.planes, is_channel, is_first)):
            added = Registers.zeros("added", 1)
            for warp in unrolled("warp", cut.warps_w):
                for column in unrolled("column", COLUMNS):
                    at = self._thread * (cut.warps_kh * cut.sums_of_group) + warp * cut.sums_of_warp + column
                    added[0] = added[0] + self.passed[at]
            self._store(added[0], channel, of_bias=True)

    def _store(self, value: Expr, at: Expr, *, of_bias: bool) -> None:
        cut, into = self.cut, self.into[of_bias]
        if cut.split_n > 1:
            at = at + self.part * cut.results + (cut.weights if of_bias else 0)
        store(into, value.astype(into.dtype), at)
