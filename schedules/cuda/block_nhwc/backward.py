"""The backward pass of a block: kernels that run one after the other, since sums are of all pixels.

    dz, y ─► act2′ ─► d2 ─► Σ d2, Σ d2 · (y − mean2) ─► dβ2, dγ2
    dz, y ─► d2, norm2 ─► patch of g2 ─┬► dgrad, · act1′ ─► d1, Σ d1, Σ d1 · (x − mean1) ─► dβ1, dγ1
                        x ─► act1 ─────┴► wgrad ─► dw
    d1, x ─► norm1 ─► dx, in the place of d1

The convolution's tiles are of pixels of x: what a thread reads of the patch is part of dgrad and of wgrad.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from dwconv.schedules.cuda.block_nhwc.channels import (
    BEFORE_NORM,
    MEAN,
    NORMALISED,
    Factors,
    GpuNormTensors,
    PassTensors,
    activation,
    kept,
    with_derivative,
)
from dwconv.schedules.cuda.block_nhwc.cut import NORM_ROWS, BlockCut
from dwconv.schedules.cuda.block_nhwc.pixels import map_pixels, sum_terms
from dwconv.schedules.cuda.block_nhwc.sums import DOT, TOTAL, Partial, combine_norm, combine_weights
from dwconv.schedules.cuda.block_nhwc.tiles import SharedMemory, ThreadTile, TilePlace, row_values, tile_places
from dwconv.schedules.cuda.emit.words import Registers, argument, as_one_axis, barrier, in_float32, span, zero
from dwconv.schedules.emit import BATCH, Expr, all_of, kernel, when

OF_NORM1 = (*NORMALISED, MEAN)
OF_NORM2 = (*NORMALISED, *BEFORE_NORM[1:])


def schedule_backward(cut: BlockCut) -> s_tir.Schedule:
    """Parameters: dz (n, OH, OW, C), x (n, H, W, C), y as dz, w (C, KH, KW), γ, β, mean and variance of each norm
    (C,), dx as x, dw as w, dγ and dβ of each norm (C,), and a workspace. Without a second norm dy in the place of dz
    and y."""
    n = tirx.Var(BATCH, "int32")
    with kernel() as builder:
        backward = GpuBlockBackward.arguments(cut, n)
        if backward.norm2:
            backward.sum_before_norm2(backward.norm2)
        backward.convolve()
        partial = backward.partial_of(cut.tile_rows)
        combine_weights(partial, backward.dw, backward.norm1, parts=cut.tile_parts, taps=cut.taps)
        if backward.norm1:
            map_pixels(cut, [backward.dx, backward.x], backward.dx, backward.pixels_of_x, backward.before_norm1)
    return s_tir.Schedule(builder.get())


@dataclass(frozen=True, kw_only=True)
class GpuBlockBackward(PassTensors):
    """A backward pass."""

    dz: Any
    y: Any
    dx: Any
    dw: Any

    @classmethod
    def arguments(cls, cut: BlockCut, n: Expr) -> GpuBlockBackward:
        workload, norms = cut.workload, GpuNormTensors.of(cut)
        channels, dtype = workload.channels, workload.dtype
        of_x, of_y = (n, *workload.input_size, channels), (n, *workload.output_size, channels)
        dz = argument("dz" if 2 in norms else "dy", of_y, dtype)
        x = argument("x", of_x, dtype)
        y = argument("y", of_y, dtype) if 2 in norms else None
        w = argument("w", (channels, *workload.kernel), dtype)
        for norm in norms.values():
            norm.take("gamma", "beta", "mean", "var")
        dx = argument("dx", of_x, dtype)
        dw = argument("dw", (channels, *workload.kernel), dtype)
        for norm in norms.values():
            norm.take("dgamma", "dbeta")
        memory = argument("workspace", (cut.partial_words,), "float32")
        dz, x, w, dx, dw = (as_one_axis(tensor) for tensor in (dz, x, w, dx, dw))
        y = as_one_axis(y) if y is not None else None
        return cls(
            cut=cut, n=n, dz=dz, x=x, y=y, w=w, dx=dx, dw=dw, norm1=norms.get(1), norm2=norms.get(2), partial=memory
        )

    def partial_of(self, rows: int) -> Partial:
        return Partial(memory=self.partial, rows=rows, channels=self.cut.workload.channels)

    # -- from pixel to pixel ---------------------------------------------------------------------------------------

    def sum_before_norm2(self, norm2: GpuNormTensors) -> None:
        """Two kernels: the sums of all parts, dβ and dγ."""
        cut, partial = self.cut, self.partial_of(NORM_ROWS)

        def prepare(channel: Expr) -> Callable[[Sequence[Expr], int], list[Expr]]:
            factors = norm2.factors((*NORMALISED, MEAN), channel, None)

            def terms(values: Sequence[Expr], lane: int) -> list[Expr]:
                dz, y = values
                d = self._d2(factors, dz, y, lane)
                return [d, d * factors.centred(y, lane)]

            return terms

        sum_terms(cut, [self.dz, self.y], partial, self.pixels_of_y, prepare)
        combine_norm(partial, norm2, parts=cut.parts)

    def _d2(self, factors: Factors, dz: Expr, y: Expr, lane: int) -> Expr:
        _, slope = with_derivative(self.cut.block.act2, factors.normalised(y, lane))
        return kept("d", dz * slope)

    def before_norm1(self, channel: Expr) -> Callable[[Sequence[Expr], int], Expr]:
        assert self.norm1 is not None
        factors = self.norm1.factors(BEFORE_NORM, channel, in_float32(self.pixels_of_x))
        return lambda values, lane: factors.before_norm(values[0], values[1], lane)

    # -- the convolution -------------------------------------------------------------------------------------------

    def convolve(self) -> None:
        """A kernel of its own: d1 in the place of dx, and partial sums of dw and of the first norm."""
        for place in tile_places(self.cut):
            self._convolve(place)

    def _convolve(self, place: TilePlace) -> None:
        cut, norm1, norm2 = self.cut, self.norm1, self.norm2
        memory = SharedMemory.of(place, last_rows=OF_NORM2 if norm2 else OF_NORM1)
        memory.stage_weights(self.w)
        table1 = memory.table_of(0, OF_NORM1)
        table2 = memory.table_of(1 if norm1 else 0, OF_NORM2)
        pixels = in_float32(self.pixels_of_y)
        if norm1:
            memory.fill_table(table1, lambda channel: norm1.factors(OF_NORM1, channel, None))
        if norm2:
            memory.fill_table(table2, lambda channel: norm2.factors(OF_NORM2, channel, pixels))
        barrier()

        def g2() -> Callable[[Sequence[Expr], int], Expr]:
            if not norm2:
                return lambda values, lane: values[0]
            factors = table2.load(OF_NORM2, place.thread_c)

            def of(values: Sequence[Expr], lane: int) -> Expr:
                dz, y = values
                return factors.before_norm(self._d2(factors, dz, y, lane), y, lane)

            return of

        sums = Registers.zeros("sum", cut.tile_rows, cut.vector_c)
        for tile in place.tiles(self.n):
            thread = BlockBackwardThread(
                cut=cut, place=place, tile=tile, memory=memory, table=table1 if norm1 else None
            )
            with when(place.has_channels):
                thread.load(self.x)
            memory.stage(tile, [self.dz, self.y] if norm2 else [self.dz], g2)
            barrier()
            with when(place.has_channels):
                thread.multiply(sums)
            barrier()
            with when(place.has_channels):
                thread.store(self.dx, sums)
        place.mates.add(sums)
        with when(all_of(True if cut.strips == 1 else place.strip == 0, place.has_channels)):
            partial = self.partial_of(cut.tile_rows)
            for row in range(cut.tile_rows):
                partial.put(place.part, row, place.channel, sums, (row, 0), lanes=cut.vector_c)


class BlockBackwardThread:
    """One thread's tile of pixels of x."""

    def __init__(self, *, cut: BlockCut, place: TilePlace, tile: ThreadTile, memory: SharedMemory, table: Any) -> None:
        self._cut, self._place, self._tile, self._memory, self._table = cut, place, tile, memory, table
        sizes = (cut.tile_h, cut.tile_w, cut.vector_c)
        self._x, self._gradient = Registers("x", *sizes, dtype=cut.workload.dtype), Registers("gradient", *sizes)
        self._pixels = [(row, column) for row in range(cut.tile_h) for column in range(cut.tile_w)]

    def load(self, x: Any) -> None:
        lanes = self._cut.vector_c
        for pixel in self._pixels:
            value = x[span(self._tile.at(*pixel), lanes)]
            if (exists := self._tile.exists(*pixel)) is not True:
                value = tirx.if_then_else(exists, value, zero(self._x.dtype, lanes))
            self._x.put((*pixel, 0), value, lanes=lanes)

    def multiply(self, sums: Registers) -> None:
        cut, lanes = self._cut, self._cut.vector_c
        activated = self._activated()
        self._gradient.clear()
        values, weights = row_values(cut.columns, lanes), Registers("weight", cut.columns.axis.taps, lanes)
        for at, pairs in cut.rows.reads.items():
            slots = self._memory.row(values, at)
            for out_row, kh in pairs:
                self._memory.weights_of_row(weights, kh)
                for read, meetings in cut.columns.reads.items():
                    for out, kw in meetings:
                        tap = kh * cut.columns.axis.taps + kw
                        for lane in range(lanes):
                            g, pixel = values[slots[read], lane], (out_row, out, lane)
                            self._gradient[pixel] = self._gradient[pixel] + g * weights[kw, lane]
                            sums[tap, lane] = sums[tap, lane] + g * activated[pixel]

    def _activated(self) -> Registers:
        cut = self._cut
        activated = Registers("activated", *self._x.sizes)
        factors = self._factors(NORMALISED)
        for pixel in self._pixels:
            exists = self._tile.exists(*pixel)
            for lane in range(cut.vector_c):
                a = activation(cut.block.act1, self._before_act1(factors, self._x.in_float32((*pixel, lane)), lane))
                # What is no pixel may meet gradients all the same.
                activated[(*pixel, lane)] = a if exists is True else tirx.Select(exists, a, zero("float32"))
        return activated

    def store(self, dx: Any, sums: Registers) -> None:
        """d1; and its sums, if there is a norm before. After a barrier, so that what it needs for that is not kept in
        registers until then."""
        cut, lanes = self._cut, self._cut.vector_c
        factors = self._factors(OF_NORM1)
        made = Registers("d1", lanes)
        for pixel in self._pixels:
            with when(self._tile.exists(*pixel)):
                for lane in range(lanes):
                    x = self._x.in_float32((*pixel, lane))
                    _, slope = with_derivative(cut.block.act1, self._before_act1(factors, x, lane))
                    made[lane] = self._gradient[(*pixel, lane)] * slope
                    if factors:
                        total, dot = cut.taps + TOTAL, cut.taps + DOT
                        sums[total, lane] = sums[total, lane] + made[lane]
                        sums[dot, lane] = sums[dot, lane] + made[lane] * factors.centred(x, lane)
                made.save(0, dx, self._tile.at(*pixel), lanes=lanes)

    def _factors(self, rows: Sequence[str]) -> Factors | None:
        return self._table.load(rows, self._place.thread_c) if self._table else None

    def _before_act1(self, factors: Factors | None, x: Expr, lane: int) -> Expr:
        return factors.normalised(x, lane) if factors else x
