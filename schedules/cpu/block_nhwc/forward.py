"""The forward passes of a block. In training:

x ─► moments ─► mean1, var1 ─► scale, shift           of InstanceNorms image by image
x ─► scale, shift, act1 ─► ring of rows ─► convolution ─► y, its moments ─► mean2, var2 ─► scale, shift
y ─► scale, shift, act2 ─► z

In evaluation, and of frozen norms, statistics are given, so that x is read once and z is written once:

mean, var ─► scale, shift, of each norm
x ─► scale, shift, act1 ─► ring of rows ─► convolution, in registers ─► scale, shift, act2 ─► z
                                                                  └► y, if the backward pass of a frozen norm reads it
"""

from __future__ import annotations

from tvm import s_tir, tirx

from dwconv.schedules.activations import ON_CPU
from dwconv.schedules.cpu.block_nhwc.cut import FusedBlockCut
from dwconv.schedules.cpu.block_nhwc.kernel import BlockKernel
from dwconv.schedules.cpu.block_nhwc.norms import (
    FIRST,
    PIVOT,
    SECOND,
    Held,
)
from dwconv.schedules.cpu.block_nhwc.tasks import RowsTask, parts_of_tasks, tasks
from dwconv.schedules.cpu.emit.vectors import Accumulators, NumberedVector, sum_in_pairs
from dwconv.schedules.cpu.emit.words import load, prefetch, store_rounded
from dwconv.schedules.emit import BATCH, Expr, bind, kernel, planes_met, serial, store


def schedule(cut: FusedBlockCut) -> s_tir.Schedule:
    """Parameters, images with their rows and columns as one axis of pixels: x (n, H·W, C), w (C, KH, KW), γ and β of
    each norm (C,), of a frozen one also mean and variance, z and y (n, OH·OW, C), mean and variance of each other norm
    (C,), and workspaces."""
    n = tirx.Var(BATCH, "int32")
    with kernel() as builder:
        forward = CpuBlockForward(cut, n, gathers="fprop", sums=0 if cut.learns == (False, False) else 3)
        learns1, learns2 = cut.learns
        forward.set_normalised(None if learns1 else forward.norm1, None if learns2 else forward.norm2)
        for _ in forward.batches():
            if learns1:
                assert forward.norm1 is not None
                forward.inputs.sum_moments(forward.tensors["x"], forward.partial)
                forward.find_statistics(forward.norm1, forward.inputs.parts)
            forward.pack()
            forward.convolve()
            if learns2:
                assert forward.norm2 is not None
                forward.find_statistics(forward.norm2, parts_of_tasks(cut, forward.batch))
                forward.outputs.map(forward.tensors["z"], forward.activated)
    return s_tir.Schedule(builder.get())


class CpuBlockForward(BlockKernel):
    def activated(self, image: Expr, pixel: Expr, vector: NumberedVector) -> Expr:
        """What is made of y."""
        assert self.norm2 is not None
        y = load(self.tensors["y"], image, pixel, self.vectors.span(vector.start))
        return ON_CPU.activation(self.cut.block.act2, self.norm2.normalised(y, vector))

    def read(self, image: Expr, pixel: Expr, vector: NumberedVector) -> Expr:
        """What the convolution reads."""
        x = load(self.tensors["x"], image, pixel, self.vectors.span(vector.start))
        return ON_CPU.activation(self.cut.block.act1, self.norm1.normalised(x, vector) if self.norm1 else x)

    def convolve(self) -> None:
        """y, and its moments if a norm follows that learns them; z after one that has them."""
        cut, vectors = self.cut, self.vectors
        for task in tasks(cut, vectors, self.batch):
            held = Held(vectors, self.partial, task.part, rows=2, count=cut.block_vectors) if cut.learns[1] else None
            if held:
                held.clear(task.first_vector)
                self._take_pivots(task)
            self.convolve_rows(task, held)

    def convolve_rows(self, task: RowsTask, held: Held | None) -> None:
        """The rows of a task."""
        cut, vectors, ring = self.cut, self.vectors, task.ring()

        def produce(pixel: Expr, vector: NumberedVector) -> Expr:
            if cut.prefetches:
                prefetch(self.tensors["x"], task.image, pixel + cut.axes.columns.inputs, vector.start)
            return self.read(task.image, pixel, vector)

        for row in task.rows_in_bands(held):
            ring.follow(row, first=task.top, of=task.vector, produce=produce)
            for inner, left, width, v in task.all_tiles():
                sums = Accumulators(vectors, width)
                number = task.first_vector + v
                for tap, source_row, source_inner in task.met(row, inner):
                    for at, pairs in cut.axes.columns.reads(width).items():
                        value = ring.load(source_row, source_inner, v, cut.axes.columns.origin(left) + at)
                        for out, kw in pairs:
                            sums.add((out,), value * self.weights.vector(number, 0, *tap, kw))
                first = (row * cut.across.outputs + inner) * cut.axes.columns.outputs + left
                self.store(task, held, first, v, [sums[(out,)] for out in range(width)])

    def store(self, task: RowsTask, held: Held | None, first: Expr, v: Expr, sums: list[Expr]) -> None:
        """y of a tile, whose pixels are those from ``first`` on; z, where the statistics of y are known."""
        vector = task.vector(v)
        pixel = bind("pixel", first)
        values = sums if self.cut.workload.pass_ == "inference" else [bind("sum", each) for each in sums]
        for at, value in enumerate(values):
            place = (task.image, pixel + at, self.vectors.span(vector.start))
            if "y" in self.tensors:
                store_rounded(self.tensors["y"], value, *place)
            if self.norm2 and not held:
                z = ON_CPU.activation(self.cut.block.act2, self.norm2.normalised(value, vector))
                store_rounded(self.tensors["z"], z, *place)
        if held:
            pivot = bind("pivot", self.partial[task.part, PIVOT, self.vectors.slot(vector.number)])
            off = [bind("off", value - pivot) for value in values]
            held.add(v, FIRST, sum_in_pairs(off))
            held.add(v, SECOND, sum_in_pairs([each * each for each in off]))

    def _take_pivots(self, task: RowsTask) -> None:
        """The result in the middle of the task, where no padding is met if anywhere it is not."""
        columns, across, vectors = self.cut.axes.columns, self.cut.across, self.vectors
        row, column = bind("middle", (task.top + task.bottom) // 2), columns.outputs // 2
        for v in serial("vector", self.cut.block_vectors):
            vector = task.vector(v)
            pivot = Accumulators(vectors, 1)
            for tap, source_row, source_inner in task.met(row, across.outputs // 2):
                for kw, source_column in planes_met(columns, column):
                    pixel = (source_row * across.inputs + source_inner) * columns.inputs + source_column
                    value = self.read(task.image, pixel, vector)
                    pivot.add((0,), value * self.weights.vector(vector.number, 0, *tap, kw))
            store(self.partial, pivot[(0,)], task.part, PIVOT, vectors.slot(vector.number))
