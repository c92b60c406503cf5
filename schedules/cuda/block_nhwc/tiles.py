"""The convolution's blocks of threads: what they own, what they hold in shared memory, and what a thread sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from dwconv.schedules.cuda.block_nhwc.channels import Factors, Table
from dwconv.schedules.cuda.block_nhwc.cut import TABLE_ROWS, BlockCut, TileAxis
from dwconv.schedules.cuda.block_nhwc.sums import Mates, VectorPlace
from dwconv.schedules.cuda.emit.words import (
    Registers,
    blocks,
    blocks_per_sm,
    in_float32,
    in_register,
    in_turns,
    shared,
    span,
    threads,
    turns,
    zero,
)
from dwconv.schedules.cuda.gpu.hardware import STATIC_SHARED_BYTES
from dwconv.schedules.emit import Expr, all_of, divided, inside, least, serial, store, when


@dataclass(frozen=True, kw_only=True)
class ThreadTile:
    """A block's tile of an image, and a thread's part of it."""

    cut: BlockCut
    patch: Expr
    """The first pixel of the image of which the patch is."""
    patch_top: Expr
    patch_left: Expr
    top: Expr
    """The thread's first row; so is the next."""
    left: Expr
    first: Expr
    """Its first result, among all pixels of all images."""
    vector: Expr

    def exists(self, row: int, column: int) -> Expr:
        rows, columns = self.cut.rows, self.cut.columns
        return all_of(
            self.top + row < rows.axis.outputs if rows.ragged else True,
            self.left + column < columns.axis.outputs if columns.ragged else True,
        )

    def at(self, row: int, column: int) -> Expr:
        pixel = self.first + (row * self.cut.columns.axis.outputs + column)
        return pixel * self.cut.workload.channels + self.vector * self.cut.vector_c


@dataclass(frozen=True, kw_only=True)
class TilePlace(VectorPlace):
    """It owns one of the block's tiles."""

    share: Expr
    block_w: Expr
    """Which of the blocks side by side on columns."""
    block_c: Expr
    strip: Expr

    @property
    def part(self) -> Expr:
        return self.share * self.cut.columns.tiles + self.block_w

    @property
    def thread(self) -> tuple[Expr, Expr]:
        return divided(self.strip, self.cut.threads_w)

    @property
    def mates(self) -> Mates:
        return self.mates_of(self.strip, self.cut.strips)

    def tiles(self, n: Expr) -> Iterator[ThreadTile]:
        cut, rows, columns = self.cut, self.cut.rows, self.cut.columns
        (thread_h, thread_w), down = self.thread, self.cut.rows.tiles
        all_tiles = in_register("tiles", n * down)
        each = in_register("each", tirx.truncdiv(all_tiles + (cut.split - 1), cut.split))
        start = in_register("start", least(self.share * each, all_tiles))
        own_left = in_register("left", self.block_w * columns.block + thread_w * cut.tile_w)
        patch_left = in_register("patch_left", self.block_w * columns.block_step + columns.spanned[0])
        for turn in serial("turn", in_register("turns", least(each, all_tiles - start))):
            number = in_register("number", start + turn)
            image = in_register("image", tirx.truncdiv(number, down)) if down > 1 else number
            block_h = in_register("block_h", number - image * down) if down > 1 else 0
            top = in_register("top", block_h * rows.block + thread_h * cut.tile_h)
            yield ThreadTile(
                cut=cut,
                patch=image * (rows.axis.inputs * columns.axis.inputs),
                patch_top=in_register("patch_top", block_h * rows.block_step + rows.spanned[0]),
                patch_left=patch_left,
                top=top,
                left=own_left,
                first=in_register("result", (image * rows.axis.outputs + top) * columns.axis.outputs + own_left),
                vector=self.vector,
            )


def tile_places(cut: BlockCut) -> Iterator[TilePlace]:
    for block in blocks("block", cut.tile_blocks):
        for y in threads("strip", cut.strips, axis="y"):
            for x in threads("lane", cut.threads_c):
                with blocks_per_sm(cut.blocks_per_sm):
                    part, block_c = divided(block, cut.channel_blocks)
                    share, block_w = divided(part, cut.columns.tiles)
                    yield TilePlace(
                        cut=cut,
                        share=share,
                        block_w=block_w,
                        block_c=block_c,
                        strip=y,
                        thread_c=x,
                        vector=in_register("vector", block_c * cut.threads_c + x),
                    )


@dataclass(frozen=True, kw_only=True)
class StagedValues:
    """What a thread is about to put into the patch: values of images, and the row and column that they are of."""

    values: Registers
    pixel: Registers


@dataclass(frozen=True, kw_only=True)
class SharedMemory:
    """Of a block: the patch, the weights of its channels with channels innermost, and the factors of its norms."""

    place: TilePlace
    patch: Any
    weights: Any
    table: Any
    read_from: Expr
    """The vector of the patch at the origin of the thread's tile."""

    @classmethod
    def of(cls, place: TilePlace, *, last_rows: Sequence[str]) -> SharedMemory:
        """``last_rows``: of the table, those of the last norm."""
        cut = place.cut
        unused = (TABLE_ROWS - len(last_rows)) * cut.block_channels
        thread_h, thread_w = place.thread
        pixel = thread_h * (cut.rows.step * cut.columns.spanned[1]) + thread_w * cut.columns.step
        return cls(
            place=place,
            read_from=in_register("read_from", pixel * cut.threads_c + place.thread_c),
            # Alone in what is dynamic, which TVM takes for one array: it would have all threads wait between reading
            # the table and writing the patch, and some of them are not there.
            patch=shared(
                "patch", cut.patch_elements, dtype=cut.patch_dtype, dynamic=cut.shared_bytes > STATIC_SHARED_BYTES
            ),
            weights=shared("weights", cut.weight_words),
            table=shared("table", cut.table_words - unused) if cut.table_words else None,
        )

    def table_of(self, number: int, rows: Sequence[str]) -> Table:
        cut = self.place.cut
        return Table(
            memory=self.table,
            first=number * TABLE_ROWS,
            channels=cut.block_channels,
            lanes=cut.vector_c,
            rows=tuple(rows),
        )

    def fill_table(self, table: Table, factors: Callable[[Expr], Factors]) -> None:
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
                store(self.weights, in_float32(w[first + at]), at % cut.taps * cut.weight_pitch + at // cut.taps)

    def stage(
        self, tile: ThreadTile, images: Sequence[Any], prepare: Callable[[], Callable[[Sequence[Expr], int], Expr]]
    ) -> None:
        """The patch of a tile, from ``images`` of what the convolution reads. ``prepare`` gives what makes a value of
        theirs in a lane."""
        cut, place = self.place.cut, self.place
        rows, columns, lanes = cut.rows, cut.columns, cut.vector_c

        def there(pixel: Registers) -> Expr:
            return all_of(
                inside(pixel[0], rows.axis.inputs) if rows.reads_padding else True,
                inside(pixel[1], columns.axis.inputs) if columns.reads_padding else True,
            )

        def fetch(held: StagedValues, item: Expr) -> Expr:
            pixel = held.pixel
            row, column = divided(item, columns.spanned[1])
            pixel[0], pixel[1] = tile.patch_top + row, tile.patch_left + column
            number = tile.patch + pixel[0] * columns.axis.inputs + pixel[1]
            at = span(number * cut.workload.channels + place.channel, lanes)
            for number, image in enumerate(images):
                value = image[at]
                if (is_there := there(pixel)) is not True:
                    value = tirx.if_then_else(is_there, value, zero(image.dtype, lanes))
                held.values.put((number, 0), value, lanes=lanes)
            return item

        def put(held: StagedValues, item: Expr) -> None:
            at = (item * cut.threads_c + place.thread_c) * lanes
            if cut.copies_patch:
                held.values.save((0, 0), self.patch, at, lanes=lanes)
                return
            made = Registers("made", lanes)
            if (is_there := there(held.pixel)) is not True:
                made.clear()  # the padding is around what the norm and the activation make
            with when(is_there):
                for lane in range(lanes):
                    made[lane] = made_of(
                        [held.values.in_float32((number, lane)) for number in range(len(images))], lane
                    )
            made.save(0, self.patch, at, lanes=lanes)

        with when(place.has_channels):
            made_of = prepare()
            in_turns(
                cut.patch_pixels,
                thread=place.strip,
                threads=cut.strips,
                most=cut.staged_ahead,
                value=lambda: StagedValues(
                    values=Registers("staged", len(images), lanes, dtype=cut.workload.dtype),
                    pixel=Registers("pixel", 2, dtype="int32"),
                ),
                fetch=fetch,
                keep=put,
            )

    # -- what a thread reads of it ---------------------------------------------------------------------------------

    def row(self, values: Registers, at: int) -> dict[int, int]:
        """The inputs that the thread's tile reads in row ``at``, counted from its origin; (column offset: slot)."""
        cut, lanes = self.place.cut, self.place.cut.vector_c
        slots = {column: slot for slot, column in enumerate(cut.columns.reads)}
        row = (at - cut.rows.spanned[0]) * cut.columns.spanned[1]
        loaded = Registers("loaded", *values.sizes, dtype=cut.patch_dtype) if cut.copies_patch else values
        for column, slot in slots.items():
            pixel = row + column - cut.columns.spanned[0]
            loaded.load((slot, 0), self.patch, (self.read_from + pixel * cut.threads_c) * lanes, lanes=lanes)
            if cut.copies_patch:
                for lane in range(lanes):
                    values[slot, lane] = loaded.in_float32((slot, lane))
        return slots

    def weights_of_row(self, loaded: Registers, kh: int) -> None:
        cut, lanes = self.place.cut, self.place.cut.vector_c
        for kw in range(cut.columns.axis.taps):
            at = (kh * cut.columns.axis.taps + kw) * cut.weight_pitch + self.place.thread_c * lanes
            loaded.load((kw, 0), self.weights, at, lanes=lanes)


def row_values(columns: TileAxis, lanes: int) -> Registers:
    return Registers("value", max(1, len(columns.reads)), lanes)
