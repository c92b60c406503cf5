"""The kernel of wgrad in NCHW (``shared.weight_gradient`` says what is summed).

A tile of dy stays in registers while the rows of x that it meets go by: an x is loaded once for each kernel column, and
meets as many dy as there are kernel rows in the group. The lanes of each sum are added up once, at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.any_size import at_any_size
from dwconv.schedules.cpu.emit.loops import WHOLE_ROW, ColumnBlock, OutputRange, is_one, live_outputs, tile_columns
from dwconv.schedules.cpu.emit.rows import InPlace, Plane, ReadRows, StagedPlanes
from dwconv.schedules.cpu.emit.vectors import Accumulators, extent, load_columns, total
from dwconv.schedules.cpu.emit.words import argument, parallel, scratch, store_rounded
from dwconv.schedules.cpu.shared.limits import PARALLEL_SUMS
from dwconv.schedules.cpu.shared.weight_gradient import RegisterTaps, pieces
from dwconv.schedules.cpu.wgrad_nchw.cut import WgradNchwCut
from dwconv.schedules.cpu.wgrad_nchw.plane_pair import PlaneInputs, PlanePair
from dwconv.schedules.emit import BATCH, Expr, bind, kernel, serial, store, taps_of
from dwconv.schedules.space import Config
from dwconv.schedules.taps import Axes


def schedule(workload: Workload, config: Config, target: CpuTarget) -> s_tir.Schedule:
    """Parameters: x (n, C, H, W), dy (n, C·M, OH, OW), dw (C·M, KH, KW), dbias (C·M) if there is a bias and,
    if tasks are planes, what each image gives: workspace (n, C·M, KH, KW) and, for the bias, workspace_1 (n, C·M).
    In 3-D with depths before heights."""
    cut = at_any_size(WgradNchwCut.of(workload, config, target), workload)
    work, channels = cut.work, cut.work.channels
    n = tirx.Var(BATCH, "int32")
    with kernel() as builder:
        inputs = PlaneInputs(cut, n)
        dw = argument("dw", work.weight_shape, work.dtype)
        dbias = argument("dbias", (channels,), work.dtype) if work.bias else None
        if cut.config.parallel == "channels":
            inputs.cut_rows()
            for channel in parallel("channel", channels):
                sum_channel(inputs, channel, (0, n), ChannelResults(work.axes, dw, dbias))
        else:
            blocks = cut.column_blocks
            parts = (n,) if is_one(blocks) else (n, blocks)
            partial = argument("workspace", (*parts, *work.weight_shape))
            partial_bias = argument("workspace_1", (*parts, channels)) if work.bias else None
            inputs.cut_rows()
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
        ChannelGradient(inputs, kd).sum_images(channel, images, results, columns)


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


@dataclass(frozen=True)
class ChannelResults:
    """Where the gradients of the weights and of the bias go; ``at`` is the index before that of the channel."""

    axes: Axes
    dw: Any
    dbias: Any
    """None if there is no bias."""
    at: tuple[Expr, ...] = ()

    def store_weight(self, value: Expr, channel: Expr, kd: Expr, kh: Expr, kw: Expr) -> None:
        store_rounded(self.dw, value, *self.at, channel, *self.axes.index(kd, kh, kw))

    def store_bias(self, value: Expr, channel: Expr) -> None:
        store_rounded(self.dbias, value, *self.at, channel)


class ChannelGradient:
    """The scratch memory of a task, which goes through the planes of one channel for a tap along the depth."""

    def __init__(self, inputs: PlaneInputs, kd: Expr) -> None:
        """Emits the memory. ``totals``: the vectors of sums of all taps, where they are too many for registers;
        ``staged``: rows of x, where they are not read in place."""
        cut, vectors, rows, columns = inputs.cut, inputs.vectors, inputs.rows, inputs.columns
        self.inputs, self.kd = inputs, kd
        self.totals: Any = None
        self.staged: StagedPlanes | None = None
        if not cut.is_one_group:
            self.totals = scratch("totals", rows.taps, columns.taps, vectors.lanes)
            for kh in serial("kh", rows.taps):
                for kw in serial("kw", columns.taps):
                    store(self.totals, vectors.zero(), kh, kw, vectors.span(0))
        if cut.config.stage == "scratch":
            self.staged = StagedPlanes.of(rows, columns, vectors=vectors, block_rows=cut.config.block_h)

    def sum_images(
        self, channel: Expr, images: tuple[Expr, Expr], results: ChannelResults, columns: ColumnBlock
    ) -> None:
        """The gradients of ``channel`` over the images from the first up to the second of ``images``, or over a block
        of their columns."""
        inputs, cut = self.inputs, self.inputs.cut
        block_h, vectors = cut.config.block_h, inputs.vectors
        sums = Accumulators(vectors, inputs.rows.taps, inputs.columns.taps) if cut.is_one_group else None
        bias = Accumulators(vectors, 1) if cut.work.bias and not cut.work.axes.is_3d else None
        for image in serial("image", *images):
            for x, dy in self._planes(image, channel):
                for block in serial("block", cut.blocks):
                    top = bind("top", block * block_h)
                    planes = PlanePair(inputs=inputs, source=self._read(x, top), dy=dy, columns=columns)
                    if bias is not None:
                        add_gradient(bias, inputs, dy, top, columns)
                    self._add_block(sums, planes, top)
        if bias is not None:
            results.store_bias(total(vectors, bias[(0,)]), channel)
        for kh, kw, value in self._sums(sums):
            results.store_weight(inputs.total(value, kw), channel, self.kd, kh, kw)

    def _planes(self, image: Expr, channel: Expr) -> Iterator[tuple[Plane, Plane]]:
        """A loop over the planes of x and of dy that meet."""
        work = self.inputs.cut.work
        source, depths = channel // work.multiplier, work.depths
        if not work.axes.is_3d:
            yield Plane(image, source), Plane(image, channel)
            return
        live = live_outputs(depths, self.kd, OutputRange(0, depths.outputs))
        for depth in serial("depth", live.first, live.stop):
            x_depth = bind("x_depth", depths.origin(depth) + depths.shift + self.kd * depths.step)
            yield Plane(image, source, x_depth), Plane(image, channel, depth)

    def _add_block(self, sums: Accumulators | None, planes: PlanePair, top: Expr) -> None:
        """All taps over a block of rows, to ``sums`` or, where these are too many for registers, to ``totals``."""
        vectors = self.inputs.vectors
        for taps in self._tap_groups():
            if sums is not None:
                planes.add_rows(sums, taps, top)
                continue
            group = Accumulators(vectors, taps.height, taps.width)
            planes.add_rows(group, taps, top)
            for (a, b), value in group.items():
                where = (taps.kh + a, taps.kw + b, vectors.span(0))
                store(self.totals, self.totals[where] + value, *where)

    def _tap_groups(self) -> Iterator[RegisterTaps]:
        """Groups of kernel rows are a loop, and what is left over; those of kernel columns follow each other."""
        cut = self.inputs.cut
        if cut.unroll == "group":
            for columns in pieces(cut.work.columns.taps, cut.config.group_kw):
                for turn in serial("kw", columns.count):
                    kw = bind("first_kw", columns.first + turn * columns.size)
                    yield RegisterTaps(kh=0, height=1, kw=kw, width=columns.size)
            return
        for rows in self.inputs.cut.row_groups:
            for turn in serial("kh", rows.count):
                for kw, width in self.inputs.cut.column_groups:
                    kh = bind("kh", rows.first + turn * rows.size)
                    yield RegisterTaps(kh=kh, height=rows.size, kw=kw, width=width)

    def _sums(self, sums: Accumulators | None) -> Iterator[tuple[Expr, int, Expr]]:
        """Every tap with its vector of sums."""
        if sums is not None:
            for (kh, kw), value in sums.items():
                yield kh, kw, value
            return
        for row in serial("kh", self.inputs.rows.taps):
            taps = self.inputs.columns.taps
            for kw in serial("kw", taps) if self.inputs.cut.unroll == "group" else range(taps):
                yield row, kw, bind("value", self.totals[row, kw, self.inputs.vectors.span(0)])

    def _read(self, plane: Plane, top: Expr) -> ReadRows:
        inputs, rows = self.inputs, self.inputs.rows
        if self.staged is None:
            return InPlace(inputs.vectors, inputs.columns, inputs.x, plane)
        return self.staged.fill(inputs.x, plane, bind("x_top", rows.origin(top) + rows.spanned(1)[0]))


def sum_bias(inputs: PlaneInputs, channel: Expr, images: tuple[Expr, Expr], results: ChannelResults) -> None:
    """The gradient of the bias of ``channel``, in 3-D: all planes of dy count."""
    cut, bias = inputs.cut, Accumulators(inputs.vectors, 1)
    for image in serial("image", *images):
        for depth in serial("depth", cut.work.depths.outputs):
            for block in serial("block", cut.blocks):
                top = bind("top", block * cut.config.block_h)
                add_gradient(bias, inputs, Plane(image, channel, depth), top, WHOLE_ROW)
    results.store_bias(total(inputs.vectors, bias[(0,)]), channel)


def add_gradient(bias: Accumulators, inputs: PlaneInputs, plane: Plane, top: Expr, columns: ColumnBlock) -> None:
    """Sums the block of dy from row ``top`` on, or a block of its columns."""
    for row in serial("row", inputs.height(top)):
        for column, run in tile_columns(inputs.runs_of_dy, columns):
            at = plane.row(top + row)
            bias.add((0,), load_columns(inputs.vectors, inputs.dy, at, column, is_tested=run.is_tested))
