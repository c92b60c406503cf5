"""The forward pass: x ─► convolution ─► rows of y ─► LayerNorm ─► z, while these rows are in the cache."""

from __future__ import annotations

from tvm import s_tir, tirx

from dwconv.schedules.cpu.emit.channel_weights import PackedWeights
from dwconv.schedules.cpu.emit.vectors import Vectors
from dwconv.schedules.cpu.emit.words import argument, seen_as
from dwconv.schedules.cpu.gather_nhwc.kernel import tasks
from dwconv.schedules.cpu.gather_nhwc.tensors import PixelTensors
from dwconv.schedules.cpu.layer_norm_nhwc.cut import Cut
from dwconv.schedules.cpu.layer_norm_nhwc.pixels import PixelNorm
from dwconv.schedules.emit import BATCH, bind, kernel, least


def schedule_forward(cut: Cut) -> s_tir.Schedule:
    """Parameters: x (n, H, W, C), w (C, KH, KW), bias (C,) if there is one, γ and β (C,), z and y (n, OH, OW, C),
    workspace: packed weights."""
    workload, gather = cut.workload, cut.gather
    n, channels, work = tirx.Var(BATCH, "int32"), workload.channels, gather.work
    vectors = Vectors(channels, gather.lanes)
    rows, columns = work.axes.outputs
    with kernel() as builder:
        x = argument("x", (n, *work.axes.inputs, channels), workload.dtype)
        w = argument("w", (channels, *workload.kernel), workload.dtype)
        bias = argument("bias", (channels,), workload.dtype) if workload.bias else None
        gamma, beta = (argument(name, (channels,)) for name in ("gamma2", "beta2"))
        z, y = (argument(name, (n, rows, columns, channels), workload.dtype) for name in ("z", "y"))
        packed = argument("workspace", (vectors.count, 1, *workload.kernel, vectors.lanes))
        tensors = PixelTensors(
            work=work,
            vectors=vectors,
            source=x,
            weights=PackedWeights(work=work, vectors=vectors, w=w, packed=packed),
            bias=bias,
            dy=None,
            result=y,
            stream=None,
        )
        z, y = (seen_as(image, n, rows * columns, channels) for image in (z, y))
        norm = PixelNorm(vectors=vectors, eps=cut.norm.eps)
        tensors.weights.pack()
        for task in tasks(tensors, gather, n):
            for tile in task.tiles():
                tile.sum()
            stop = least(task.top + gather.rows.block_rows, rows)
            norm.normalise(
                y,
                z,
                gamma=gamma,
                beta=beta,
                image=task.image,
                first=bind("first", task.top * columns),
                stop=bind("stop", stop * columns),
            )
    return s_tir.Schedule(builder.get())
