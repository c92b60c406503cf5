"""The kernel behind wgrad, in either layout: every weight is the correlation of the input with the output gradient.

    dw[c, k] = Σ over n, o of x[n, o·stride + k·dilation − padding, c // multiplier] · dy[n, o, c]
    dbias[c] = Σ over n, o of dy[n, o, c]

A thread keeps its tile of pixels and goes through its images: dy of the tile is loaded once, every x once for all the
dy that it meets, straight from global memory into registers, where the sums of all its taps stay to the end.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from dwconv.schedules.any_size import any_axes, channels_of, of_any_width
from dwconv.schedules.cuda.emit.split_sum import add_parts, sum_over_threads
from dwconv.schedules.cuda.emit.words import (
    Registers,
    Start,
    argument,
    as_one_axis,
    blocks,
    blocks_per_sm,
    in_float32,
    keep,
    span,
    threads,
    zero,
)
from dwconv.schedules.cuda.weight_gradient.cut import Load, Pixel, WeightGradientCut
from dwconv.schedules.emit import (
    BATCH,
    Expr,
    all_of,
    bind,
    ceil_div,
    divided,
    inside,
    int32,
    is_number,
    kernel,
    serial,
    store,
    when,
)
from dwconv.schedules.taps import Axes


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
            sums = Registers("sums", cut.sums_of_channel, cut.vector_c)
            sums.clear()
            with when(place.has_work()):
                for version in of_any_width(cut, () if cut.channel_last else _rows(cut, axes)):
                    reader = Reader.of(version, axes, x, dy, channels=(x_channels, channels))
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


# -- the sums of each thread ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Place:
    """One thread, and what it owns."""

    cut: WeightGradientCut
    channels: Expr
    """Of dy, all together."""
    part: Expr
    vector: Expr
    """Which vector of channels."""
    group: Expr
    """Which group of kernel rows."""
    mate: Expr
    """Its number among the threads whose sums it meets."""
    neighbour: tuple[Expr, Expr]
    """Its numbers on (kernel rows, channels) in the block."""

    @property
    def channel(self) -> Expr:
        return self.vector * self.cut.vector_c

    @property
    def kd(self) -> Expr:
        """Its tap along the depth: those of the same kernel rows are side by side."""
        return self.group % self.cut.depths.taps if self.cut.depths.taps > 1 else 0

    @property
    def kh(self) -> Expr:
        return self.group // self.cut.depths.taps * self.cut.group_kh

    @property
    def _item(self) -> Expr:
        return self.part * self.cut.threads_p + self.mate

    def tiles(self, axes: Axes, planes: Expr) -> Iterator[Tile]:
        """A loop over the tiles that it sums: of known size, its own in each of its images."""
        cut, item = self.cut, self._item
        if not cut.workload.any_size:
            image, left = item // (cut.tiles_h * cut.tiles_w), item % cut.tiles_w
            top = item // cut.tiles_w % cut.tiles_h
            for turn in serial("turn", tirx.truncdiv(planes - image + (cut.split_n - 1), cut.split_n)):
                yield bind("image", image + turn * cut.split_n), top * cut.tile_h, left * cut.tile_w
            return
        sizes = (ceil_div(axes.rows.outputs, cut.tile_h), ceil_div(axes.columns.outputs, cut.tile_w))
        across, down = int32(keep("tiles_w", sizes[1])), int32(keep("tiles_h", sizes[0]))
        at, further = Registers("tile", 3, dtype="int32"), list[tuple[Expr, Expr, Expr]]()
        for number in (int32(cut.items), int32(item)):
            rest, left = tirx.truncdiv(number, across), tirx.truncmod(number, across)
            further.append((tirx.truncdiv(rest, down), tirx.truncmod(rest, down), left))
        for axis in range(3):
            at[axis] = further[1][axis]
        step = [keep("step", each) for each in further[0]]
        for _ in serial("turn", tirx.truncdiv(planes * down * across - item + (cut.items - 1), cut.items)):
            yield at[0], at[1] * cut.tile_h, at[2] * cut.tile_w
            # One division each, once; from tile to tile, carries.
            for axis in range(3):
                at[axis] = at[axis] + step[axis]
            for axis, size in ((2, across), (1, down)):
                with when(at[axis] >= size):
                    at[axis] = at[axis] - size
                    at[axis - 1] = at[axis - 1] + 1

    def has_work(self) -> Expr:
        cut = self.cut
        has_item = cut.items == cut.parts * cut.threads_p or self._item < cut.items
        return all_of(has_item, self._has_channels(), cut.groups % cut.threads_kh == 0 or self.group < cut.groups)

    def _has_channels(self) -> Expr:
        if not is_number(self.channels):
            return self.channel < self.channels
        return self.cut.vectors % self.cut.threads_c == 0 or self.vector < self.cut.vectors

    def sum_over_mates(self, sums: Registers) -> None:
        cut, (group, lane) = self.cut, self.neighbour

        def slot(mate: Expr, width: int) -> Expr:
            """In the order of the threads, so that those of a warp use different banks."""
            if cut.channel_last:
                return (group * width + mate) * cut.threads_c + lane
            return (group * cut.threads_c + lane) * width + mate

        others = cut.threads_c * cut.threads_kh
        sum_over_threads(sums, mate=self.mate, mates=cut.threads_p, others=others, slot=slot)

    def write(self, sums: Registers, weights: Start, bias: Start | None = None) -> None:
        """To memory: each into a tensor, counted from an element."""
        taps_h, taps_w = self.cut.rows.taps, self.cut.columns.taps
        with when(all_of(self.cut.threads_p == 1 or self.mate == 0, self._has_channels())):
            into, start = weights
            taps = self.cut.depths.taps * taps_h
            first = bind("first", start + self.channel * (taps * taps_w))
            for a in range(self.cut.group_kh):
                with when(self.cut.kernel_rows == taps_h or self.kh + a < taps_h):
                    for b in range(taps_w):
                        for c in range(self.cut.vector_c):
                            row = self.kd * taps_h + self.kh
                            at = first + (row * taps_w + (c * taps + a) * taps_w + b)
                            store(into, sums[self.cut.sum_of(a, b), c].astype(into.dtype), at)
            if bias is not None:
                into, start = bias
                with when(self.cut.groups == 1 or self.group == 0):
                    for c in range(self.cut.vector_c):
                        store(into, sums[self.cut.sum_of_bias, c].astype(into.dtype), start + self.channel + c)


def threads_of(cut: WeightGradientCut, channels: Expr) -> Iterator[Place]:
    """All threads of all blocks. NHWC: neighbouring threads own neighbouring channels; NCHW: neighbouring tiles."""
    channel_blocks, parts, group_blocks = cut.blocks
    if not is_number(channels):
        channel_blocks = ceil_div(channels, cut.threads_c * cut.vector_c)
    across, down = (cut.threads_c, cut.threads_p) if cut.channel_last else (cut.threads_p, cut.threads_c)
    for groups in blocks("groups", group_blocks, axis="y"):
        for block in blocks("block", channel_blocks * parts):
            for z in threads("z", cut.threads_kh, axis="z"):
                for y in threads("y", down, axis="y"):
                    for x in threads("x", across):
                        lane, mate = (x, y) if cut.channel_last else (y, x)
                        with blocks_per_sm(cut.blocks_per_sm):
                            yield Place(
                                cut=cut,
                                channels=channels,
                                part=block // channel_blocks,
                                vector=block % channel_blocks * cut.threads_c + lane,
                                group=groups * cut.threads_kh + z,
                                mate=mate,
                                neighbour=(z, lane),
                            )


# -- what a thread adds --------------------------------------------------------------------------------------------


Tile = tuple[Expr, Expr, Expr]
"""A tile of dy: its image, in 3-D its plane of those of all images; and where it begins, (row, column)."""


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
        """Whether the pixel ``at`` after the origin is inside; True or False where this is known."""
        if not isinstance(self.size, int):
            return all_of(at >= 0 or self.origin + at >= 0, at < self.inside or self.origin + at < self.size)
        if isinstance(self.origin, int):
            return 0 <= self.origin + at < self.size
        low = at >= 0 or self.origin + at >= 0
        high = self.most + at < self.size or self.origin + at < self.size
        return all_of(low, high)


@dataclass(frozen=True, kw_only=True)
class Operand:
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

    def seen_from(self, rows: Edge, columns: Edge, *, image: Expr, depth: Expr, channel: Expr) -> Source:
        """From the first pixel of a tile."""
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
        return Source(operand=self, at=at, rows=rows, columns=columns, pitch=pitch, row=row)


@dataclass(frozen=True, kw_only=True)
class Source:
    """x or dy, seen from the first pixel of a tile."""

    operand: Operand
    at: Expr
    """The element of that pixel."""
    rows: Edge
    columns: Edge
    pitch: Expr
    """Elements from one pixel of a row to the next."""
    row: Expr
    """From one row to the next."""

    def pixels(self, load: Load, *, row: int, condition: Expr) -> dict[Pixel, Expr]:
        """Those of a row's vector, in float32; zero where ``condition`` does not hold."""
        name, loaded = self.operand.name, self.operand.loaded
        value = self.operand.elements[span(self.at + self._offset(load, row), load.lanes)]
        if condition is not True:
            value = tirx.if_then_else(condition, value, zero(loaded.dtype, load.lanes))
        if load.lanes == 1:
            return {pixel: bind(name, in_float32(value)) for pixel, _ in load.pixels}
        loaded.put(0, value, lanes=load.lanes)
        return {pixel: bind(name, loaded.in_float32(place)) for pixel, place in load.pixels}

    def _offset(self, load: Load, row: int) -> Expr:
        if is_number(self.pitch):
            return row * self.row + load.first
        return (row * self.columns.size + load.column) * self.pitch + load.channel


@dataclass(frozen=True)
class Reader:
    """Goes through the tile of one image, and adds to the sums what it gives."""

    cut: WeightGradientCut
    axes: Axes
    x: Operand
    dy: Operand

    @classmethod
    def of(cls, cut: WeightGradientCut, axes: Axes, x: Any, dy: Any, *, channels: tuple[Expr, Expr]) -> Reader:
        """To be made by each thread: it has registers."""

        def operand(name: str, elements: Any, channels: Expr, depths: Expr, vector: int) -> Operand:
            loaded = Registers(name, vector, dtype=cut.workload.dtype)
            return Operand(
                name=name, elements=elements, channels=channels, depths=depths, channel_last=cut.channel_last,
                loaded=loaded,
            )  # fmt: skip

        return cls(
            cut,
            axes,
            operand("x", x, channels[0], axes.depths.inputs, cut.x_vector),
            operand("dy", dy, channels[1], axes.depths.outputs, cut.dy_vector),
        )

    def add_tile(self, sums: Registers, place: Place, tile: Tile) -> None:
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

    def _add_plane(self, sums: Registers, place: Place, tile: Tile, planes: tuple[Expr, Expr, Expr | None]) -> None:
        """``planes``: the image, that of dy, and that of x; None: there is no such plane."""
        cut, rows, columns = self.cut, self.axes.rows, self.axes.columns
        image, depth, x_depth = planes
        _, top, left = tile
        for step in serial("step", cut.tile_h // cut.unroll_h):
            row, column = keep("dy_row", top + step * cut.unroll_h), keep("dy_column", left)
            dy = self.dy.seen_from(
                Edge(origin=row, most=cut.last_row, size=rows.outputs, inside=cut.sure_dy_rows),
                Edge(origin=column, most=cut.last_column, size=columns.outputs, inside=1),
                image=image,
                depth=depth,
                channel=place.channel,
            )
            if x_depth is None:
                for each in range(cut.unroll_h):
                    self._gradient_row(sums, dy, each)
                continue
            x_row = keep("x_row", rows.origin(row) + place.kh * rows.step)
            last_x_row = rows.origin(cut.last_row) + (cut.kernel_rows - cut.group_kh) * rows.step
            x = self.x.seen_from(
                Edge(origin=x_row, most=last_x_row, size=rows.inputs, inside=cut.sure_rows),
                Edge(
                    origin=columns.origin(column),
                    most=columns.origin(cut.last_column),
                    size=columns.inputs,
                    inside=cut.sure_columns,
                ),
                image=image,
                depth=x_depth,
                channel=place.channel // cut.workload.multiplier,
            )
            self._add_rows(sums, x, dy)

    def _add_rows(self, sums: Registers, x: Source, dy: Source) -> None:
        """Straight code: the rows of x one by one, each with the rows of dy that it meets."""
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
                                tap = self.cut.sum_of(a, b)
                                for c in range(channel * multiplier, min((channel + 1) * multiplier, lanes)):
                                    sums[tap, c] = sums[tap, c] + value * gradient[row][out, c]
        if self.cut.workload.bias:
            for row in sorted(set(range(self.cut.unroll_h)) - gradient.keys()):  # those that meet padding alone
                self._gradient_row(sums, dy, row)

    def _gradient_row(self, sums: Registers, dy: Source, row: int) -> dict[Pixel, Expr]:
        """A row of dy, which the gradient of the bias sums up, too."""
        found: dict[Pixel, Expr] = {}
        for load in self.cut.dy_loads:
            found.update(dy.pixels(load, row=row, condition=all_of(dy.rows.has(row), dy.columns.has(load.column))))
        for (_, c), value in found.items() if self.cut.workload.bias else ():
            sums[self.cut.sum_of_bias, c] = sums[self.cut.sum_of_bias, c] + value
        return found
