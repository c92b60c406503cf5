"""The part of each thread in the NHWC gather kernels: which image, rows, columns and channels are a thread's."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dwconv.schedules.cuda.emit.words import blocks, flat, in_register, keep, threads
from dwconv.schedules.cuda.fprop_dgrad_nhwc.cut import AxisCut, ChannelsLastCut, ImageCut
from dwconv.schedules.emit import Expr, all_of, bind, ceil_div, divided, is_number, least, serial, when


@dataclass(frozen=True, kw_only=True)
class StripPlace:
    """Where a thread stands: its image and plane, and the first of its strips of rows, columns and channels."""

    image: Expr
    depth: Expr
    block_h: Expr
    """The first strip of rows in the block."""
    thread_h: Expr
    """The thread's, counted from there."""
    block_w: Expr
    thread_w: Expr
    block_c: Expr
    thread_c: Expr
    thread: Expr
    """The thread's number in the block."""

    @property
    def strip_c(self) -> Expr:
        return self.block_c + self.thread_c

    def has_channels(self, cut: ChannelsLastCut) -> Expr:
        return self.strip_c < cut.channels.strips if cut.channels.idle else True


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Where a strip is on rows or on columns."""

    axis: ImageCut
    first: Expr
    """Its first result."""
    origin: Expr
    """Where the inputs that it reads are counted from."""
    done: Expr = 0
    """How many results at its beginning are those of the strip before, since it was moved back."""

    @classmethod
    def of(cls, axis: ImageCut, strip: Expr) -> Stretch:
        if not axis.moves_back:
            return cls(axis=axis, first=strip * axis.tile, origin=strip * axis.step)
        down, own = axis.axis.down, strip * axis.parts
        first = in_register("first", least(own, ceil_div(axis.size, down) - axis.parts))
        return cls(
            axis=axis, first=first * down, origin=first * axis.axis.origin(down),
            done=in_register("done", (own - first) * down),
        )  # fmt: skip

    def in_parts(self) -> Iterator[Stretch]:
        narrow = self.axis.narrow
        for part in serial("part", self.axis.parts):
            first = self.first + part * narrow.tile
            with when(first < narrow.size if self.axis.parts > 1 else True):
                yield Stretch(axis=narrow, first=first, origin=self.origin + part * narrow.step)

    def has(self, out: Expr) -> Expr:
        tile, down = self.axis.tile, self.axis.axis.down
        numbers = (out, out) if isinstance(out, int) else (0, tile - 1)
        may_lack = self.axis.ragged and numbers[1] > (tile - down if self.axis.moves_back else 0)
        return all_of(
            out >= self.done if self.axis.moves_back and numbers[0] < tile - down else True,
            self.first + out < self.axis.size if may_lack else True,
        )


@dataclass(frozen=True, kw_only=True)
class Strip:
    """One strip of a thread."""

    cut: ChannelsLastCut
    """Of any size, one of two."""
    place: StripPlace
    rows: Stretch
    columns: Stretch
    w_in_block: Expr
    """Its number on columns, counted from the first strip of the block."""

    @property
    def origin(self) -> Element:
        cut, place = self.cut, self.place
        channel = place.strip_c * (cut.channels.tile * cut.gather.fan_in) // cut.gather.fan_out
        pixel = cut.gather.axes.index(0, self.rows.origin, self.columns.origin)
        number = flat((place.image, *pixel), cut.gather.axes.inputs)
        return Element.of("read", number, channel, channels=cut.gather.source_channels, lanes=cut.source_lanes)

    @property
    def first(self) -> Element:
        cut, place = self.cut, self.place
        lanes = cut.channels.tile
        pixel = cut.gather.axes.index(place.depth, self.rows.first, self.columns.first)
        number = flat((place.image, *pixel), cut.gather.axes.outputs)
        return Element.of("written", number, place.strip_c * lanes, channels=cut.gather.channels, lanes=lanes)


@dataclass(frozen=True, kw_only=True)
class Element:
    """An element of a pixel in an image of any size. In registers are the vectors before it: what is known of an index
    that is counted from there costs no instruction, and TVM sees that vectors are aligned."""

    vectors: Expr
    pitch: Expr
    """Vectors from a pixel to the next."""
    lanes: int

    @classmethod
    def of(cls, name: str, pixel: Expr, channel: Expr, *, channels: Expr, lanes: int) -> Element:
        lanes = math.gcd(channels, lanes) if is_number(channels) else lanes
        pitch = channels // lanes if is_number(channels) else keep("pitch", tirx.truncdiv(channels, lanes))
        vectors = in_register(f"{name}_at", pixel * pitch + channel // lanes)
        return cls(vectors=vectors, pitch=pitch, lanes=lanes)

    def after(self, name: str, pixels: Expr) -> Element:
        return replace(self, vectors=in_register(f"{name}_at", self.vectors + pixels * self.pitch))

    def number(self, pixels: Expr) -> Expr:
        return (self.vectors + pixels * self.pitch) * self.lanes


def places(cut: ChannelsLastCut, n: Expr) -> Iterator[StripPlace]:
    """All threads. Strips of channels are next to each other, in a block and from block to block; then columns."""
    rows, columns, channels = cut.rows, cut.columns, cut.channels
    for image, depth, block_h, block_w, block_c in _block_places(cut, n):
        for z in threads("thread_h", rows.threads, axis="z"):
            for y in threads("thread_w", columns.threads, axis="y"):
                for x in threads("thread_c", channels.threads, axis="x"):
                    yield StripPlace(
                        image=bind("image", image), depth=bind("depth", depth),
                        block_h=bind("block_h", block_h), thread_h=z,
                        block_w=bind("block_w", block_w), thread_w=y,
                        block_c=block_c, thread_c=x,
                        thread=(z * columns.threads + y) * channels.threads + x,
                    )  # fmt: skip


def _block_places(cut: ChannelsLastCut, n: Expr) -> Iterator[tuple[Expr, Expr, Expr, Expr, Expr]]:
    """(image, depth, the first strips of rows, of columns and of channels) of all blocks, in the same order at any
    size: there the axes of the grid save divisions by what is not known when compiling."""
    rows, columns, channels = cut.rows, cut.columns, cut.channels
    depths = cut.gather.depths.outputs
    if not columns.any_size:
        for block in blocks("block", n * (depths * rows.blocks * columns.blocks * channels.blocks)):
            rest = block // channels.blocks
            image, depth = divided(rest // (columns.blocks * rows.blocks), depths)
            block_h, block_w = _first_strip(rest // columns.blocks, rows), _first_strip(rest, columns)
            yield image, depth, block_h, block_w, _first_strip(block, channels)
        return
    for plane in blocks("plane", n * depths, axis="z"):
        for row in blocks("block_row", rows.blocks, axis="y"):
            for block in blocks("block", columns.blocks * channels.blocks):
                column, channel = divided(block, channels.blocks)  # of which the number is mostly known
                image, depth = divided(plane, depths)
                first = (row * rows.block_strips, column * columns.block_strips, channel * channels.block_strips)
                yield image, depth, *first


def strips(cut: ChannelsLastCut, place: StripPlace) -> Iterator[Strip]:
    """The strips of a thread, one for each virtual thread, one after the other: side by side, as TVM would have them,
    their sums would be indexed by what is not known when compiling, and leave the registers."""
    rows, columns = cut.rows, cut.columns
    for v in serial("vthread_w", columns.vthreads):
        h = bind("strip_h", place.block_h + place.thread_h)
        w = bind("strip_w", place.block_w + place.thread_w + v * columns.threads)
        in_block = v * columns.threads + place.thread_w
        with when(all_of(*[strip < axis.strips for axis, strip in ((rows, h), (columns, w)) if axis.idle])):
            if not cut.is_in_two:
                yield _strip(cut, place, (h, w), in_block)
                continue
            sizes = [axis.size > axis.tile - axis.axis.down for axis in (rows, columns) if axis.parts > 1]
            with T.If(all_of(*sizes)):
                with T.Then():
                    yield _strip(cut.wide, place, (h, w), in_block)
                with T.Else():
                    for part_h in Stretch.of(rows, h).in_parts():
                        for part_w in Stretch.of(columns, w).in_parts():
                            yield Strip(cut=cut.narrow, place=place, rows=part_h, columns=part_w, w_in_block=in_block)


def _strip(cut: ChannelsLastCut, place: StripPlace, numbers: tuple[Expr, Expr], w_in_block: Expr) -> Strip:
    rows, columns = (Stretch.of(axis, strip) for axis, strip in zip((cut.rows, cut.columns), numbers, strict=True))
    return Strip(cut=cut, place=place, rows=rows, columns=columns, w_in_block=w_in_block)


def _first_strip(block: Expr, axis: AxisCut) -> Expr:
    return block % axis.blocks * axis.block_strips if axis.blocks > 1 else 0
