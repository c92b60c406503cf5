"""The kernel of wgrad in NCHW (``shared.weight_gradient`` says what is summed).

A tile of dy stays in registers while the rows of x that it meets go by: an x is loaded once for each kernel column, and
meets as many dy as there are kernel rows in the group. The lanes of each sum are added up once, at the end.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tvm import s_tir, tirx

from dwconv.problems.workload import Workload
from dwconv.schedules.any_size import at_any_size
from dwconv.schedules.cpu.emit.lanes import extent
from dwconv.schedules.cpu.emit.loops import WHOLE_ROW, ColumnBlock, is_one
from dwconv.schedules.cpu.emit.storage import store_rounded
from dwconv.schedules.cpu.emit.words import argument, parallel
from dwconv.schedules.cpu.shared.threads import PARALLEL_SUMS
from dwconv.schedules.cpu.weight_gradient_nchw.channel import ChannelGradient, ChannelResults, sum_bias
from dwconv.schedules.cpu.weight_gradient_nchw.cut import Cut
from dwconv.schedules.cpu.weight_gradient_nchw.tile import PlaneInputs
from dwconv.schedules.emit import BATCH, Expr, bind, kernel, serial, store, taps_of


def schedule_weight_gradient(workload: Workload, cut: Cut) -> s_tir.Schedule:
    """Parameters: x (n, C, H, W), dy (n, C·M, OH, OW), dw (C·M, KH, KW), dbias (C·M) if there is a bias and,
    if tasks are planes, what each image gives: workspace (n, C·M, KH, KW) and, for the bias, workspace_1 (n, C·M).
    In 3-D with depths before heights."""
    cut = at_any_size(cut, workload)
    if workload.any_channels:
        cut = replace(cut, work=replace(cut.work, x_pitch=cut.work.channels))
    work, channels = cut.work, cut.work.channels
    n = tirx.Var(BATCH, "int32")
    with kernel() as builder:
        inputs = PlaneInputs.arguments(cut, n)
        dw = argument("dw", work.weight_shape, work.dtype)
        dbias = argument("dbias", (channels,), work.dtype) if work.bias else None
        if cut.config.parallel == "channels":
            inputs = inputs.with_runs()
            for channel in parallel("channel", channels):
                sum_channel(inputs, channel, (0, n), ChannelResults(work.axes, dw, dbias))
        else:
            blocks = cut.column_blocks
            parts = (n,) if is_one(blocks) else (n, blocks)
            partial = argument("workspace", (*parts, *work.weight_shape))
            partial_bias = argument("workspace_1", (*parts, channels)) if work.bias else None
            inputs = inputs.with_runs()
            for task in parallel("task", n * (blocks * channels)):
                image, channel = bind("image", task // (blocks * channels)), bind("channel", task % channels)
                block = WHOLE_ROW
                if not is_one(blocks):
                    block = ColumnBlock(bind("block", task // channels % blocks), blocks)
                at = (image,) if is_one(blocks) else (image, block.number)
                results = ChannelResults(work.axes, partial, partial_bias, at)
                sum_channel(inputs, channel, (image, image + 1), results, block)
            add_images(partial, dw, n, blocks)
            if work.bias:
                add_images(partial_bias, dbias, n, blocks)
    return s_tir.Schedule(builder.get())


def sum_channel(
    inputs: PlaneInputs,
    channel: Expr,
    images: tuple[Expr, Expr],
    results: ChannelResults,
    columns: ColumnBlock = WHOLE_ROW,
) -> None:
    """The gradients of ``channel`` over the images from the first up to the second of ``images``, or over a block of
    their columns."""
    work = inputs.cut.work
    if work.axes.is_3d and work.bias:  # which meets other planes of dy than any of the taps
        sum_bias(inputs, channel, images, results)
    for kd in serial("kd", work.depths.taps):
        ChannelGradient.allocate(inputs, kd).sum_images(channel, images, results, columns)


def add_images(partial: Any, result: Any, n: Expr, blocks: Expr) -> None:
    """In the order of the images, and of the blocks of each, whichever thread summed them: the same bits every time."""

    def at(part: Expr) -> tuple[Expr, ...]:
        return (part,) if is_one(blocks) else (part // blocks, part % blocks)

    parts = n * blocks
    channels, taps = extent(result, 0), [int(size) for size in result.shape[1:]]
    is_little = isinstance(channels, int) and channels * math.prod(taps) <= PARALLEL_SUMS
    loop = serial if is_little else parallel
    for channel in loop("channel", channels):
        if result.dtype != "float32":  # which would round every sum: they stay where those of the first image are
            for part in serial("image", 1, parts):
                for tap in taps_of(taps):
                    total = partial[(*at(0), channel, *tap)] + partial[(*at(part), channel, *tap)]
                    store(partial, total, *at(0), channel, *tap)
            for tap in taps_of(taps):
                store_rounded(result, partial[(*at(0), channel, *tap)], channel, *tap)
            continue
        for tap in taps_of(taps):
            store(result, tirx.FloatImm("float32", 0.0), channel, *tap)
        for part in serial("image", parts):
            for tap in taps_of(taps):
                store(result, result[(channel, *tap)] + partial[(*at(part), channel, *tap)], channel, *tap)
