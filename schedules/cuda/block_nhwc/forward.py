"""The forward pass of a block: kernels that run one after the other, since a statistic is of all pixels.

x ─► moments ─► mean1, var1
x ─► norm1, act1 ─► patch ─► convolution ─► y, its moments ─► mean2, var2
y ─► norm2, act2 ─► z
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from dwconv.schedules.cuda.block_nhwc.channels import NORMALISED, GpuNormTensors, PassTensors, activation
from dwconv.schedules.cuda.block_nhwc.cut import MOMENT_ROWS, BlockCut
from dwconv.schedules.cuda.block_nhwc.pixels import map_pixels, sum_moments
from dwconv.schedules.cuda.block_nhwc.sums import Moments, Partial, combine_moments
from dwconv.schedules.cuda.block_nhwc.tiles import SharedMemory, ThreadTile, TilePlace, row_values, tile_places
from dwconv.schedules.cuda.emit.words import Registers, argument, as_one_axis, barrier, in_float32
from dwconv.schedules.emit import BATCH, Expr, kernel, when


def schedule_forward(cut: BlockCut) -> s_tir.Schedule:
    """Parameters: x (n, H, W, C), w (C, KH, KW), γ and β of each norm (C,), z and y (n, OH, OW, C), mean and variance
    of each norm (C,), and a workspace. Without a second norm no z."""
    n = tirx.Var(BATCH, "int32")
    with kernel() as builder:
        forward = GpuBlockForward.arguments(cut, n)
        if forward.norm1:
            sum_moments(cut, forward.x, forward.partial, forward.pixels_of_x)
            combine_moments(forward.partial, forward.norm1, parts=cut.parts, pixels=in_float32(forward.pixels_of_x))
        forward.convolve()
        if forward.norm2:
            combine_moments(
                forward.partial, forward.norm2, parts=cut.tile_parts, pixels=in_float32(forward.pixels_of_y)
            )
            map_pixels(cut, [forward.y], forward.z, forward.pixels_of_y, forward.activated)
    return s_tir.Schedule(builder.get())


@dataclass(frozen=True, kw_only=True)
class GpuBlockForward(PassTensors):
    """A forward pass."""

    y: Any
    z: Any

    @classmethod
    def arguments(cls, cut: BlockCut, n: Expr) -> GpuBlockForward:
        workload, norms, words = cut.workload, GpuNormTensors.of(cut), cut.partial_words
        channels, dtype = workload.channels, workload.dtype
        x = argument("x", (n, *workload.input_size, channels), dtype)
        w = argument("w", (channels, *workload.kernel), dtype)
        for norm in norms.values():
            norm.take("gamma", "beta")
        z = argument("z", (n, *workload.output_size, channels), dtype) if 2 in norms else None
        y = argument("y", (n, *workload.output_size, channels), dtype)
        for norm in norms.values():
            norm.take("mean", "var")
        memory = argument("workspace", (words,), "float32") if words else None
        x, w, y = as_one_axis(x), as_one_axis(w), as_one_axis(y)
        z = as_one_axis(z) if z is not None else None
        partial = Partial(memory=memory, rows=MOMENT_ROWS, channels=channels)
        return cls(cut=cut, n=n, x=x, w=w, y=y, z=z, norm1=norms.get(1), norm2=norms.get(2), partial=partial)

    def activated(self, channel: Expr) -> Callable[[Sequence[Expr], int], Expr]:
        assert self.norm2 is not None
        factors = self.norm2.factors(NORMALISED, channel, in_float32(self.pixels_of_y))
        return lambda values, lane: activation(self.cut.block.act2, factors.normalised(values[0], lane))

    def convolve(self) -> None:
        """A kernel of its own: y, and its moments if a norm follows."""
        for place in tile_places(self.cut):
            self._convolve(place)

    def _convolve(self, place: TilePlace) -> None:
        cut, norm1, act1 = self.cut, self.norm1, self.cut.block.act1
        memory = SharedMemory.of(place, last_rows=NORMALISED)
        memory.stage_weights(self.w)
        table = memory.table_of(0, NORMALISED)
        if norm1:
            memory.fill_table(table, lambda channel: norm1.factors(NORMALISED, channel, None))
        barrier()  # of a part without tiles, too: what comes after may lie in the same memory

        def read() -> Callable[[Sequence[Expr], int], Expr]:
            if not norm1:
                return lambda values, lane: activation(act1, values[0])
            factors = table.load(NORMALISED, place.thread_c)
            return lambda values, lane: activation(act1, factors.normalised(values[0], lane))

        moments = Moments.none(cut.vector_c) if self.norm2 else None
        for tile in place.tiles(self.n):
            memory.stage(tile, [self.x], read)
            barrier()
            with when(place.has_channels):
                sums = Registers("sum", cut.tile_h, cut.tile_w, cut.vector_c)
                _sum(cut, memory, sums)
                self._store(tile, sums, moments)
            barrier()
        if moments:
            has_channels = place.has_channels
            moments.leave(self.partial, place.part, place.channel, place.mates, has_channels=has_channels)

    def _store(self, tile: ThreadTile, sums: Registers, moments: Moments | None) -> None:
        cut = self.cut
        for row in range(cut.tile_h):
            for column in range(cut.tile_w):
                values = [sums[row, column, lane] for lane in range(cut.vector_c)]
                with when(tile.exists(row, column)):
                    sums.save((row, column, 0), self.y, tile.at(row, column), lanes=cut.vector_c)
                    if moments:
                        if row == column == 0:  # a tile that has results begins with one
                            moments.begin(values)
                        moments.add(values)


def _sum(cut: BlockCut, memory: SharedMemory, sums: Registers) -> None:
    sums.clear()
    values = row_values(cut.columns, cut.vector_c)
    weights = Registers("weight", cut.columns.axis.taps, cut.vector_c)
    for at, pairs in cut.rows.reads.items():
        slots = memory.row(values, at)
        for out_row, kh in pairs:
            memory.weights_of_row(weights, kh)
            for read, meetings in cut.columns.reads.items():
                for out, kw in meetings:
                    for lane in range(cut.vector_c):
                        product = values[slots[read], lane] * weights[kw, lane]
                        sums[out_row, out, lane] = sums[out_row, out, lane] + product
