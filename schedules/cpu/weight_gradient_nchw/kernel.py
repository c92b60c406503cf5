"""The kernel of wgrad in NCHW (``shared.weight_gradient`` says what is summed).

A tile of dy stays in registers while the rows of x that it meets go by: an x is loaded once for each kernel column, and
meets as many dy as there are kernel rows in the group. The lanes of each sum are added up once, at the end.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import s_tir, tirx

from dwconv.schedules.cpu.emit.storage import store_rounded
from dwconv.schedules.cpu.emit.words import argument, parallel
from dwconv.schedules.cpu.shared.threads import PARALLEL_SUMS
from dwconv.schedules.cpu.weight_gradient_nchw.channel import ChannelGradient, ChannelResults, sum_bias
from dwconv.schedules.cpu.weight_gradient_nchw.cut import Cut
from dwconv.schedules.cpu.weight_gradient_nchw.tile import PlaneInputs
from dwconv.schedules.emit import BATCH, Expr, bind, kernel, serial, store, taps_of


def schedule_weight_gradient(cut: Cut) -> s_tir.Schedule:
    """Parameters: x (n, C, H, W), dy (n, C·M, OH, OW), dw (C·M, KH, KW), dbias (C·M) if there is a bias and,
    if tasks are planes, what each image gives: workspace (n, C·M, KH, KW) and, for the bias, workspace_1 (n, C·M).
    In 3-D with depths before heights."""
    work, channels = cut.work, cut.work.channels
    n = tirx.Var(BATCH, "int32")
    with kernel() as builder:
        inputs = PlaneInputs.arguments(cut, n)
        dw = argument("dw", work.weight_shape, work.dtype)
        dbias = argument("dbias", (channels,), work.dtype) if work.bias else None
        if cut.config.parallel == "channels":
            for channel in parallel("channel", channels):
                sum_channel(inputs, channel, (0, n), ChannelResults(work.axes, dw, dbias))
        else:
            partial = argument("workspace", (n, *work.weight_shape))
            partial_bias = argument("workspace_1", (n, channels)) if work.bias else None
            for task in parallel("task", n * channels):
                image, channel = bind("image", task // channels), bind("channel", task % channels)
                results = ChannelResults(work.axes, partial, partial_bias, (image,))
                sum_channel(inputs, channel, (image, image + 1), results)
            add_images(partial, dw, n)
            if work.bias:
                add_images(partial_bias, dbias, n)
    return s_tir.Schedule(builder.get())


def sum_channel(inputs: PlaneInputs, channel: Expr, images: tuple[Expr, Expr], results: ChannelResults) -> None:
    """The gradients of ``channel`` over the images from the first up to the second of ``images``."""
    work = inputs.cut.work
    if work.axes.is_3d and work.bias:  # which meets other planes of dy than any of the taps
        sum_bias(inputs, channel, images, results)
    for kd in serial("kd", work.depths.taps):
        ChannelGradient.allocate(inputs, kd).sum_images(channel, images, results)


def add_images(partial: Any, result: Any, n: Expr) -> None:
    """In the order of the images, whichever thread summed them: the same bits every time."""
    channels, *taps = (int(size) for size in result.shape)
    loop = parallel if channels * math.prod(taps) > PARALLEL_SUMS else serial
    for channel in loop("channel", channels):
        if result.dtype != "float32":  # which would round every sum: they stay where those of the first image are
            for image in serial("image", 1, n):
                for at in taps_of(taps):
                    total = partial[(0, channel, *at)] + partial[(image, channel, *at)]
                    store(partial, total, 0, channel, *at)
            for at in taps_of(taps):
                store_rounded(result, partial[(0, channel, *at)], channel, *at)
            continue
        for at in taps_of(taps):
            store(result, tirx.FloatImm("float32", 0.0), channel, *at)
        for image in serial("image", n):
            for at in taps_of(taps):
                store(result, result[(channel, *at)] + partial[(image, channel, *at)], channel, *at)
