"""What all passes of a block have: their tensors, and what goes from pixel to pixel of an image, all channels of each:
sums, and results that no other pixel has a part in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from dwconv.problems.workload import IMAGES, Pass
from dwconv.schedules.cpu.block_nhwc.cut import BAND_PIXELS, BlocksOfRows, FusedBlockCut
from dwconv.schedules.cpu.block_nhwc.norms import (
    FIRST,
    PIVOT,
    SECOND,
    CpuNormTensors,
    Held,
    NormedImages,
    SumParts,
    channel_loop,
    combined_moments,
    first_part,
    shifted,
)
from dwconv.schedules.cpu.emit.pixels import PackedWeights
from dwconv.schedules.cpu.emit.vectors import NumberedVector, Vectors, sum_in_pairs
from dwconv.schedules.cpu.emit.words import (
    argument,
    load,
    on_one_thread,
    parallel,
    seen_as,
    settled,
    store_rounded,
)
from dwconv.schedules.emit import Expr, bind, ceil_div, is_number, least, serial, store
from dwconv.schedules.gather import Gather

Terms = Callable[[Expr, Expr, NumberedVector], list[Expr]]
"""From an image, a pixel of it and a vector of channels to what is added to each of two sums."""
AT_ONCE = 8
"""Pixels whose sums are taken in registers: they are loaded and stored once for so many."""


@dataclass(frozen=True, kw_only=True)
class Pixels:
    """The pixels of images, in parts."""

    vectors: Vectors
    parts: SumParts
    first_image: Expr = None
    """None: they are of all images."""

    def tasks(self) -> Iterator[tuple[Expr, Expr, Expr, Expr]]:
        """A parallel loop over the parts: (part, image, its first pixel, the pixel after its last)."""
        parts = self.parts
        hold = bind if is_number(parts.pixels) else settled
        for part in parallel("part", parts.count):
            image = hold("image", shifted(part // parts.blocks, self.first_image))
            first = hold("first", part % parts.blocks * parts.pixels)
            stop = hold("stop", least(first + parts.pixels, parts.image_pixels))
            yield part if parts.first is None else bind("part_of_all", parts.at(part)), image, first, stop

    def all_vectors(self) -> Iterator[NumberedVector]:
        for number in serial("vector", self.vectors.count):
            yield NumberedVector(number, bind("c", self.vectors.start(number)))

    def sum_moments(self, image_of: Any, partial: Any) -> None:
        """The moments of a tensor (n, pixels, C), about the first pixel of each part."""
        span = self.vectors.span
        for part, image, first, stop in self.tasks():
            for vector in self.all_vectors():
                pivot = load(image_of, image, first, span(vector.start))
                store(partial, pivot, part, PIVOT, self.vectors.slot(vector.number))

            def moments(image: Expr, pixel: Expr, vector: NumberedVector, part: Expr = part) -> list[Expr]:
                pivot = partial[part, PIVOT, self.vectors.slot(vector.number)]
                off = bind("off", load(image_of, image, pixel, span(vector.start)) - pivot)
                return [off, off * off]

            self._sum(partial, part, image, first, stop, moments)

    def sum_of(self, terms: Terms, partial: Any) -> None:
        """The two sums of ``terms`` of an image's pixel."""
        for part, image, first, stop in self.tasks():
            self._sum(partial, part, image, first, stop, terms)

    def _sum(self, partial: Any, part: Expr, image: Expr, first: Expr, stop: Expr, terms: Terms) -> None:
        rows = (FIRST, SECOND)
        held = Held(self.vectors, partial, part, rows=len(rows), count=self.vectors.count)
        held.clear(0)
        for band in serial("band", ceil_div(self.parts.pixels, BAND_PIXELS)):
            start = bind("band_first", least(first + band * BAND_PIXELS, stop))
            end = bind("band_stop", least(start + BAND_PIXELS, stop))
            whole = bind("whole", start + (end - start) // AT_ONCE * AT_ONCE)
            for size, begin, turns in ((AT_ONCE, start, (whole - start) // AT_ONCE), (1, whole, end - whole)):
                for turn in serial("turn", turns):
                    pixel = bind("pixel", begin + turn * size)
                    for vector in self.all_vectors():
                        found = [terms(image, pixel + at, vector) for at in range(size)]
                        for row in rows:
                            held.add(vector.number, row, sum_in_pairs([each[row] for each in found]))
            held.flush(0)

    def map(self, result: Any, of: Callable[[Expr, Expr, NumberedVector], Expr]) -> None:
        """result[image, pixel, c] = of(image, pixel, vector), which may read the result there: where vectors overlap,
        the last is computed before the one before it is stored."""
        vectors = self.vectors
        overlaps = not is_number(vectors.elements) or vectors.elements % vectors.lanes != 0
        for _, image, first, stop in self.tasks():
            for pixel in serial("pixel", first, stop):
                last = NumberedVector(vectors.count - 1, vectors.start(vectors.count - 1))
                kept = bind("kept", of(image, pixel, last)) if overlaps else None
                for number in serial("vector", vectors.count - int(overlaps)):
                    vector = NumberedVector(number, bind("c", number * vectors.lanes))
                    store_rounded(result, of(image, pixel, vector), image, pixel, vectors.span(vector.start))
                if overlaps:
                    store_rounded(result, kept, image, pixel, vectors.span(last.start))


class BlockKernel:
    """Emits the kernel's parameters, and a norm or activation at a time what it computes."""

    def __init__(self, cut: FusedBlockCut, n: Expr, *, gathers: Pass, sums: int) -> None:
        """``gathers``: the pass of the convolution whose order the weights have. ``sums``: those of parts of all
        images, ``partial`` (parts, sums, whole vectors of channels); without any it is None."""
        workload, block = cut.workload, cut.block
        channels, vectors = cut.channels, Vectors(cut.channels, cut.lanes)
        work, slots = Gather.of(workload.convolution(gathers)), vectors.count * vectors.lanes
        whole: tuple[Expr, ...] = (slots,)
        if cut.any_channels is not None:  # sizes of an argument are a symbol each, or a part of one
            work, whole = replace(work, channels=channels), (vectors.count, vectors.lanes)
        tensors: dict[str, Any] = {}
        for name in (*workload.inputs, *workload.results):
            size = cut.x_size if name in ("x", "dx") else cut.y_size
            of_weights = (channels, *workload.kernel) if name in ("w", "dw") else (channels,)
            of_images = (n, *(size if cut.any_axes else [math.prod(size)]), channels)
            tensors[name] = argument(name, of_images if name in IMAGES else of_weights, workload.dtype_of(name))
        packed = argument("workspace", (vectors.count, 1, *workload.kernel, vectors.lanes))
        parts = (n, cut.results.blocks) if cut.any_axes else (n * cut.results.blocks,)
        partial = argument("workspace_1", (*parts, sums, *whole)) if sums else None
        each = (n,) if cut.of_images else ()
        norms = {
            number: CpuNormTensors(
                norm=norm,
                vectors=vectors,
                named={name[:-1]: tensor for name, tensor in tensors.items() if name.endswith(number)},
                table=argument(f"workspace_{1 + int(number)}", (*each, CpuNormTensors.table_rows(norm), *whole)),
            )
            for number, norm in (("1", block.norm1), ("2", block.batch_norm2))
            if norm
        }
        if cut.any_axes:
            cut = replace(cut, any_results=replace(cut.results, blocks=settled("blocks", cut.results.blocks)))
            for name in filter(tensors.__contains__, IMAGES):
                size = cut.x_size if name in ("x", "dx") else cut.y_size
                tensors[name] = seen_as(tensors[name], n, math.prod(size), channels)
            partial = seen_as(partial, math.prod(parts), sums, slots) if sums else None
        if cut.any_channels is not None:
            for number, norm in norms.items():
                table = seen_as(norm.table, *each, CpuNormTensors.table_rows(norm.norm), slots)
                norms[number] = replace(norm, table=table)
        self.cut, self.vectors, self.n, self.batch = cut, vectors, n, NormedImages(n)
        self.partial: Any = partial
        self.tensors = tensors
        """By the names of ``Block.inputs`` and ``Block.results``: images (n, pixels, C), w and dw (C, KH, KW), others
        (C,)."""
        self.norm1, self.norm2 = norms.get("1"), norms.get("2")
        self.weights = PackedWeights(work=work, vectors=vectors, w=tensors["w"], packed=packed)
        self._are_packed = False

    def pack(self) -> None:
        """The weights, once."""
        if not self._are_packed:
            self.weights.pack()
        self._are_packed = True

    def batches(self) -> Iterator[None]:
        """Around what has statistics of a batch: all images are one, or, of InstanceNorms, each is in a loop."""
        if not self.cut.of_images:
            yield
            return
        self.pack()
        norms = self.norm1, self.norm2
        takes_images = self.cut.takes_images
        for image in (parallel if takes_images else serial)("image", self.n):
            self.batch = NormedImages(1, image)
            self.norm1, self.norm2 = (norm and replace(norm, image=image) for norm in norms)
            with on_one_thread() if takes_images else nullcontext():
                yield
        self.batch, (self.norm1, self.norm2) = NormedImages(self.n), norms

    def find_statistics(self, norm: CpuNormTensors, parts: SumParts) -> None:
        """Of a norm, from the moments of parts."""
        for vector in channel_loop(self.vectors, self.partial):
            mean, variance = combined_moments(self.vectors, self.partial, parts, vector)
            norm.store("mean", mean, vector)
            norm.store("var", variance, vector)
            norm.set_normalised(vector, mean, variance)

    def set_normalised(self, *norms: CpuNormTensors | None) -> None:
        """Scales and shifts of norms, from statistics that are given."""
        for norm in filter(None, norms):
            for vector in channel_loop(self.vectors, self.partial):
                norm.set_normalised(vector, norm.load("mean", vector), norm.load("var", vector))

    @property
    def inputs(self) -> Pixels:
        """Those of x."""
        return self._pixels(*self.cut.x_size)

    @property
    def outputs(self) -> Pixels:
        """Those of y."""
        return self._pixels(*self.cut.y_size)

    def _pixels(self, rows: Expr, *others: Expr) -> Pixels:
        """In about as many blocks of rows, or of planes, as tasks of the convolution have."""
        columns = math.prod(others)
        whole = BlocksOfRows.of(rows, _settled("block_rows", ceil_div(rows, self.cut.results.blocks)))
        parts = SumParts(
            images=self.batch.count,
            blocks=_settled("blocks", whole.blocks),
            pixels=whole.block_rows * columns,
            image_pixels=rows * columns,
            first=first_part(self.cut, self.batch),
        )
        return Pixels(vectors=self.vectors, parts=parts, first_image=self.batch.first)


def _settled(name: str, value: Expr) -> Expr:
    return value if is_number(value) else settled(name, value)
