"""A block in evaluation: statistics are given, so that x is read once and z is written once.

mean, var ─► scale, shift, of each norm
x ─► scale, shift, act1 ─► ring of rows ─► convolution, in registers ─► scale, shift, act2 ─► z
"""

from __future__ import annotations

from tvm import s_tir, tirx

from dwconv.schedules.cpu.block_nhwc.cut import Cut
from dwconv.schedules.cpu.block_nhwc.forward import Forward
from dwconv.schedules.cpu.block_nhwc.sums import Held
from dwconv.schedules.cpu.block_nhwc.tasks import Task, tasks
from dwconv.schedules.cpu.emit.activations import activation
from dwconv.schedules.cpu.emit.storage import store_rounded
from dwconv.schedules.cpu.emit.vectors import NumberedVector
from dwconv.schedules.emit import BATCH, Expr, bind, kernel, serial


def schedule_inference(cut: Cut) -> s_tir.Schedule:
    """Parameters, images with their rows and columns as one axis of pixels: x (n, H·W, C), w (C, KH, KW), γ, β, mean
    and variance of each norm (C,), z (n, OH·OW, C), or y without a second norm, and workspaces."""
    n = tirx.Var(BATCH, "int32")
    with kernel() as builder:
        inference = Inference.arguments(cut, n, gathers="fprop", sums=0)
        inference.set_normalised()
        inference.weights.pack()
        for task in tasks(cut, inference.vectors, n):
            inference.convolve_rows(task, None)
    return s_tir.Schedule(builder.get())


class Inference(Forward):
    def set_normalised(self) -> None:
        """Scales and shifts, from the statistics that are given."""
        for norm in filter(None, (self.norm1, self.norm2)):
            for number in serial("vector", self.vectors.count):
                vector = NumberedVector(number, bind("c", self.vectors.start(number)))
                norm.set_normalised(vector, norm.load("mean", vector), norm.load("var", vector))

    def store(self, task: Task, held: Held | None, row: Expr, left: Expr, v: Expr, sums: list[Expr]) -> None:
        vector = task.vector(v)
        pixel = bind("pixel", row * self.cut.axes.columns.outputs + left)
        result = self.tensors["z" if self.norm2 else "y"]
        for at, value in enumerate(sums):
            z = activation(self.cut.block.act2, self.norm2.normalised(value, vector)) if self.norm2 else value
            store_rounded(result, z, task.image, pixel + at, self.vectors.span(vector.start))
