"""The words for tensor cores: threads bring maps to shared memory, a warp loads and multiplies matrices.

columns of B   n = lane / 4                     a lane holds
             ┌───────────┐                      A: rows lane / 4 and lane / 4 + 8, of each unit of 8 columns
             │     B     │ k                       2 words with columns lane % 4 · 2 and the next
rows of A    └───────────┘                      B: column lane / 4, of each unit of 8 rows a word with
┌─────────┐  ┌───────────┐                         rows lane % 4 · 2 and the next
│ A     k │  │   sums    │ lane / 4, + 8        sums: rows lane / 4, lane / 4 + 8, of each
└─────────┘  └───────────┘                         columns lane % 4 · 2 and the next
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dwconv.problems.workload import DType
from dwconv.schedules.cuda.emit.words import Registers, copy_async, in_register, span, turns, unrolled
from dwconv.schedules.cuda.gpu.hardware import LEAST_COPY_BYTES, VECTOR_BYTES
from dwconv.schedules.cuda.gpu.tensor_cores import (
    MULTIPLIED,
    PIXELS,
    UNIT,
    BlockMaps,
    Sharing,
    StagedMaps,
    WaitingPixels,
)
from dwconv.schedules.emit import Expr, all_of, inside, store, when


def load_matrices(into: Sequence[Expr], source: Any, at: Expr, *, transposed: bool = False) -> None:
    """Matrices of 8 rows of 8 elements from shared memory, one for each word of ``into``. Lane 8 · m + r says at which
    element row r of the m-th begins, a whole vector; further lanes may say anything. ``transposed``: rows become
    columns."""
    load_matrices_at(into, source.access_ptr("r", offset=at, extent=UNIT), transposed=transposed)


def load_matrices_at(into: Sequence[Expr], address: Expr, *, transposed: bool = False) -> None:
    """Loads matrices from an address, which may be a number that ``start_of`` has given."""
    load = T.ptx.ldmatrix.sync.aligned.m8n8
    load = {1: load.x1, 2: load.x2, 4: load.x4}[len(into)]
    load = load.trans if transposed else load
    T.evaluate(load.shared.b16(*into, address))


def in_powers(count: int, *, most: int) -> Iterator[tuple[int, int]]:
    """(first, how many) of matrices that are loaded together: as many as can be, a power of two."""
    first = 0
    while first < count:
        together = most
        while together > count - first:
            together //= 2
        yield first, together
        first += together


def multiply_add(sums: Sequence[Expr], a: Sequence[Expr], b: Sequence[Expr], *, dtype: DType) -> None:
    """sums += A · B, of one unit or of two: two words of A each, and one of B."""
    shape = {1: T.ptx.mma.sync.aligned.m16n8k8, 2: T.ptx.mma.sync.aligned.m16n8k16}[len(b)]
    kind = MULTIPLIED[dtype]
    T.evaluate(getattr(getattr(shape.row.col.f32, kind), kind).f32(*sums, *a, *b, *sums))


# -- maps in shared memory -----------------------------------------------------------------------------------------


def shared_out(sharing: Sharing, thread: Expr) -> Iterator[tuple[Expr, Expr]]:
    across, down = sharing.across, sharing.down
    first = in_register("first_row", thread // across)
    with when(down * across == sharing.threads or first < down):
        for part in turns("part", sharing.parts):
            vector = in_register("vector", thread % across + part * across)
            with when(sharing.vectors % across == 0 or vector < sharing.vectors):
                for turn in turns("turn", sharing.turns):
                    row = in_register("row", turn * down + first)
                    with when(sharing.rows % down == 0 or row < sharing.rows):
                        yield row, vector


@dataclass(frozen=True, kw_only=True)
class MovingThreads:
    """Threads that bring what a block has of some images into shared memory, or out of it."""

    thread: Expr
    threads: int
    first_image: Expr
    channel: Expr
    """Of the maps; of pixels the first."""
    exists: Callable[..., Expr]
    """Whether the batch has that image of the block, and the layer the channel; of pixels, (image, number of a vector
    of channels)."""


@dataclass(frozen=True, kw_only=True)
class Maps:
    """The maps of one channel in shared memory."""

    held: StagedMaps
    staged: Any
    """Shared memory."""
    first: Expr
    """Where they begin in it."""
    top: Expr
    """The row of the map from which ``held.rows`` are counted; and the column for ``held.units``."""
    left: Expr

    def row(self, image: Expr, row: Expr) -> Expr:
        return self.first + (image * self.held.image_units + row * self.held.row_units) * UNIT

    def row_of_matrix(self, m: Expr) -> Expr:
        """Where row m of a matrix begins, in the first row of each strip."""
        tiles, strips = self.held.tiles, self.held.strips
        strip, unit = (m // tiles, m % tiles * UNIT) if tiles > 1 else (m, 0)
        return self.row(strip // strips, strip % strips * self.held.tile_h) + unit

    def copy(self, source: Any, movers: MovingThreads) -> None:
        """Copies the rows from global memory, zeros where there is nothing, and into the pad after each: then
        neighbouring threads write neighbouring words."""
        held, lanes, dtype = self.held, self.held.lanes, source.dtype
        for row, vector in shared_out(held.sharing(movers.threads), movers.thread):
            source_row = self.top + (row + held.rows.start)
            column = self.left + (vector * lanes + held.units.start * UNIT)
            is_inside = all_of(inside(source_row, held.height), inside(column, held.width))
            for image in unrolled("image", held.images):
                at, there = self.row(image, row) + vector * lanes, all_of(is_inside, movers.exists(image))
                indices = (movers.first_image + image, movers.channel, source_row)
                if lanes * VECTOR_BYTES // UNIT >= LEAST_COPY_BYTES:
                    copy_async(self.staged, at, source, *indices, column, elements=lanes, valid=there)
                    continue
                value = Registers.zeros("value", lanes, dtype=dtype)
                with when(there):
                    value.put(0, source[(*indices, span(column, lanes))], lanes=lanes)
                store(self.staged, value.vector(0, lanes), span(at, lanes))


class Pair(NamedTuple):
    """Two pixels side by side, of one vector of channels."""

    row: Expr
    """Of those that are held."""
    number: Expr
    """In the row."""
    group: Expr
    """Which vector of channels."""
    source_row: Expr
    column: Expr


@dataclass(frozen=True, kw_only=True)
class PixelMaps(Maps):
    """The maps of a block's channels in shared memory, of tensors whose channels come last. A thread has two pixels
    side by side, of 8 channels each:

        pixel 0   a b c d e f g h            map a   … a A …
        pixel 1   A B C D E F G H     ◄─►    map b   … b B …     a word of each map
    """

    planes: BlockMaps

    def copy(self, source: Any, movers: MovingThreads) -> None:
        """Copies the rows from global memory, (n, H, W, C), zeros where there is nothing, and what comes next into the
        pad after each."""
        for pair in self._pairs(movers, with_pads=True):
            for image in unrolled("image", self.held.images):
                pixels = Registers.zeros("pixel", PIXELS, UNIT, dtype=source.dtype)
                for numbers, is_inside in self._inside(pair):
                    with when(all_of(is_inside, movers.exists(image, pair.group))):
                        for number in numbers:
                            pixels.put((number, 0), source[self._index(movers, image, pair, number)], lanes=UNIT)
                words = Registers("word", UNIT, PIXELS, dtype=source.dtype)
                for channel in range(UNIT):
                    for number in range(PIXELS):
                        words[channel, number] = pixels[number, channel]
                    store(self.staged, words.vector((channel, 0), PIXELS), self._word(pair, image, channel))

    def take_apart(self, waiting: Waiting, *, warp: Expr, warps: int, lane: Expr) -> None:
        """Takes pixels that wait in shared memory apart into maps, by warps: 8 of them with a vector of channels are a
        matrix, whose columns are loaded. What is beside the map has to be zero already."""
        held, laid, planes = self.held, waiting.laid, self.planes
        for row, group in shared_out(laid.sharing_of_warps(warps), warp):
            loaded = waiting.first + group * laid.group_elements + row * laid.row_elements + lane * UNIT
            loaded = in_register("loaded", loaded)
            stored = self.first + group * planes.group_elements + lane // 4 * planes.elements + lane % 4 * PIXELS
            unit = laid.units.start - held.units.start
            row = row + (laid.rows.start - held.rows.start)
            stored = in_register("stored", stored + (row * held.row_units + unit) * UNIT)
            for image in unrolled("image", held.images):
                for unit, count in in_powers(len(laid.units), most=4):
                    words = Registers("word", count, dtype="uint32")
                    at = loaded + image * laid.image_elements + unit * (UNIT * UNIT)
                    load_matrices_at([words[each] for each in range(count)], waiting.address(at), transposed=True)
                    for each in range(count):
                        at = stored + (image * held.image_units + unit + each) * UNIT
                        store(self.staged, tirx.reinterpret(f"{self.staged.dtype}x2", words[each]), span(at, PIXELS))

    def write(self, result: Any, movers: MovingThreads) -> None:
        for pair in self._pairs(movers, with_pads=False):
            for image in unrolled("image", self.held.images):
                with when(movers.exists(image, pair.group)):
                    words = Registers("word", UNIT, PIXELS, dtype=result.dtype)
                    pixels = Registers("pixel", PIXELS, UNIT, dtype=result.dtype)
                    for channel in range(UNIT):
                        words.put((channel, 0), self.staged[self._word(pair, image, channel)], lanes=PIXELS)
                        for number in range(PIXELS):
                            pixels[number, channel] = words[channel, number]
                    for numbers, is_inside in self._inside(pair):
                        with when(is_inside):
                            for number in numbers:
                                at = self._index(movers, image, pair, number)
                                store(result, pixels.vector((number, 0), UNIT), *at)

    def _index(self, movers: MovingThreads, image: Expr, pair: Pair, number: int) -> tuple[Expr, ...]:
        """Of the vector of one of the two in a tensor."""
        channels = span(movers.channel + pair.group * UNIT, UNIT)
        return movers.first_image + image, pair.source_row, pair.column + number, channels

    def _pairs(self, movers: MovingThreads, *, with_pads: bool) -> Iterator[Pair]:
        held, groups = self.held, self.planes.groups
        sharing = held.sharing_of_pixels(movers.threads, groups=groups, with_pads=with_pads)
        for row, vector in shared_out(sharing, movers.thread):
            pair = vector // groups if groups > 1 else vector
            yield Pair(
                row=row,
                number=pair,
                group=vector % groups if groups > 1 else 0,
                source_row=self.top + (row + held.rows.start),
                column=self.left + (pair * PIXELS + held.units.start * UNIT),
            )

    def _inside(self, pair: Pair) -> Iterator[tuple[Sequence[int], Expr]]:
        """Which of the two are tested together, and whether they are pixels of the map."""
        held = self.held
        together = held.width % PIXELS == held.offset % PIXELS == 0
        for numbers in [range(PIXELS)] if together else [[number] for number in range(PIXELS)]:
            yield numbers, all_of(inside(pair.source_row, held.height), inside(pair.column + numbers[0], held.width))

    def _word(self, pair: Pair, image: Expr, channel: int) -> Expr:
        held, planes = self.held, self.planes
        row = (image * held.image_units + pair.row * held.row_units) * UNIT + pair.number * PIXELS
        return span(self.first + pair.group * planes.group_elements + channel * planes.elements + row, PIXELS)


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Pixels in shared memory, whole vectors of channels, until they are taken apart."""

    laid: WaitingPixels
    staged: Any
    """Shared memory."""
    start: Expr
    """Its address."""
    first: Expr
    """Where they begin in it."""
    top: Expr
    """The row of the map from which the rows that are held are counted."""

    def copy(self, source: Any, movers: MovingThreads) -> None:
        laid, held = self.laid, self.laid.held
        for row, vector in shared_out(laid.sharing(movers.threads), movers.thread):
            group, place = vector % laid.groups, vector // laid.groups
            source_row, column = self.top + (row + laid.rows.start), place + (laid.units.start * UNIT - held.offset)
            is_inside = all_of(inside(source_row, held.height), inside(column, held.width))
            at = self.first + group * laid.group_elements + row * laid.row_elements + place * UNIT
            for image in unrolled("image", held.images):
                indices = (movers.first_image + image, source_row, column, movers.channel + group * UNIT)
                valid = all_of(is_inside, movers.exists(image, group))
                copy_async(self.staged, at + image * laid.image_elements, source, *indices, elements=UNIT, valid=valid)

    def address(self, at: Expr) -> Expr:
        return self.start + tirx.Cast("uint32", at * (VECTOR_BYTES // UNIT))
