"""Kernels that go from pixel to pixel: sums, and results that no other pixel has a part in.

A block of threads goes through one of the ``parts`` of all pixels, ``threads_p`` of them at a time, in ``threads_c``
vectors of channels; a thread has several pixels on their way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from dwconv.schedules.cuda.block_nhwc.cut import AHEAD, BlockCut
from dwconv.schedules.cuda.block_nhwc.sums import Mates, Moments, Partial, VectorPlace
from dwconv.schedules.cuda.emit.words import Registers, blocks, blocks_per_sm, in_register, threads
from dwconv.schedules.emit import Expr, all_of, divided, least, serial, when

HELD_THREADS = 1024
"""Threads that an SM holds at least, which leaves each of them 64 registers."""


@dataclass(frozen=True, kw_only=True)
class PixelPlace(VectorPlace):
    """It has every ``threads_p``-th pixel of a part from its own on."""

    part: Expr
    mate: Expr
    first: Expr
    """The first pixel of the part, and the one after its last."""
    stop: Expr

    @property
    def mates(self) -> Mates:
        return self.mates_of(self.mate, self.cut.threads_p)

    def batches(self) -> Iterator[list[Expr]]:
        across = self.cut.threads_p
        together = across * AHEAD
        whole = in_register("whole", tirx.truncdiv(self.stop - self.first, together))
        for turn in serial("turn", whole):
            start = in_register("start", self.first + turn * together + self.mate)
            yield [start + number * across for number in range(AHEAD)]
        rest = in_register("rest", self.first + whole * together)
        for turn in serial("turn", tirx.truncdiv(self.stop - rest + (across - 1), across)):
            pixel = in_register("pixel", rest + turn * across + self.mate)
            with when(pixel < self.stop):
                yield [pixel]

    def load(self, image: Any, pixel: Expr) -> Registers:
        lanes = self.cut.vector_c
        loaded = Registers("loaded", lanes, dtype=image.dtype)
        loaded.load(0, image, self.at(pixel), lanes=lanes)
        return loaded

    def at(self, pixel: Expr) -> Expr:
        return pixel * self.cut.workload.channels + self.channel


def pixel_places(cut: BlockCut, pixels: Expr) -> Iterator[PixelPlace]:
    for block in blocks("block", cut.parts * cut.channel_blocks):
        for y in threads("pixel", cut.threads_p, axis="y"):
            for x in threads("lane", cut.threads_c):
                with blocks_per_sm(max(1, HELD_THREADS // cut.pixel_threads)):
                    part, channels = divided(block, cut.channel_blocks)
                    all_pixels = in_register("pixels", pixels)
                    each = in_register("each", tirx.truncdiv(all_pixels + (cut.parts - 1), cut.parts))
                    first = in_register("first", least(part * each, all_pixels))
                    yield PixelPlace(
                        cut=cut,
                        part=part,
                        mate=y,
                        thread_c=x,
                        vector=in_register("vector", channels * cut.threads_c + x),
                        first=first,
                        stop=in_register("stop", least(first + each, all_pixels)),
                    )


def sum_moments(cut: BlockCut, image: Any, partial: Partial, pixels: Expr) -> None:
    for place in pixel_places(cut, pixels):
        moments = Moments.none(cut.vector_c)
        with when(place.has_channels):
            mine = place.first + place.mate
            with when(mine < place.stop):
                pivot = place.load(image, mine)
                moments.begin([pivot.in_float32(lane) for lane in range(cut.vector_c)])
            for batch in place.batches():
                loaded = [place.load(image, pixel) for pixel in batch]
                for values in loaded:
                    moments.add([values.in_float32(lane) for lane in range(cut.vector_c)])
        moments.leave(partial, place.part, place.channel, place.mates, has_channels=place.has_channels)


def sum_terms(
    cut: BlockCut,
    images: Sequence[Any],
    partial: Partial,
    pixels: Expr,
    prepare: Callable[[Expr], Callable[[Sequence[Expr], int], list[Expr]]],
) -> None:
    """Sums of terms of each pixel. ``prepare`` is called by each thread, with its channel, and gives what makes the
    terms, as many as ``partial`` has rows, of values of ``images`` in a lane."""
    for place in pixel_places(cut, pixels):
        sums = Registers.zeros("sum", partial.rows, cut.vector_c)
        with when(place.has_channels):
            terms = prepare(place.channel)
            for batch in place.batches():
                for loaded in [[place.load(image, pixel) for image in images] for pixel in batch]:
                    for lane in range(cut.vector_c):
                        for row, term in enumerate(terms([values.in_float32(lane) for values in loaded], lane)):
                            sums[row, lane] = sums[row, lane] + term
        place.mates.add(sums)
        with when(all_of(place.mate == 0, place.has_channels)):
            for row in range(partial.rows):
                partial.put(place.part, row, place.channel, sums, (row, 0), lanes=cut.vector_c)


def map_pixels(
    cut: BlockCut,
    images: Sequence[Any],
    result: Any,
    pixels: Expr,
    prepare: Callable[[Expr], Callable[[Sequence[Expr], int], Expr]],
) -> None:
    """A result of each pixel, from what ``images`` have there; it may be one of them. ``prepare`` as above."""
    for place in pixel_places(cut, pixels):
        with when(place.has_channels):
            result_of = prepare(place.channel)
            for batch in place.batches():
                given = [[place.load(image, pixel) for image in images] for pixel in batch]
                for pixel, loaded in zip(batch, given, strict=True):
                    made = Registers("made", cut.vector_c)
                    for lane in range(cut.vector_c):
                        made[lane] = result_of([values.in_float32(lane) for values in loaded], lane)
                    made.save(0, result, place.at(pixel), lanes=cut.vector_c)
