"""The forward pass of a block.

x ─► moments ─► mean1, var1 ─► scale, shift
x ─► scale, shift, act1 ─► ring of rows ─► convolution ─► y, its moments ─► mean2, var2 ─► scale, shift
y ─► scale, shift, act2 ─► z
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from dwconv.schedules.cpu.block_nhwc.channels import TABLE_ROWS, NormTensors, norm_arguments
from dwconv.schedules.cpu.block_nhwc.cut import Cut
from dwconv.schedules.cpu.block_nhwc.pixels import Pixels
from dwconv.schedules.cpu.block_nhwc.sums import FIRST, PIVOT, SECOND, Held, Parts, channel_loop, combined_moments
from dwconv.schedules.cpu.block_nhwc.tasks import Task, parts_of_tasks, tasks
from dwconv.schedules.cpu.emit.activations import activation
from dwconv.schedules.cpu.emit.channel_weights import PackedWeights
from dwconv.schedules.cpu.emit.vectors import Accumulators, NumberedVector, Vectors, sum_in_pairs
from dwconv.schedules.cpu.emit.words import argument, prefetch
from dwconv.schedules.emit import BATCH, Expr, bind, kernel, planes_met, serial, store
from dwconv.schedules.gather import Gather


def schedule_forward(cut: Cut) -> s_tir.Schedule:
    """Parameters, images with their rows and columns as one axis of pixels: x (n, H·W, C), w (C, KH, KW), γ and β of
    each norm (C,), z and y (n, OH·OW, C), mean and variance of each norm (C,), and workspaces."""
    n = tirx.Var(BATCH, "int32")
    with kernel() as builder:
        forward = Forward.arguments(cut, n)
        if forward.norm1:
            forward.inputs.sum_moments(forward.x, forward.partial)
            forward.finish(forward.norm1, forward.inputs.parts)
        forward.weights.pack()
        forward.convolve()
        if forward.norm2:
            forward.finish(forward.norm2, parts_of_tasks(cut, n))
            forward.outputs.map(forward.z, forward.activated)
    return s_tir.Schedule(builder.get())


@dataclass(frozen=True, kw_only=True)
class Forward:
    cut: Cut
    vectors: Vectors
    n: Expr
    x: Any
    y: Any
    z: Any
    norm1: NormTensors | None
    norm2: NormTensors | None
    weights: PackedWeights
    partial: Any

    @classmethod
    def arguments(cls, cut: Cut, n: Expr) -> Forward:
        """Emits the kernel's parameters."""
        workload, block = cut.workload, cut.block
        channels, vectors = workload.channels, Vectors(workload.channels, cut.lanes)
        work = Gather.of(workload.convolution("fprop"))
        pixels = [rows * columns for rows, columns in (workload.input_size, workload.output_size)]
        x = argument("x", (n, pixels[0], channels))
        w = argument("w", (channels, *workload.kernel))
        norms = [block.norm1, block.norm2]
        named = [norm_arguments((f"gamma{at}", f"beta{at}"), channels) if norm else {} for at, norm in _numbered(norms)]
        z = argument("z", (n, pixels[1], channels)) if block.norm2 else None
        y = argument("y", (n, pixels[1], channels))
        for (at, norm), tensors in zip(_numbered(norms), named, strict=True):
            tensors.update(norm_arguments((f"mean{at}", f"var{at}"), channels) if norm else {})
        slots = vectors.count * vectors.lanes
        packed = argument("workspace", (vectors.count, 1, *workload.kernel, vectors.lanes))
        partial = argument("workspace_1", (n * cut.most_parts, 3, slots))
        tables = [
            argument(f"workspace_{1 + at}", (TABLE_ROWS, slots)) if norm else None for at, norm in _numbered(norms)
        ]
        norm1, norm2 = (
            NormTensors(norm=norm, vectors=vectors, named=tensors, table=table) if norm else None
            for norm, tensors, table in zip(norms, named, tables, strict=True)
        )
        return cls(
            cut=cut,
            vectors=vectors,
            n=n,
            x=x,
            y=y,
            z=z,
            norm1=norm1,
            norm2=norm2,
            weights=PackedWeights(work=work, vectors=vectors, w=w, packed=packed),
            partial=partial,
        )

    @property
    def inputs(self) -> Pixels:
        return self._pixels(*self.cut.workload.input_size)

    @property
    def outputs(self) -> Pixels:
        return self._pixels(*self.cut.workload.output_size)

    def _pixels(self, rows: int, columns: int) -> Pixels:
        return Pixels(cut=self.cut, vectors=self.vectors, n=self.n, rows=rows, columns=columns)

    def finish(self, norm: NormTensors, parts: Parts) -> None:
        """Statistics of a norm from the moments of parts."""
        for vector in channel_loop(self.vectors, self.partial):
            mean, variance = combined_moments(self.vectors, self.partial, parts, vector)
            norm.store("mean", mean, vector)
            norm.store("var", variance, vector)
            norm.set_normalised(vector, mean, variance)

    def activated(self, image: Expr, pixel: Expr, vector: NumberedVector) -> Expr:
        """What is made of y."""
        assert self.norm2 is not None
        y = self.y[image, pixel, self.vectors.span(vector.start)]
        return activation(self.cut.block.act2, self.norm2.normalised(y, vector))

    def read(self, image: Expr, pixel: Expr, vector: NumberedVector) -> Expr:
        """What the convolution reads."""
        x = self.x[image, pixel, self.vectors.span(vector.start)]
        return activation(self.cut.block.act1, self.norm1.normalised(x, vector) if self.norm1 else x)

    def convolve(self) -> None:
        """y, and its moments if a norm follows."""
        cut, vectors = self.cut, self.vectors
        for task in tasks(cut, vectors, self.n):
            held = Held.of(vectors, self.partial, task.part, rows=2, count=cut.block_vectors) if self.norm2 else None
            if held:
                held.clear(task.first_vector)
                self._take_pivots(task)
            ring = task.ring()

            def produce(pixel: Expr, vector: NumberedVector, image: Expr = task.image) -> Expr:
                if cut.prefetches:
                    prefetch(self.x, image, pixel + cut.axes.columns.inputs, vector.start)
                return self.read(image, pixel, vector)

            for row in task.rows_in_bands(held):
                ring.follow(row, first=task.top, of=task.vector, produce=produce)
                for left, width, v in task.tiles():
                    sums = Accumulators(vectors, width)
                    number = task.first_vector + v
                    for kh, source_row in planes_met(cut.axes.rows, row):
                        for at, pairs in cut.axes.columns.reads(width).items():
                            value = ring.load(source_row, v, cut.axes.columns.origin(left) + at)
                            for out, kw in pairs:
                                sums.add((out,), value * self.weights.vector(number, 0, 0, kh, kw))
                    self._store(task, held, row, left, v, [sums[(out,)] for out in range(width)])

    def _store(self, task: Task, held: Held | None, row: Expr, left: Expr, v: Expr, sums: list[Expr]) -> None:
        vector = task.vector(v)
        pixel = bind("pixel", row * self.cut.axes.columns.outputs + left)
        values = [bind("sum", each) for each in sums]
        for at, value in enumerate(values):
            store(self.y, value, task.image, pixel + at, self.vectors.span(vector.start))
        if held:
            pivot = bind("pivot", self.partial[task.part, PIVOT, self.vectors.slot(vector.number)])
            off = [bind("off", value - pivot) for value in values]
            held.add(v, FIRST, sum_in_pairs(off))
            held.add(v, SECOND, sum_in_pairs([each * each for each in off]))

    def _take_pivots(self, task: Task) -> None:
        """The result in the middle of the task, where no padding is met if anywhere it is not."""
        axes, vectors = self.cut.axes, self.vectors
        columns = axes.columns
        row, column = bind("middle", (task.top + task.bottom) // 2), columns.outputs // 2
        for v in serial("vector", self.cut.block_vectors):
            vector = task.vector(v)
            pivot = Accumulators(vectors, 1)
            for kh, source_row in planes_met(axes.rows, row):
                for kw, source_column in planes_met(columns, column):
                    value = self.read(task.image, source_row * columns.inputs + source_column, vector)
                    pivot.add((0,), value * self.weights.vector(vector.number, 0, 0, kh, kw))
            store(self.partial, pivot[(0,)], task.part, PIVOT, vectors.slot(vector.number))


def _numbered(norms: list[Any]) -> list[tuple[int, Any]]:
    return list(enumerate(norms, start=1))
