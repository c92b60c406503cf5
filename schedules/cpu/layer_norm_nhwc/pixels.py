"""LayerNorm of pixels, each over its channels: some pixels at a time, vector after vector of their channels, which the
first level of the cache holds from one sum to the next.

forward     mean ─► Σ (y − mean)² ─► z = γ · (y − mean) / σ + β
backward    mean ─► Σ (y − mean)², Σ dz · γ, Σ dz · γ · (y − mean) ─► g, and terms of dγ and dβ

The variance is a sum about the mean, so that no large numbers cancel out. Nothing of a pixel is kept between the
passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from dwconv.schedules.cpu.emit.vectors import Accumulators, NumberedVector, Vectors, keep, sum_in_pairs, total
from dwconv.schedules.cpu.emit.words import load, prefetch, store_rounded
from dwconv.schedules.emit import Expr, bind, serial, store, when

AT_ONCE = 4
"""Pixels whose sums are taken at the same time: that many sums hide how long one waits for the next."""


@dataclass(frozen=True, kw_only=True)
class PixelNorm:
    """Images are (n, pixels, C), parameters (C,)."""

    vectors: Vectors
    eps: float

    def normalise(self, y: Any, z: Any, *, gamma: Any, beta: Any, image: Expr, pixels: tuple[Expr, Expr]) -> None:
        """z, from y, of the pixels from the first up to the second of ``pixels``."""
        every = self.vectors.everywhere
        for some in _some(*pixels):
            means = self._means(y, image, some)
            squares = Accumulators(self.vectors, len(some))
            for vector, fresh in self._vectors():
                for at, pixel in enumerate(some):
                    off = self._off(y, image, pixel, vector, means[at])
                    squares.add((at,), keep(self.vectors, off * off, fresh))
            inverses = [self._inverse_deviation(squares[(at,)]) for at in range(len(some))]
            for vector, _ in self._vectors():
                span = self.vectors.span(vector.start)
                scale, shift = bind("gamma", gamma[span]), bind("beta", beta[span])
                for at, pixel in enumerate(some):
                    off = self._off(y, image, pixel, vector, means[at])
                    store_rounded(z, off * every(inverses[at]) * scale + shift, image, pixel, span)

    def differentiate(
        self, dz: Any, y: Any, *, gamma: Any, image: Expr, pixels: tuple[Expr, Expr], terms: Terms, to: Any
    ) -> None:
        """The gradient of y in ``to``, an image alone, and the terms of dγ and dβ, of the pixels from the first up to
        the second of ``pixels``:

        (dz · γ − mean of dz · γ − (y − mean) · mean of (dz · γ · (y − mean)) / σ²) / σ"""
        every, lanes = self.vectors.everywhere, self.vectors
        for some in _some(*pixels):
            means = self._means(y, image, some)
            sums = Accumulators(lanes, len(some), 3)
            for vector, fresh in self._vectors():
                scale = bind("gamma", gamma[lanes.span(vector.start)])
                for at, pixel in enumerate(some):
                    off = self._off(y, image, pixel, vector, means[at])
                    scaled = bind("scaled", load(dz, image, pixel, lanes.span(vector.start)) * scale)
                    for number, value in enumerate((off * off, scaled, scaled * off)):
                        sums.add((at, number), keep(lanes, value, fresh))
                    for tensor in (dz, y) if len(some) > 1 else ():
                        prefetch(tensor, image, pixel + len(some), vector.start)
            found = []
            for at in range(len(some)):
                inverse = self._inverse_deviation(sums[at, 0])
                slope = bind("slope", self._mean(sums[at, 2]) * inverse * inverse)
                found.append((every(inverse), every(self._mean(sums[at, 1])), every(slope)))
            for vector, _ in self._vectors():
                span = lanes.span(vector.start)
                scale = bind("gamma", gamma[span])
                of_gamma, of_beta = [], []
                for at, (pixel, (inverse, mean, slope)) in enumerate(zip(some, found, strict=True)):
                    off = self._off(y, image, pixel, vector, means[at])
                    given = bind("dz_value", load(dz, image, pixel, span))
                    store(to, (given * scale - mean - off * slope) * inverse, 0, pixel, span)
                    of_gamma.append(bind("term", given * off * inverse))
                    of_beta.append(given)
                terms.add(vector, sum_in_pairs(of_gamma), sum_in_pairs(of_beta))

    def _vectors(self) -> Iterator[tuple[NumberedVector, tuple[int, int] | None]]:
        """Loops over the vectors of a pixel, each with those of its lanes that the vector before does not have; None is
        all."""
        vectors, left = self.vectors, self.vectors.elements % self.vectors.lanes
        for number in serial("vector", vectors.elements // vectors.lanes):
            yield NumberedVector(number, bind("c", number * vectors.lanes)), None
        if left:
            last = NumberedVector(vectors.count - 1, vectors.start(vectors.count - 1))
            yield last, (vectors.lanes - left, vectors.lanes)

    def _means(self, y: Any, image: Expr, pixels: list[Expr]) -> list[Expr]:
        sums = Accumulators(self.vectors, len(pixels))
        for vector, fresh in self._vectors():
            for at, pixel in enumerate(pixels):
                value = load(y, image, pixel, self.vectors.span(vector.start))
                sums.add((at,), keep(self.vectors, value, fresh))
        return [self._mean(sums[(at,)]) for at in range(len(pixels))]

    def _off(self, y: Any, image: Expr, pixel: Expr, vector: NumberedVector, mean: Expr) -> Expr:
        """How far the channels of a pixel are off their mean."""
        value = load(y, image, pixel, self.vectors.span(vector.start))
        return bind("off", value - self.vectors.everywhere(mean))

    def _mean(self, sums: Expr) -> Expr:
        """Of all channels, from the sums of the lanes."""
        share = tirx.FloatImm("float32", 1.0 / self.vectors.elements)
        return bind("mean", total(self.vectors, bind("lanes", sums)) * share)

    def _inverse_deviation(self, squares: Expr) -> Expr:
        one, eps = (tirx.FloatImm("float32", value) for value in (1.0, self.eps))
        return bind("inverse", one / tirx.sqrt(self._mean(squares) + eps))


@dataclass(frozen=True)
class Terms:
    """Where the terms of dγ and dβ go: to rows ``first_row`` and the next of a ``part`` of ``partial`` (parts, rows,
    whole vectors of channels)."""

    vectors: Vectors
    partial: Any
    part: Expr
    first_row: int
    count: Expr
    """Whether they are added: another task counts those of the rows around its own."""

    def add(self, vector: NumberedVector, *values: Expr) -> None:
        with when(self.count):
            for row, value in enumerate(values):
                at = (self.part, self.first_row + row, self.vectors.slot(vector.number))
                store(self.partial, self.partial[at] + value, *at)


def _some(first: Expr, stop: Expr) -> Iterator[list[Expr]]:
    """Loops over pixels, ``AT_ONCE`` of them at a time, then one by one."""
    whole = bind("whole", first + (stop - first) // AT_ONCE * AT_ONCE)
    for turn in serial("turn", (whole - first) // AT_ONCE):
        pixel = bind("pixel", first + turn * AT_ONCE)
        yield [pixel + at for at in range(AT_ONCE)]
    for pixel in serial("pixel", whole, stop):
        yield [pixel]
