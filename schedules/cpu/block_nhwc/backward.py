"""The backward pass of a block.

    dz, y ─► act2′ ─► d2 ─► Σ d2, Σ d2 · (y − mean2) ─► dγ2, dβ2 ─► scale, slope, offset
    dz, y ─► d2, g2 ─► ring of rows ─┬► dgrad, · act1′ ─► d1, Σ d1, Σ d1 · (x − mean1) ─► dγ1, dβ1 ─► …
                       x ─► act1 ────┴► wgrad ─► dw
    d1, x ─► scale, slope, offset ─► dx, in the place of d1

Of InstanceNorms all of this goes image by image, after the statistics of x and y once more; dw, dγ and dβ are added up
over images at the end.

Frozen norms have no such sums before their gradients:

    dz, z or y ─► d2 ─┬► ring of rows ─┬► dgrad, · scale2, · act1′ ─► d1, Σ d1, Σ d1 · (x − mean1), · scale1 ─► dx
                      │                └► wgrad ─► dw / scale2 ─┬► dw
                      └► Σ d2 ──────────────────────────────────┴► Σ w · dw / scale2 = Σ d2 · y ─► dγ2, dβ2

The loops go over the pixels of x, so that what the ring holds, once loaded, is part of dgrad and of wgrad.
"""

from __future__ import annotations

import math

from tvm import s_tir, tirx

from dwconv.schedules.activations import ON_CPU
from dwconv.schedules.cpu.block_nhwc.cut import FusedBlockCut
from dwconv.schedules.cpu.block_nhwc.kernel import BlockKernel
from dwconv.schedules.cpu.block_nhwc.norms import SCALE, CpuNormTensors, Held, SumParts, channel_loop, totals
from dwconv.schedules.cpu.block_nhwc.tasks import Ring, RowsTask, parts_of_tasks, tasks
from dwconv.schedules.cpu.emit.vectors import Accumulators, NumberedVector, sum_in_pairs
from dwconv.schedules.cpu.emit.words import load, prefetch, scratch, store_rounded
from dwconv.schedules.emit import BATCH, Expr, bind, kernel, serial, store, taps_of

TOTAL, DOT = range(2)
"""Of a norm, Σ d and Σ d · (v − mean)."""


def schedule(cut: FusedBlockCut) -> s_tir.Schedule:
    """Parameters, images with their rows and columns as one axis of pixels: dz (n, OH·OW, C), x (n, H·W, C), y as dz, w
    (C, KH, KW), γ, β, mean and variance of each norm (C,), dx as x, dw as w, dγ and dβ of each norm (C,), and
    workspaces. Without a second norm dy in the place of dz and y; after a frozen one z in that of y, or nothing."""
    n = tirx.Var(BATCH, "int32")
    learns1, learns2 = cut.learns
    with kernel() as builder:
        sums = math.prod(cut.axes.taps) + 2 + (cut.block.batch_norm2 is not None and not learns2)
        backward = CpuBlockBackward(cut, n, gathers="dgrad", sums=sums)
        if not cut.of_images:
            backward.set_normalised(backward.norm1, backward.norm2)
        for _ in backward.batches():
            if cut.of_images:
                backward.find_all_statistics()
            if learns2:
                assert backward.norm2 is not None
                backward.outputs.sum_of(backward.terms_of_norm2, backward.partial)
                backward.finish(backward.norm2, backward.outputs.parts, first=0)
            backward.pack()
            backward.convolve()
            if not cut.of_images:
                backward.add_weights()
            if backward.norm1 and not learns1:
                backward.finish_frozen1(backward.norm1)
            elif backward.norm1:
                backward.finish(backward.norm1, parts_of_tasks(cut, backward.batch), first=backward.taps)
                backward.inputs.map(backward.tensors["dx"], backward.before_norm1)
        if cut.of_images:
            backward.add_weights()
            backward.add_images()
    return s_tir.Schedule(builder.get())


class CpuBlockBackward(BlockKernel):
    @property
    def frozen1(self) -> CpuNormTensors | None:
        """The first norm, if it is frozen; the next is the second."""
        return None if self.cut.learns[0] else self.norm1

    @property
    def frozen2(self) -> CpuNormTensors | None:
        return None if self.cut.learns[1] else self.norm2

    @property
    def taps(self) -> int:
        """Of a kernel: its rows of the partial sums are the first."""
        return math.prod(self.cut.axes.taps)

    def d2(self, image: Expr, pixel: Expr, vector: NumberedVector) -> tuple[Expr, Expr]:
        """(the gradient of what the second norm gives, y; or, of a frozen norm that needs no y, z or nothing)"""
        assert self.norm2 is not None
        span, kept = self.vectors.span(vector.start), self.cut.block.kept
        if not kept:
            return bind("d", load(self.tensors["dz"], image, pixel, span)), None
        if kept == "z":
            z = bind("z_value", load(self.tensors["z"], image, pixel, span))
            _, slope = ON_CPU.with_derivative(self.cut.block.act2, z)
            return bind("d", load(self.tensors["dz"], image, pixel, span) * slope), z
        y = bind("y_value", load(self.tensors["y"], image, pixel, span))
        _, slope = ON_CPU.with_derivative(self.cut.block.act2, self.norm2.normalised(y, vector))
        return bind("d", load(self.tensors["dz"], image, pixel, span) * slope), y

    def terms_of_norm2(self, image: Expr, pixel: Expr, vector: NumberedVector) -> list[Expr]:
        assert self.norm2 is not None
        d, y = self.d2(image, pixel, vector)
        return [d, d * self.norm2.centred(y, vector)]

    def g2(self, image: Expr, pixel: Expr, vector: NumberedVector) -> Expr:
        """The gradient of y; of a frozen norm without its scale."""
        if self.norm2 is None:
            return load(self.tensors["dy"], image, pixel, self.vectors.span(vector.start))
        if self.frozen2:
            return self.d2(image, pixel, vector)[0]
        return self.norm2.before_norm(*self.d2(image, pixel, vector), vector)

    def before_norm1(self, image: Expr, pixel: Expr, vector: NumberedVector) -> Expr:
        """dx, from d1, in its place."""
        assert self.norm1 is not None
        span = self.vectors.span(vector.start)
        d1, x = (load(self.tensors[name], image, pixel, span) for name in ("dx", "x"))
        return self.norm1.before_norm(d1, x, vector)

    def find_all_statistics(self) -> None:
        """Of the norms of an image, as the forward pass had them; of y as it is stored."""
        for norm, name, pixels in ((self.norm1, "x", self.inputs), (self.norm2, "y", self.outputs)):
            if norm:
                pixels.sum_moments(self.tensors[name], self.partial)
                self.find_statistics(norm, pixels.parts)

    def add_images(self) -> None:
        """dγ and dβ, from those of each image."""
        for norm in filter(None, (self.norm1, self.norm2)):
            for vector in channel_loop(self.vectors, self.partial):
                norm.add_images(self.n, vector)

    def finish(self, norm: CpuNormTensors, parts: SumParts, *, first: int) -> None:
        """dγ, dβ and what the gradient before the norm takes, from the sums of parts in rows from ``first`` on."""
        for vector in channel_loop(self.vectors, self.partial):
            total, dot = totals(self.vectors, self.partial, parts, vector, [first + TOTAL, first + DOT])
            norm.set_before_norm(vector, total, dot, parts.all_pixels)

    def finish_frozen1(self, norm: CpuNormTensors) -> None:
        """dγ and dβ of a first norm that is frozen."""
        parts, first = parts_of_tasks(self.cut, self.batch), self.taps
        for vector in channel_loop(self.vectors, self.partial):
            total, dot = totals(self.vectors, self.partial, parts, vector, [first + TOTAL, first + DOT])
            norm.set_gradients(vector, total, dot)

    def convolve(self) -> None:
        """d1 in the place of dx, and partial sums of dw and of the first norm."""
        cut, vectors = self.cut, self.vectors
        first2 = self.taps + (2 if self.norm1 else 0)
        rows = first2 + (1 if self.frozen2 else 0)
        for task in tasks(cut, vectors, self.batch):
            held = Held(vectors, self.partial, task.part, rows=rows, count=cut.block_vectors)
            held.clear(task.first_vector)
            ring = task.ring()

            def produce(pixel: Expr, vector: NumberedVector, image: Expr = task.image) -> Expr:
                if cut.prefetches:
                    for name in filter(self.tensors.__contains__, ("dz", "dy", cut.block.kept)):
                        prefetch(self.tensors[name], image, pixel + cut.axes.columns.inputs, vector.start)
                return self.g2(image, pixel, vector)

            def count(v: Expr, value: Expr, own: Expr, held: Held = held) -> None:
                held.add(v, first2, value * vectors.everywhere(own))

            for row in task.rows_in_bands(held):
                ring.follow(row, first=task.top, of=task.vector, produce=produce, count=count if self.frozen2 else None)
                for inner, left, width, v in task.all_tiles():
                    self._tile(task, ring, held, (row, inner, left), width, v)

    def _tile(
        self, task: RowsTask, ring: Ring, held: Held, at_first: tuple[Expr, Expr, Expr], width: int, v: Expr
    ) -> None:
        """``at_first``: the place of its first pixel, (row, 0, column) or, in 3-D, (plane, row, column)."""
        axes, vectors, vector = self.cut.axes, self.vectors, task.vector(v)
        columns, span, (row, inner, left) = axes.columns, vectors.span(vector.start), at_first
        pixel = bind("pixel", (row * self.cut.across.outputs + inner) * columns.outputs + left)
        values = [bind("x_value", load(self.tensors["x"], task.image, pixel + out, span)) for out in range(width)]
        if self.cut.prefetches:
            for out in range(width):
                prefetch(self.tensors["x"], task.image, pixel + out + columns.outputs, vector.start)
        activated = []
        for value in values:
            a, slope = ON_CPU.with_derivative(
                self.cut.block.act1, self.norm1.normalised(value, vector) if self.norm1 else value
            )
            activated.append((bind("a", a), bind("slope", slope)))
        gradient = Accumulators(vectors, width)
        for tap, source_row, source_inner in task.met(row, inner):
            weights = Accumulators(vectors, columns.taps)
            for at, pairs in columns.reads(width).items():
                g = ring.load(source_row, source_inner, v, columns.origin(left) + at)
                for out, kw in pairs:
                    gradient.add((out,), g * self.weights.vector(vector.number, 0, *tap, kw))
                    weights.add((kw,), g * activated[out][0])
            for kw in range(columns.taps):
                held.add(v, self._number((*tap, kw)), weights[(kw,)])
        d = [gradient[(out,)] * activated[out][1] for out in range(width)]
        if self.frozen2:
            scale2 = bind("scale2", self.frozen2.get(SCALE, vector))
            d = [each * scale2 for each in d]
        d = [bind("d", each) for each in d]
        for out in range(width):
            dx = d[out] * self.frozen1.get(SCALE, vector) if self.frozen1 else d[out]
            store_rounded(self.tensors["dx"], dx, task.image, pixel + out, span)
        if self.norm1:
            held.add(v, self.taps + TOTAL, sum_in_pairs(d))
            centred = [d[out] * self.norm1.centred(values[out], vector) for out in range(width)]
            held.add(v, self.taps + DOT, sum_in_pairs(centred))

    def _number(self, tap: tuple[Expr, Expr, Expr]) -> Expr:
        """Of a tap (kd, kh, kw) among the sums of a part."""
        axes, (kd, kh, kw) = self.cut.axes, tap
        return (kd * axes.rows.taps + kh) * axes.columns.taps + kw

    def add_weights(self) -> None:
        """dw, from the sums of all tasks; and dγ and dβ of a second norm that is frozen. Channels are outermost in it,
        so lanes go out one by one; those that the vector before has too are left out."""
        vectors, kernel = self.vectors, self.cut.workload.kernel
        parts = parts_of_tasks(self.cut, self.batch)
        for vector in channel_loop(vectors, self.partial):
            of_y = Accumulators(vectors, 1) if self.frozen2 else None
            for place in taps_of(kernel):
                kd, kh, kw = (0,) * (3 - len(kernel)) + place
                tap = kd, kh, kw
                (total,) = totals(vectors, self.partial, parts, vector, [self._number(tap)])
                if self.frozen2 and of_y:
                    of_y.add((0,), total * self.weights.vector(vector.number, 0, *tap))
                    total = bind("total", total * self.frozen2.get(SCALE, vector))
                lanes = scratch("lanes", vectors.lanes)
                store(lanes, total, vectors.span(0))
                for lane in serial("lane", vector.number * vectors.lanes - vector.start, vectors.lanes):
                    store_rounded(self.tensors["dw"], lanes[lane], vector.start + lane, *place)
            if self.frozen2 and of_y:
                (total,) = totals(vectors, self.partial, parts, vector, [self.taps + (2 if self.norm1 else 0)])
                dot = bind("dot", of_y[(0,)] - total * self.frozen2.load("mean", vector))
                self.frozen2.set_gradients(vector, total, dot)
