"""The passes of a convolution with its LayerNorm. Forward, while rows of y are in the cache:

x ─► convolution ─► rows of y ─► LayerNorm ─► z

Backward, strip by strip of dx, with all that is read and written between in the cache:

dz, y ─► rows of g, the gradient of y, that the strip is the first to read, and terms of dγ and dβ
   g ─► dgrad ─► dx of the strip
x, g ─► wgrad of the rows that are new ─► terms of dw and of the bias

A block of rows is a task, whose terms are a part of the sums of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tvm import s_tir, tirx

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.any_size import any_axes
from dwconv.schedules.cpu.emit.loops import WHOLE_ROW, OutputRange, is_one
from dwconv.schedules.cpu.emit.pixels import PackedWeights
from dwconv.schedules.cpu.emit.vectors import Accumulators, Vectors
from dwconv.schedules.cpu.emit.words import argument, parallel, scratch, seen_as, settled
from dwconv.schedules.cpu.fprop_dgrad_nhwc.kernel import PixelTask, tasks
from dwconv.schedules.cpu.fprop_dgrad_nhwc.tensors import PixelTensors
from dwconv.schedules.cpu.layer_norm_nhwc.cut import LayerNormCut
from dwconv.schedules.cpu.layer_norm_nhwc.pixels import PixelNorm, Terms
from dwconv.schedules.cpu.shared.limits import PARALLEL_SUMS
from dwconv.schedules.cpu.wgrad_nhwc.kernel import PartOfSums, add_to_part
from dwconv.schedules.cpu.wgrad_nhwc.reader import PixelReader, SumShare
from dwconv.schedules.cpu.wgrad_nhwc.sums import WeightResults
from dwconv.schedules.emit import BATCH, Expr, bind, ceil_div, kernel, least, most, serial, store
from dwconv.schedules.space import Config


def schedule(workload: Workload, config: Config, target: CpuTarget) -> s_tir.Schedule:
    cut = LayerNormCut(workload, config, target)
    if workload.any_size:
        symbols: dict[str, Any] = {}
        passes = (cut.gathered, workload.convolution("wgrad"))
        of_gather, of_weights = (any_axes(each, symbols) for each in passes)
        cut = replace(cut, any_axes=(of_gather, of_weights))
    return schedule_forward(cut) if workload.pass_ == "forward" else schedule_backward(cut)


def schedule_forward(cut: LayerNormCut) -> s_tir.Schedule:
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
        weights = PackedWeights(work=work, vectors=vectors, w=w, packed=packed)
        tensors = PixelTensors(work=work, vectors=vectors, source=x, weights=weights, result=y, bias=bias)
        z, y = (seen_as(image, n, rows * columns, channels) for image in (z, y))
        norm = PixelNorm(vectors=vectors, eps=cut.norm.eps)
        tensors.weights.pack()
        for task in tasks(tensors, gather, n):
            for tile in task.tiles():
                tile.sum()
            stop = least(task.top + gather.rows.block_rows, rows)
            pixels = bind("first", task.top * columns), bind("stop", stop * columns)
            norm.normalise(y, z, gamma=gamma, beta=beta, image=task.image, pixels=pixels)
    return s_tir.Schedule(builder.get())


def schedule_backward(cut: LayerNormCut) -> s_tir.Schedule:
    """Parameters: dz (n, OH, OW, C), x (n, H, W, C), y as dz, w (C, KH, KW), γ (C,), dx as x, dw as w, dbias (C,) if
    there is a bias, dγ and dβ (C,), workspaces: packed weights, and sums of parts (n · blocks, sums, C in whole
    vectors)."""
    n = tirx.Var(BATCH, "int32")
    with kernel() as builder:
        backward = LayerNormBackward(cut, n)
        backward.weights.pack()
        for task in parallel("task", n * backward.blocks):
            backward.run(task)
        backward.add_parts(n * backward.blocks)
    return s_tir.Schedule(builder.get())


class LayerNormBackward:
    """Emits the kernel's parameters, and blocks of rows."""

    def __init__(self, cut: LayerNormCut, n: Expr) -> None:
        workload, gather = cut.workload, cut.gather
        channels, vectors = workload.channels, Vectors(workload.channels, gather.lanes)
        axes = gather.work.axes

        def image(name: str) -> Any:
            size = axes.outputs if name in ("x", "dx") else axes.inputs
            return argument(name, (n, *size, channels), workload.dtype)

        dz, x, y = (image(name) for name in ("dz", "x", "y"))
        w, gamma = argument("w", (channels, *workload.kernel), workload.dtype), argument("gamma2", (channels,))
        self.cut, self.vectors, self.x, self.gamma = cut, vectors, x, gamma
        self.dx, self.results = image("dx"), WeightResults(cut.weights.work, vectors)
        self.of_norm = (argument("dgamma2", (channels,)), argument("dbeta2", (channels,)))
        packed = argument("workspace", (vectors.count, 1, *workload.kernel, vectors.lanes))
        sums = (self.results.count + len(self.of_norm), vectors.count * vectors.lanes)
        blocks = cut.blocks
        if axes.are_known:
            partial = argument("workspace_1", (n * blocks, *sums))
        else:  # an argument's sizes are a symbol each, or a part of one
            partial = argument("workspace_1", (n, blocks, *sums))
            blocks = settled("blocks", blocks)
            partial = seen_as(partial, n * blocks, *sums)
        rows, columns = axes.inputs
        self.dz, self.y = (seen_as(each, n, rows * columns, channels) for each in (dz, y))
        self.partial, self.blocks, block_outputs = partial, blocks, ceil_div(rows, blocks)
        self.block_outputs = block_outputs if axes.are_known else settled("block_outputs", block_outputs)
        """Rows of dy that a task counts."""
        self.weights = PackedWeights(work=gather.work, vectors=vectors, w=w, packed=packed)

    @property
    def hold(self) -> Callable[[str, Expr], Expr]:
        """Gives a value a name; what depends on sizes that are not known is hidden from TVM's simplifier."""
        return bind if self.cut.gather.work.axes.are_known else settled

    def run(self, task: Expr) -> None:
        """A block of rows of an image."""
        cut, vectors = self.cut, self.vectors
        rows, columns = cut.gather.work.axes.inputs
        for row in serial("row", self.results.count + len(self.of_norm)):
            for number in serial("vector", vectors.count):
                store(self.partial, vectors.zero(), task, row, vectors.slot(number))
        hold = self.hold
        image = task if is_one(self.blocks) else hold("image", task // self.blocks)
        block = 0 if is_one(self.blocks) else task % self.blocks
        first = hold("own_first", least(block * self.block_outputs, rows))
        own = OutputRange(first, hold("own_stop", least(first + self.block_outputs, rows)))
        held = scratch("g", rows * columns * vectors.elements)
        g = seen_as(held, 1, rows, columns, vectors.elements)
        for strip in self._strips(block, own):
            self._normalise(task, image, strip.new, own, seen_as(held, 1, rows * columns, vectors.elements))
            self._gather(image, strip.top, g)
            start = most(strip.new.first, own.first)
            counted = OutputRange(bind("first", start), bind("stop", most(start, least(strip.new.stop, own.stop))))
            self._add_weights(task, image, counted, g)

    def _strips(self, block: Expr, own: OutputRange) -> Iterator[RowsOfStrip]:
        """Down the block: its strips of dx, each with the rows of g that are new. Those of the last reach to the end of
        what the task counts, those of the first to the beginning."""
        cut, rows = self.cut, self.cut.gather.work.rows
        each, (nearest, farthest) = cut.gather.rows.block_rows, rows.reach

        def within(row: Expr) -> Expr:
            return most(0, least(row, rows.inputs))

        def read(strip: Expr) -> Expr:
            """Rows of g up to the last that a strip reads."""
            last = least((strip + 1) * each, rows.outputs) - 1
            return within(rows.origin(last) + farthest + 1)

        hold = self.hold
        first = hold("first_strip", block * cut.block_strips)
        stop = bind("stop_strip", least(first + cut.block_strips, cut.gather.rows.blocks))
        for strip in serial("strip", first, stop):
            before = within(rows.origin(strip * each) + nearest)
            start = chosen(strip == first, least(before, own.first), read(strip - 1))
            end = chosen(strip == stop - 1, most(read(strip), own.stop), read(strip))
            yield RowsOfStrip(top=bind("top", strip * each), new=OutputRange(hold("start", start), hold("end", end)))

    def _normalise(self, task: Expr, image: Expr, new: OutputRange, own: OutputRange, g: Any) -> None:
        """g of the rows that are new. Those before and after what the task counts have no terms in its part."""
        columns = self.cut.gather.work.columns.inputs
        norm = PixelNorm(vectors=self.vectors, eps=self.cut.norm.eps)
        ends = [new.first, new.stop]
        if not is_one(self.blocks):
            begin = bind("counted_first", most(new.first, least(own.first, new.stop)))
            ends = [new.first, begin, bind("counted_stop", most(begin, least(own.stop, new.stop))), new.stop]
        count = len(ends) - 1
        for part in serial("rows", count):
            first, stop = (picked(part, ends[at : at + count]) for at in (0, 1))
            is_counted = True if count == 1 else part == 1
            terms = Terms(self.vectors, self.partial, part=task, first_row=self.results.count, count=is_counted)
            pixels = bind("first", first * columns), bind("stop", stop * columns)
            norm.differentiate(self.dz, self.y, gamma=self.gamma, image=image, pixels=pixels, terms=terms, to=g)

    def _gather(self, image: Expr, top: Expr, g: Any) -> None:
        """dx of a strip."""
        cut, weights, source = self.cut.gather, self.weights, OneImage(g)
        tensors = PixelTensors(work=cut.work, vectors=self.vectors, source=source, weights=weights, result=self.dx)
        for tile in PixelTask(tensors=tensors, cut=cut, image=image, depth=0, top=top).tiles():
            tile.sum()

    def _add_weights(self, task: Expr, image: Expr, block: OutputRange, g: Any) -> None:
        """What rows of g give to the sums of the task."""
        cut, vectors = self.cut.weights, self.vectors
        reader = PixelReader(cut=cut, vectors=vectors, x=self.x, dy=OneImage(g))
        for numbers in vectors.several(0, vectors.count, at_a_time=cut.config.vectors_c):
            share = SumShare(block=block, columns=WHOLE_ROW, vectors=vectors.numbered(numbers))
            at = PartOfSums(partial=self.partial, part=task, image=image, depths=OutputRange(0, 1))
            add_to_part(reader, self.results, share, at=at)

    def add_parts(self, parts: Expr) -> None:
        """In their order, whichever thread ran them: the same bits every time."""
        vectors, results = self.vectors, self.results
        _, rows, slots = self.partial.ty.shape
        loop = parallel if int(rows) * int(slots) > PARALLEL_SUMS // 8 else serial

        def added(row: Expr, number: Expr) -> Expr:
            total = Accumulators(vectors, 1)
            for part in serial("part", parts):
                total.add((0,), self.partial[part, row, vectors.slot(number)])
            return total[(0,)]

        for number in loop("vector", vectors.count):
            for tap in results.taps():
                results.store(added(results.number(tap), number), number, tap)
            span = vectors.span(bind("c", vectors.start(number)))
            for row, result in enumerate(self.of_norm):
                store(result, added(results.count + row, number), span)


@dataclass(frozen=True, kw_only=True)
class RowsOfStrip:
    """Rows of dx from ``top`` on, and the rows of g that no strip before has read."""

    top: Expr
    new: OutputRange


@dataclass(frozen=True)
class OneImage:
    """A tensor of a single image, whatever the index."""

    tensor: Any

    @property
    def dtype(self) -> Any:
        return self.tensor.dtype

    @property
    def shape(self) -> Any:
        return self.tensor.shape

    def __getitem__(self, at: tuple[Expr, ...]) -> Expr:
        return self.tensor[(0, *at[1:])]


def chosen(condition: Expr, value: Expr, other: Expr) -> Expr:
    if isinstance(condition, bool):
        return value if condition else other
    return tirx.Select(condition, value, other)


def picked(number: Expr, values: list[Expr]) -> Expr:
    """One of the values, by a number that is not known when compiling if there are several."""
    found = values[-1]
    for at in reversed(range(len(values) - 1)):
        found = chosen(number == at, values[at], found)
    return found
