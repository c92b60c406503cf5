"""The part of each thread in the NHWC gather kernels: which image, rows, columns and channels are a thread's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dwconv.schedules.cuda.channels_last.cut import AxisCut, Cut
from dwconv.schedules.cuda.emit.words import blocks, threads
from dwconv.schedules.emit import Expr, all_of, bind, divided, serial


@dataclass(frozen=True, kw_only=True)
class Place:
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

    def has_channels(self, cut: Cut) -> Expr:
        """Whether there are channels for the thread; True where none is idle."""
        return self.strip_c < cut.channels.strips if cut.channels.idle else True


@dataclass(frozen=True, kw_only=True)
class Strip:
    """One strip of a thread."""

    place: Place
    h: Expr
    w: Expr
    """Numbers of the strip on rows and on columns."""
    v: Expr
    """The virtual thread that it belongs to."""

    def exists(self, cut: Cut) -> Expr:
        owned = ((cut.rows, self.h), (cut.columns, self.w))
        return all_of(*[strip < axis.strips for axis, strip in owned if axis.idle])

    def w_in_block(self, cut: Cut) -> Expr:
        """Counted from the first strip of the block."""
        return self.v * cut.columns.threads + self.place.thread_w


def places(cut: Cut, n: Expr) -> Iterator[Place]:
    """All threads. Strips of channels are next to each other, in a block and from block to block; then columns."""
    rows, columns, channels = cut.rows, cut.columns, cut.channels
    depths = cut.gather.depths.outputs
    for block in blocks("block", n * (depths * rows.blocks * columns.blocks * channels.blocks)):
        for z in threads("thread_h", rows.threads, axis="z"):
            for y in threads("thread_w", columns.threads, axis="y"):
                for x in threads("thread_c", channels.threads, axis="x"):
                    rest = block // channels.blocks
                    image, depth = divided(rest // (columns.blocks * rows.blocks), depths)
                    yield Place(
                        image=bind("image", image), depth=bind("depth", depth),
                        block_h=bind("block_h", _first_strip(rest // columns.blocks, rows)), thread_h=z,
                        block_w=bind("block_w", _first_strip(rest, columns)), thread_w=y,
                        block_c=_first_strip(block, channels), thread_c=x,
                        thread=(z * columns.threads + y) * channels.threads + x,
                    )  # fmt: skip


def strips(cut: Cut, place: Place) -> Iterator[Strip]:
    """The strips of a thread, one for each virtual thread, one after the other: side by side, as TVM would have them,
    their sums would be indexed by what is not known when compiling, and leave the registers."""
    for v in serial("vthread_w", cut.columns.vthreads):
        w = place.block_w + place.thread_w + v * cut.columns.threads
        yield Strip(place=place, h=bind("strip_h", place.block_h + place.thread_h), w=bind("strip_w", w), v=v)


def _first_strip(block: Expr, axis: AxisCut) -> Expr:
    """The first strip of a block, given its number on this axis and those above."""
    return block % axis.blocks * axis.block_strips if axis.blocks > 1 else 0
