"""What norms have of each channel: sums over pixels, and the numbers that pixels are multiplied with.

normalised      γ · (v − mean) / √(var + eps) + β            =  v · scale + shift
before_norm     the gradient of v from d, that of the result =  d · scale + v · slope + offset
                of a frozen norm, whose mean and var are given, d · scale

Sums are taken in registers, in bands of some pixels, in tasks, then over all tasks in their order, whichever thread ran
them: the same bits every time, and no sum of many terms.

An InstanceNorm has those of each image: an image is a batch of one, and what is added up over images comes after all of
them.

Moments are taken about a pivot, a value of the channel, so that no large numbers cancel out:
mean = pivot + Σ(v − pivot) / count, and what is left of Σ(v − pivot)² is about the mean. Those of tasks are combined as
Chan, Golub and LeVeque (1979) do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx

from dwconv.problems.block import Norm
from dwconv.schedules.cpu.block_nhwc.cut import FusedBlockCut
from dwconv.schedules.cpu.emit.vectors import Accumulators, NumberedVector, Vectors
from dwconv.schedules.cpu.emit.words import parallel, scratch
from dwconv.schedules.emit import Expr, bind, is_number, least, serial, size_of, store

ONE = tirx.FloatImm("float32", 1.0)
PARALLEL_CHANNELS = 2048
"""Beyond this number of sums in a part, all threads add up parts; how many parts there are the batch decides."""
FIRST, SECOND, PIVOT = range(3)
"""Of moments, Σ(v − pivot), Σ(v − pivot)² and the pivot."""


class Held:
    """Sums of a task: ``rows`` for each of ``count`` vectors of channels. ``flush`` adds them to its ``part`` of
    ``partial`` (parts, rows, whole vectors of channels), and begins anew."""

    def __init__(self, vectors: Vectors, partial: Any, part: Expr, *, rows: int, count: int) -> None:
        """Emits the memory, not yet zero."""
        self.vectors, self.partial, self.part, self.rows, self.count = vectors, partial, part, rows, count
        self.memory = scratch("held", count, rows, vectors.lanes)

    def clear(self, first_vector: Expr) -> None:
        for v in serial("vector", self.count):
            for row in serial("row", self.rows):
                store(self.memory, self.vectors.zero(), v, row, self.vectors.span(0))
                store(self.partial, self.vectors.zero(), self.part, row, self.vectors.slot(first_vector + v))

    def add(self, v: Expr, row: Expr, value: Expr) -> None:
        at = (v, row, self.vectors.span(0))
        store(self.memory, self.memory[at] + value, *at)

    def flush(self, first_vector: Expr) -> None:
        for v in serial("vector", self.count):
            for row in serial("row", self.rows):
                place, at = (self.part, row, self.vectors.slot(first_vector + v)), (v, row, self.vectors.span(0))
                store(self.partial, self.partial[place] + self.memory[at], *place)
                store(self.memory, self.vectors.zero(), *at)


@dataclass(frozen=True)
class NormedImages:
    """A batch: all images, or one."""

    count: Expr
    first: Expr = None
    """The number of the one; None: they are all."""


@dataclass(frozen=True, kw_only=True)
class SumParts:
    """The parts of some images that sums were taken of: ``blocks`` of ``pixels`` pixels of each, the last of fewer."""

    images: Expr
    blocks: Expr
    pixels: Expr
    image_pixels: Expr
    first: Expr = None
    """Where the first part is among those of all images; None: these are all."""

    @property
    def count(self) -> Expr:
        return self.images * self.blocks

    def at(self, part: Expr) -> Expr:
        """Where a part is among those of all images."""
        return shifted(part, self.first)

    def pixels_of(self, part: Expr) -> Expr:
        """In float32."""
        number = least(self.pixels, self.image_pixels - part % self.blocks * self.pixels)
        return _float32(number)

    @property
    def all_pixels(self) -> Expr:
        """In float32."""
        return _float32(self.images) * _float32(self.image_pixels)


def first_part(cut: FusedBlockCut, batch: NormedImages) -> Expr:
    """Of a batch, where each image has room for the parts of the convolution's tasks."""
    return None if batch.first is None else batch.first * cut.results.blocks


def shifted(number: Expr, first: Expr) -> Expr:
    """Counted from ``first``; None: from the beginning."""
    return number if first is None else first + number


def _float32(number: Expr) -> Expr:
    return tirx.FloatImm("float32", float(number)) if isinstance(number, int) else tirx.Cast("float32", number)


def channel_loop(vectors: Vectors, partial: Any) -> Any:
    """A loop over vectors of channels, whose sums are added up, if there are any."""
    *_, rows, slots = (0, 0) if partial is None else map(size_of, partial.ty.shape)
    loop = serial if is_number(slots) and rows * slots <= PARALLEL_CHANNELS else parallel
    for number in loop("vector", vectors.count):
        yield NumberedVector(number, bind("c", vectors.start(number)))


def totals(vectors: Vectors, partial: Any, parts: SumParts, vector: NumberedVector, rows: Sequence[Expr]) -> list[Expr]:
    """The sums of some rows over all parts."""
    sums = Accumulators(vectors, len(rows))
    for part in serial("part", parts.count):
        for number, row in enumerate(rows):
            sums.add((number,), partial[parts.at(part), row, vectors.slot(vector.number)])
    return [bind("total", sums[(number,)]) for number in range(len(rows))]


def combined_moments(vectors: Vectors, partial: Any, parts: SumParts, vector: NumberedVector) -> tuple[Expr, Expr]:
    """(mean, variance) of all pixels, from the moments of parts."""
    slot, every = vectors.slot(vector.number), vectors.everywhere
    inverse = bind("inverse", ONE / parts.all_pixels)
    sums = Accumulators(vectors, 2)
    for part in serial("part", parts.count):
        share = bind("share", parts.pixels_of(part) * inverse)
        sums.add((0,), _mean(vectors, partial, parts, part, slot) * every(share))
    mean = bind("mean", sums[(0,)])
    for part in serial("part", parts.count):
        pixels = bind("pixels", parts.pixels_of(part))
        first = bind("first", partial[parts.at(part), FIRST, slot])
        own = partial[parts.at(part), SECOND, slot] - first * first * every(bind("inverse", ONE / pixels))
        off = bind("off", _mean(vectors, partial, parts, part, slot) - mean)
        sums.add((1,), tirx.max(own, vectors.zero()) + off * off * every(pixels))
    return mean, bind("variance", sums[(1,)] * every(inverse))


def _mean(vectors: Vectors, partial: Any, parts: SumParts, part: Expr, slot: Expr) -> Expr:
    inverse = bind("inverse", ONE / parts.pixels_of(part))
    at = parts.at(part)
    return bind("part_mean", partial[at, PIVOT, slot] + partial[at, FIRST, slot] * vectors.everywhere(inverse))


SCALE, SHIFT, SLOPE, OFFSET = range(4)
TABLE_ROWS = 4
_OF_IMAGE = {"mean": 4, "var": 5, "dgamma": 6, "dbeta": 7}
"""Rows of what an InstanceNorm has of each image, in no tensor."""


@dataclass(frozen=True, kw_only=True)
class CpuNormTensors:
    """The tensors of a norm, each (C,), and ``table`` (``TABLE_ROWS``, whole vectors of channels); of an InstanceNorm
    (n, ``table_rows``, whole vectors of channels)."""

    norm: Norm
    vectors: Vectors
    named: dict[str, Any]
    table: Any
    image: Expr = None
    """Whose statistics these are; None: those of all."""

    @staticmethod
    def table_rows(norm: Norm) -> int:
        return TABLE_ROWS + (len(_OF_IMAGE) if norm.is_of_images else 0)

    def load(self, name: str, vector: NumberedVector) -> Expr:
        if self.image is not None and name in _OF_IMAGE:
            return bind(name, self.get(_OF_IMAGE[name], vector))
        return bind(name, self.named[name][self.vectors.span(vector.start)])

    def store(self, name: str, value: Expr, vector: NumberedVector) -> None:
        if self.image is not None and name in _OF_IMAGE:
            self.set(_OF_IMAGE[name], value, vector)
        else:
            store(self.named[name], value, self.vectors.span(vector.start))

    def set(self, row: int, value: Expr, vector: NumberedVector) -> None:
        store(self.table, value, *self._before, row, self.vectors.slot(vector.number))

    def get(self, row: int, vector: NumberedVector) -> Expr:
        return self.table[(*self._before, row, self.vectors.slot(vector.number))]

    @property
    def _before(self) -> tuple[Expr, ...]:
        return () if self.image is None else (self.image,)

    def add_images(self, images: Expr, vector: NumberedVector) -> None:
        """Stores dγ and dβ of all images, from those of each."""
        sums = Accumulators(self.vectors, 2)
        for image in serial("image", images):
            of_image = replace(self, image=image)
            for number, name in enumerate(("dgamma", "dbeta")):
                sums.add((number,), of_image.load(name, vector))
        for number, name in enumerate(("dgamma", "dbeta")):
            store(self.named[name], sums[(number,)], self.vectors.span(vector.start))

    def inverse_deviation(self, variance: Expr) -> Expr:
        every = self.vectors.everywhere
        root = tirx.sqrt(variance + every(tirx.FloatImm("float32", self.norm.eps)))
        return bind("inverse", every(tirx.FloatImm("float32", 1.0)) / root)

    def set_normalised(self, vector: NumberedVector, mean: Expr, variance: Expr) -> None:
        """Fills in scale and shift."""
        scale = bind("scale", self.load("gamma", vector) * self.inverse_deviation(variance))
        self.set(SCALE, scale, vector)
        self.set(SHIFT, self.load("beta", vector) - mean * scale, vector)

    def set_before_norm(self, vector: NumberedVector, total: Expr, dot: Expr, pixels: Expr) -> None:
        """Stores dγ and dβ, and fills in slope and offset. ``total``: Σd; ``dot``: Σ d · (v − mean); of so many
        ``pixels``."""
        mean, inverse = self.load("mean", vector), self.inverse_deviation(self.load("var", vector))
        self.store("dgamma", dot * inverse, vector)
        self.store("dbeta", total, vector)
        share = bind("share", self.get(SCALE, vector) / self.vectors.everywhere(pixels))
        slope = bind("slope", self.vectors.zero() - share * (dot * inverse) * inverse)
        self.set(SLOPE, slope, vector)
        self.set(OFFSET, self.vectors.zero() - share * total - slope * mean, vector)

    def set_gradients(self, vector: NumberedVector, total: Expr, dot: Expr) -> None:
        """Stores dγ and dβ of a frozen norm. ``total``: Σd; ``dot``: Σ d · (v − mean)."""
        self.store("dgamma", dot * self.inverse_deviation(self.load("var", vector)), vector)
        self.store("dbeta", total, vector)

    def normalised(self, value: Expr, vector: NumberedVector) -> Expr:
        return value * self.get(SCALE, vector) + self.get(SHIFT, vector)

    def before_norm(self, d: Expr, value: Expr, vector: NumberedVector) -> Expr:
        return d * self.get(SCALE, vector) + (value * self.get(SLOPE, vector) + self.get(OFFSET, vector))

    def centred(self, value: Expr, vector: NumberedVector) -> Expr:
        return value - self.load("mean", vector)
