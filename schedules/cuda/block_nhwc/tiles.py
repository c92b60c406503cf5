"""The convolution's blocks of threads: what they own, what they hold in shared memory, and what a thread sums.

    image of results            a block's tile              patch in shared memory: what the tile reads, with
    ┌──────┬──────┬──────┐      ┌──────┬──────┐ tile_h      ┌───────────────┐  its halo, after the norm and the
    │ part │      │      │      │ t 0  │ t 1  │             │ 0 0 0 0 0 0 0 │  activation before the convolution;
    │  │   │  …   │  …   │  ──► ├──────┼──────┤        ──►  │ 0 ▒ ▒ ▒ ▒ ▒ ▒ │  zeros where there is padding
    │  ▼   │      │      │      │ t 2  │ t 3  │             │ 0 ▒ ▒ ▒ ▒ ▒ ▒ │
    └──────┴──────┴──────┘      └──────┴──────┘ × threads_c └───────────────┘
    down the images                     tile_w
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from dwconv.schedules.cuda.block_nhwc.channels import Factors, Table
from dwconv.schedules.cuda.block_nhwc.cut import AHEAD, TABLE_ROWS, Cut, TileAxis
from dwconv.schedules.cuda.block_nhwc.sums import Mates
from dwconv.schedules.cuda.emit.in_turns import in_turns
from dwconv.schedules.cuda.emit.words import (
    Registers,
    blocks,
    blocks_per_sm,
    shared,
    span,
    threads,
    turns,
    zero,
)
from dwconv.schedules.cuda.gpu.hardware import STATIC_SHARED_BYTES
from dwconv.schedules.emit import Expr, all_of, bind, inside, least, serial, store, when


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A block's tile of an image."""

    image: Expr
    top: Expr
    left: Expr


@dataclass(frozen=True, kw_only=True)
class TilePlace:
    """A thread: its vector of channels, and which of the block's tiles it owns."""

    cut: Cut
    share: Expr
    block_w: Expr
    """Which of the blocks side by side on columns."""
    block_c: Expr
    strip: Expr
    thread_c: Expr

    @property
    def part(self) -> Expr:
        return self.share * self.cut.columns.tiles + self.block_w

    @property
    def vector(self) -> Expr:
        return self.block_c * self.cut.threads_c + self.thread_c

    @property
    def channel(self) -> Expr:
        return self.vector * self.cut.vector_c

    @property
    def has_channels(self) -> Expr:
        return self.vector < self.cut.vectors if self.cut.idle_channels else True

    @property
    def thread_h(self) -> Expr:
        return self.strip // self.cut.threads_w if self.cut.threads_w > 1 else self.strip

    @property
    def thread_w(self) -> Expr:
        return self.strip % self.cut.threads_w if self.cut.threads_w > 1 else 0

    @property
    def mates(self) -> Mates:
        cut = self.cut
        return Mates(number=self.strip, count=cut.strips, thread_c=self.thread_c, threads_c=cut.threads_c)

    def tiles(self, n: Expr) -> Iterator[Tile]:
        """A loop over those of the block's part."""
        down = self.cut.rows.tiles
        all_tiles = n * down
        each = bind("each", tirx.truncdiv(all_tiles + (self.cut.split - 1), self.cut.split))
        first = bind("first", least(self.share * each, all_tiles))
        for turn in serial("turn", least(each, all_tiles - first)):
            number = bind("number", first + turn)
            yield Tile(
                image=bind("image", number // down),
                top=bind("top", number % down * self.cut.rows.block if down > 1 else 0),
                left=bind("left", self.block_w * self.cut.columns.block if self.cut.columns.tiles > 1 else 0),
            )

    def row(self, tile: Tile, row: int) -> Expr:
        """Row ``row`` of the thread's tile, among those of the image; so is the next."""
        return tile.top + (self.thread_h * self.cut.tile_h + row)

    def column(self, tile: Tile, column: int) -> Expr:
        return tile.left + (self.thread_w * self.cut.tile_w + column)

    def exists(self, tile: Tile, row: int, column: int) -> Expr:
        """Whether the image has such a result; True where all have."""
        rows, columns = self.cut.rows, self.cut.columns
        return all_of(
            self.row(tile, row) < rows.axis.outputs if rows.ragged else True,
            self.column(tile, column) < columns.axis.outputs if columns.ragged else True,
        )

    def result_at(self, tile: Tile, row: int, column: int) -> Expr:
        """The thread's vector there, in an image of results in one axis."""
        axes, channels = self.cut.axes, self.cut.workload.channels
        pixel = (tile.image * axes.rows.outputs + self.row(tile, row)) * axes.columns.outputs + self.column(
            tile, column
        )
        return span(pixel * channels + self.channel, self.cut.vector_c)


def tile_places(cut: Cut) -> Iterator[TilePlace]:
    """All threads: those of neighbouring channels side by side."""
    for block in blocks("block", cut.tile_blocks):
        for y in threads("strip", cut.strips, axis="y"):
            for x in threads("lane", cut.threads_c):
                with blocks_per_sm(cut.blocks_per_sm):
                    part = block // cut.channel_blocks
                    yield TilePlace(
                        cut=cut,
                        share=bind("share", part // cut.columns.tiles),
                        block_w=bind("block_w", part % cut.columns.tiles if cut.columns.tiles > 1 else 0),
                        block_c=bind("block_c", block % cut.channel_blocks if cut.channel_blocks > 1 else 0),
                        strip=y,
                        thread_c=x,
                    )


@dataclass(frozen=True, kw_only=True)
class SharedMemory:
    """Of a block: the patch, the weights of its channels with channels innermost, and the factors of its norms."""

    place: TilePlace
    patch: Any
    weights: Any
    table: Any

    @classmethod
    def of(cls, place: TilePlace) -> SharedMemory:
        cut = place.cut
        dynamic = cut.shared_bytes > STATIC_SHARED_BYTES

        def part(name: str, words: int) -> Any:
            return shared(name, words, dynamic=dynamic) if words else None

        return cls(
            place=place,
            patch=part("patch", cut.patch_words),
            weights=part("weights", cut.weight_words),
            table=part("table", cut.table_words),
        )

    def table_of(self, number: int, rows: Sequence[str]) -> Table:
        """A place for the factors of the ``number``-th norm that there is."""
        cut = self.place.cut
        return Table(
            memory=self.table,
            first=number * TABLE_ROWS,
            channels=cut.block_channels,
            lanes=cut.vector_c,
            rows=tuple(rows),
        )

    def fill_table(self, table: Table, factors: Callable[[Expr], Factors]) -> None:
        """The first threads of all channels do it."""
        with when(all_of(self.place.strip == 0 if self.place.cut.strips > 1 else True, self.place.has_channels)):
            table.fill(factors(self.place.channel), self.place.thread_c)

    def stage_weights(self, w: Any) -> None:
        """``w``: (C · taps) in one axis. Neighbouring threads fetch neighbouring words."""
        cut, place = self.place.cut, self.place
        words = cut.block_channels * cut.taps
        thread = place.strip * cut.threads_c + place.thread_c
        first = place.block_c * words
        for turn in turns("turn", -(-words // cut.tile_threads)):
            at = turn * cut.tile_threads + thread
            there = [
                at < words if words % cut.tile_threads else True,
                first + at < cut.workload.channels * cut.taps if cut.idle_channels else True,
            ]
            with when(all_of(*there)):
                store(self.weights, w[first + at], at % cut.taps * cut.weight_pitch + at // cut.taps)

    def stage(
        self,
        tile: Tile,
        images: Sequence[Any],
        prepare: Callable[[], Callable[[Sequence[Expr], int], Expr]],
    ) -> None:
        """The patch of a tile, from ``images`` of what the convolution reads. ``prepare`` gives what makes a value of
        theirs in a lane."""
        cut, place = self.place.cut, self.place
        rows, columns, lanes = cut.rows, cut.columns, cut.vector_c
        top, left = (
            bind(name, axis.axis.origin(start) + axis.spanned[0])
            for name, axis, start in (("patch_top", rows, tile.top), ("patch_left", columns, tile.left))
        )
        across = columns.spanned[1]
        base = tile.image * (rows.axis.inputs * columns.axis.inputs)

        def position(item: Expr) -> tuple[Expr, Expr, Expr]:
            row, column = top + item // across, left + item % across
            there = [
                inside(at, axis.axis.inputs) if axis.reads_padding else True
                for at, axis in ((row, rows), (column, columns))
            ]
            return row, column, all_of(*there)

        def fetch(held: Registers, item: Expr) -> Expr:
            row, column, there = position(item)
            pixel = base + row * columns.axis.inputs + column
            at = span(pixel * cut.workload.channels + place.channel, lanes)
            for number, image in enumerate(images):
                value = image[at]
                if there is not True:
                    value = tirx.if_then_else(there, value, zero("float32", lanes))
                held.put((number, 0), value, lanes=lanes)
            return item

        made_of = prepare()

        def keep(held: Registers, item: Expr) -> None:
            there = position(item)[2]
            made = Registers("made", lanes)
            for lane in range(lanes):
                value = made_of([held[number, lane] for number in range(len(images))], lane)
                # The padding is around what the norm and the activation have made.
                made[lane] = value if there is True else tirx.Select(there, value, zero("float32"))
            at = span(item * cut.block_channels + place.thread_c * lanes, lanes)
            store(self.patch, made.vector(0, lanes), at)

        with when(place.has_channels):
            in_turns(
                cut.patch_pixels,
                thread=place.strip,
                threads=cut.strips,
                most=AHEAD,
                value=lambda: Registers("staged", len(images), lanes),
                fetch=fetch,
                keep=keep,
            )

    # -- what a thread reads of it ---------------------------------------------------------------------------------

    def row(self, values: Registers, at: int) -> dict[int, int]:
        """The inputs that the thread's tile reads in row ``at``, counted from its origin; (column offset: slot)."""
        cut, place, lanes = self.place.cut, self.place, self.place.cut.vector_c
        slots = {column: slot for slot, column in enumerate(cut.columns.reads)}
        across = cut.columns.spanned[1]
        row = place.thread_h * cut.rows.step + (at - cut.rows.spanned[0])
        for column, slot in slots.items():
            pixel = row * across + (place.thread_w * cut.columns.step + (column - cut.columns.spanned[0]))
            value = self.patch[span(pixel * cut.block_channels + place.thread_c * lanes, lanes)]
            values.put((slot, 0), value, lanes=lanes)
        return slots

    def weights_of_row(self, loaded: Registers, kh: int) -> None:
        cut, lanes = self.place.cut, self.place.cut.vector_c
        for kw in range(cut.columns.axis.taps):
            at = (kh * cut.columns.axis.taps + kw) * cut.weight_pitch + self.place.thread_c * lanes
            loaded.put((kw, 0), self.weights[span(at, lanes)], lanes=lanes)


def row_values(columns: TileAxis, lanes: int) -> Registers:
    """For the inputs that a thread's tile reads in a row."""
    return Registers("value", max(1, len(columns.reads)), lanes)
