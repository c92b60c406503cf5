"""The kernel behind wgrad, in either layout: every weight is the correlation of the input with the output gradient.

    dw[c, k] = Σ over n, o of x[n, o·stride + k·dilation − padding, c // multiplier] · dy[n, o, c]
    dbias[c] = Σ over n, o of dy[n, o, c]

A thread keeps its tile of pixels and goes through its images: dy of the tile is loaded once, every x once for all the
dy that it meets, straight from global memory into registers, where the sums of all its taps stay to the end.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from dwconv.schedules.any_size import any_axes, channels_of, of_any_width
from dwconv.schedules.cuda.emit.split_sum import add_parts
from dwconv.schedules.cuda.emit.words import Registers, argument, as_one_axis, in_float32, keep, span, zero
from dwconv.schedules.cuda.wgrad.cut import Pixel, VectorLoad, WeightGradientCut
from dwconv.schedules.cuda.wgrad.place import Tile, WgradPlace, threads_of
from dwconv.schedules.emit import BATCH, Expr, all_of, bind, divided, inside, is_number, kernel, serial, when
from dwconv.schedules.taps import HEIGHT, WIDTH, Axes, inputs_beyond


def schedule_weight_gradient(cut: WeightGradientCut) -> s_tir.Schedule:
    """Parameters: x, dy in the workload's layout, dw (C·M, KH, KW), in 3-D (C·M, KD, KH, KW), with a bias dbias (C·M)
    and, if there is more than one part, workspace (parts, results): all of dw, then all of dbias."""
    workload, parts = cut.workload, cut.parts
    channels, taps = channels_of(workload), math.prod(workload.kernel)
    results = channels * (taps + workload.bias)
    x_channels = channels // workload.multiplier if workload.multiplier > 1 else channels
    n = tirx.Var(BATCH, "int32")
    axes = any_axes(workload) if workload.any_size else Axes.of_convolution(workload)
    with kernel() as builder:
        x = argument("x", _shape(cut, n, x_channels, axes.inputs), workload.dtype)
        dy = argument("dy", _shape(cut, n, channels, axes.outputs), workload.dtype)
        totals = [argument("dw", (channels, *workload.kernel), workload.dtype)]
        if workload.bias:
            totals.append(argument("dbias", (channels,), workload.dtype))
        workspace = argument("workspace", (parts, results), "float32") if parts > 1 else None
        x, dy, totals = as_one_axis(x), as_one_axis(dy), [as_one_axis(total) for total in totals]
        partial = None if workspace is None else as_one_axis(workspace)
        for place in threads_of(cut, channels):
            sums = Registers.zeros("sums", cut.sums_of_channel, cut.vector_c)
            with when(place.has_work()):
                for version in of_any_width(cut, () if cut.channel_last else _rows(cut, axes)):
                    reader = TileReader.of(version, axes, x, dy, channels=(x_channels, channels))
                    for tile in place.tiles(axes, n * axes.depths.outputs):
                        reader.add_tile(sums, place, tile)
            place.sum_over_mates(sums)
            if partial is None:
                place.write(sums, *((total, 0) for total in totals))
            else:
                first = place.part * results
                place.write(sums, *((partial, first + offset) for offset in (0, channels * taps)[: len(totals)]))
        if partial is not None:
            add_parts(partial, totals, count=parts, dtype=workload.dtype)
    return s_tir.Schedule(builder.get())


def _shape(cut: WeightGradientCut, n: Expr, channels: Expr, size: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return (n, *size, channels) if cut.channel_last else (n, channels, *size)


def _rows(cut: WeightGradientCut, axes: Axes) -> tuple[tuple[Expr, int], tuple[Expr, int]]:
    return (axes.columns.inputs, cut.x_vector), (axes.columns.outputs, cut.dy_vector)


@dataclass(frozen=True, kw_only=True)
class Edge:
    """Where an axis ends, seen from a tile: which of its pixels are inside can depend on where the tile is."""

    origin: Expr
    """Where the tile begins."""
    most: Expr
    """The largest that ``origin`` can be; the least is 0."""
    size: Expr
    inside: int = 0
    """Of an axis of any size: so many pixels from the origin on are inside wherever the tile is."""

    def has(self, at: int) -> Expr:
        if not isinstance(self.size, int):
            return all_of(at >= 0 or self.origin + at >= 0, at < self.inside or self.origin + at < self.size)
        if isinstance(self.origin, int):
            return 0 <= self.origin + at < self.size
        low = at >= 0 or self.origin + at >= 0
        high = self.most + at < self.size or self.origin + at < self.size
        return all_of(low, high)


@dataclass(frozen=True, kw_only=True)
class WgradOperand:
    """x or dy."""

    name: str
    elements: Any
    """In one dimension."""
    channels: Expr
    depths: Expr
    """Planes of a channel in an image."""
    channel_last: bool
    loaded: Registers
    """Where a thread takes the widest of its vectors apart."""

    def seen_from(self, rows: Edge, columns: Edge, *, image: Expr, depth: Expr, channel: Expr) -> TileSource:
        plane, pitch = rows.size * columns.size, self.channels if self.channel_last else 1
        volume = self.depths * plane
        first = depth * (plane * pitch) + (channel if self.channel_last else channel * volume)
        at = image * (volume * self.channels) + first + (rows.origin * columns.size + columns.origin) * pitch
        (vector,) = self.loaded.sizes  # TVM has to see that the vectors are aligned
        at = keep(f"{self.name}_at", at // vector) * vector
        if not is_number(pitch):
            pitch = keep("pitch", tirx.truncdiv(pitch, vector)) * vector
        row = columns.size * pitch
        if not (self.channel_last or is_number(row)):
            row = keep("row", tirx.truncdiv(row, vector)) * vector
        return TileSource(operand=self, at=at, rows=rows, columns=columns, pitch=pitch, row=row)


@dataclass(frozen=True, kw_only=True)
class TileSource:
    """x or dy, seen from the first pixel of a tile."""

    operand: WgradOperand
    at: Expr
    """The element of that pixel."""
    rows: Edge
    columns: Edge
    pitch: Expr
    """Elements from one pixel of a row to the next."""
    row: Expr
    """From one row to the next."""

    def pixels(self, load: VectorLoad, *, row: int, condition: Expr) -> dict[Pixel, Expr]:
        """Those of a row's vector, in float32; zero where ``condition`` does not hold."""
        name, loaded = self.operand.name, self.operand.loaded
        value = self.operand.elements[span(self.at + self._offset(load, row), load.lanes)]
        if condition is not True:
            value = tirx.if_then_else(condition, value, zero(loaded.dtype, load.lanes))
        if load.lanes == 1:
            return {pixel: bind(name, in_float32(value)) for pixel, _ in load.pixels}
        loaded.put(0, value, lanes=load.lanes)
        return {pixel: bind(name, loaded.in_float32(place)) for pixel, place in load.pixels}

    def _offset(self, load: VectorLoad, row: int) -> Expr:
        if is_number(self.pitch):
            return row * self.row + load.first
        return (row * self.columns.size + load.column) * self.pitch + load.channel


@dataclass(frozen=True)
class TileReader:
    """Goes through the tile of one image, and adds to the sums what it gives."""

    cut: WeightGradientCut
    axes: Axes
    x: WgradOperand
    dy: WgradOperand

    @classmethod
    def of(cls, cut: WeightGradientCut, axes: Axes, x: Any, dy: Any, *, channels: tuple[Expr, Expr]) -> TileReader:
        """To be made by each thread: it has registers."""

        def operand(name: str, elements: Any, channels: Expr, depths: Expr, vector: int) -> WgradOperand:
            loaded = Registers(name, vector, dtype=cut.workload.dtype)
            return WgradOperand(
                name=name, elements=elements, channels=channels, depths=depths, channel_last=cut.channel_last,
                loaded=loaded,
            )  # fmt: skip

        return cls(
            cut,
            axes,
            operand("x", x, channels[0], axes.depths.inputs, cut.x_vector),
            operand("dy", dy, channels[1], axes.depths.outputs, cut.dy_vector),
        )

    def add_tile(self, sums: Registers, place: WgradPlace, tile: Tile) -> None:
        """Where in 3-D the tap along the depth meets padding, the sum of dy alone is left to be added."""
        depths = self.axes.depths
        image, depth = divided(tile[0], depths.outputs)
        met = depth * depths.up + place.kd * depths.step + depths.shift
        if depths.one_to_one:
            self._add_plane(sums, place, tile, (image, depth, met))
            return
        met = bind("x_depth", met)
        is_met = inside(met, depths.inputs)
        with when(is_met):
            self._add_plane(sums, place, tile, (image, depth, met))
        if self.cut.workload.bias:
            with when(not is_met if isinstance(is_met, bool) else tirx.Not(is_met)):
                self._add_plane(sums, place, tile, (image, depth, None))

    def _add_plane(
        self, sums: Registers, place: WgradPlace, tile: Tile, planes: tuple[Expr, Expr, Expr | None]
    ) -> None:
        """``planes``: the image, that of dy, and that of x; None: there is no such plane."""
        cut, rows, columns = self.cut, self.axes.rows, self.axes.columns
        image, depth, x_depth = planes
        _, top, left = tile
        last_row, last_column = cut.tiles_h * cut.tile_h - cut.unroll_h, (cut.tiles_w - 1) * cut.tile_w
        # Of any size, how many pixels there are from the first of straight code on, wherever the tile is.
        is_straight, beyond = cut.unroll_h == cut.tile_h, [inputs_beyond(cut.workload, at)[0] for at in (HEIGHT, WIDTH)]
        is_known = is_straight and cut.groups == cut.depths.taps
        sure_rows = cut.rows.up + beyond[0] if is_known else -cut.workload.input_size[HEIGHT]
        for step in serial("step", cut.tile_h // cut.unroll_h):
            row, column = keep("dy_row", top + step * cut.unroll_h), keep("dy_column", left)
            dy = self.dy.seen_from(
                Edge(origin=row, most=last_row, size=rows.outputs, inside=int(is_straight)),
                Edge(origin=column, most=last_column, size=columns.outputs, inside=1),
                image=image,
                depth=depth,
                channel=place.channel,
            )
            if x_depth is None:
                for each in range(cut.unroll_h):
                    self._gradient_row(sums, dy, each)
                continue
            x_row = keep("x_row", rows.origin(row) + place.kh * rows.step)
            last_x_row = rows.origin(last_row) + (cut.kernel_rows - cut.group_kh) * rows.step
            x = self.x.seen_from(
                Edge(origin=x_row, most=last_x_row, size=rows.inputs, inside=sure_rows),
                Edge(
                    origin=columns.origin(column),
                    most=columns.origin(last_column),
                    size=columns.inputs,
                    inside=cut.columns.up + beyond[1],
                ),
                image=image,
                depth=x_depth,
                channel=place.channel // cut.workload.multiplier,
            )
            self._add_rows(sums, x, dy)

    def _add_rows(self, sums: Registers, x: TileSource, dy: TileSource) -> None:
        skip, met = self.cut.edge == "skip", self.cut.column_reads
        multiplier, lanes = self.cut.workload.multiplier, self.cut.vector_c
        gradient: dict[int, dict[Pixel, Expr]] = {}
        for at, pairs in self.cut.row_reads.items():
            for row in sorted({row for row, _ in pairs} - gradient.keys()):
                gradient[row] = self._gradient_row(sums, dy, row)
            has_row = x.rows.has(at)
            with when(has_row if skip else True):
                for load in self.cut.x_loads:
                    inside = all_of(skip or has_row, x.columns.has(load.column))
                    with when(inside if skip else True):
                        for (column, channel), value in x.pixels(load, row=at, condition=skip or inside).items():
                            for (row, a), (out, b) in itertools.product(pairs, met[column]):
                                tap = a * self.cut.columns.taps + b
                                for c in range(channel * multiplier, min((channel + 1) * multiplier, lanes)):
                                    sums[tap, c] = sums[tap, c] + value * gradient[row][out, c]
        if self.cut.workload.bias:
            for row in sorted(set(range(self.cut.unroll_h)) - gradient.keys()):  # those that meet padding alone
                self._gradient_row(sums, dy, row)

    def _gradient_row(self, sums: Registers, dy: TileSource, row: int) -> dict[Pixel, Expr]:
        """A row of dy, which the gradient of the bias sums up, too."""
        found: dict[Pixel, Expr] = {}
        for load in self.cut.dy_loads:
            found.update(dy.pixels(load, row=row, condition=all_of(dy.rows.has(row), dy.columns.has(load.column))))
        for (_, c), value in found.items() if self.cut.workload.bias else ():
            bias = self.cut.sums_of_channel - 1
            sums[bias, c] = sums[bias, c] + value
        return found
