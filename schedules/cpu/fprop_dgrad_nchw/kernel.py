"""The kernel of fprop and dgrad in NCHW: every result is a sum of what its taps meet in the source.

    result[c, o] = bias[c] + Σ over k of source[c, meets(o, k)] · w[c, k]     (schedules/taps.py says what meets what)

Padding beside a row is zeros in some lanes, which are multiplied like the others: a weight that is NaN or infinite
gives NaN there, as in PyTorch's op without oneDNN. Rows of padding are left out.

In a register tile a source vector is loaded once for each kernel column and added to all rows that it meets; weights
are single numbers, the same in every lane. With a strided gradient each column phase of the results has sums of its
own, which are interleaved when they are stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.activations import ON_CPU
from dwconv.schedules.any_size import at_any_size
from dwconv.schedules.cpu.emit.loops import WHOLE_ROW, ColumnBlock, has_row, is_one, tile_columns, tile_rows
from dwconv.schedules.cpu.emit.rows import InPlace, Plane, ReadRows, StagedPlanes, StagedSpan
from dwconv.schedules.cpu.emit.vectors import Accumulators, Vectors, interleave, load_columns, store_columns
from dwconv.schedules.cpu.emit.words import argument, load, parallel, scratch, settled
from dwconv.schedules.cpu.fprop_dgrad_nchw.cut import FEW_WEIGHTS, GatherNchwCut, loop_period
from dwconv.schedules.emit import (
    BATCH,
    Expr,
    bind,
    ceil_div,
    divided,
    inside,
    kernel,
    planes_met,
    serial,
    store,
    taps_of,
    turns_inside,
    when,
)
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config
from dwconv.schedules.tap_loops import full_source_loops
from dwconv.schedules.taps import TileRun


def schedule(workload: Workload, config: Config, target: CpuTarget) -> s_tir.Schedule:
    """Parameters: source (n, C, H, W), w (weights, KH, KW), bias (C′) if there is one, dy (n, C′, OH, OW) if the
    epilogue takes it, result (n, C′, OH, OW); in 3-D with depths before heights."""
    cut = at_any_size(GatherNchwCut.of(workload, config, target), workload)
    work, planes, column_blocks = cut.work, cut.config.planes, cut.column_blocks
    blocks = cut.rows.blocks * column_blocks
    groups, depths = work.channels // work.fan_out, work.depths.outputs
    n = tirx.Var(BATCH, "int32")
    placed = settled if workload.any_size else bind  # or TVM would simplify divisions by symbols for half a minute
    with kernel() as builder:
        tensors = PlaneTensors(work, Vectors(cut.lanes, cut.lanes), n)
        runs = cut.column_runs()
        for task in parallel("task", ceil_div(n * (groups * depths), planes) * blocks):
            is_cut = not is_one(cut.rows.blocks)
            top = placed("top", task % blocks // column_blocks * cut.rows.block_rows) if is_cut else 0
            columns = WHOLE_ROW
            if not is_one(column_blocks):
                columns = ColumnBlock(bind("block", task % column_blocks), column_blocks)
            block = ResultRows(tensors, cut, top, columns, runs, scratch_of(cut, tensors.vectors, runs))
            for turn in serial("plane", planes):
                number = bind("number", task // blocks * planes + turn)
                with when(True if planes == 1 else number < n * (groups * depths)):
                    volume, depth = divided(number, depths)
                    block.sum_group(placed("image", volume // groups), placed("group", volume % groups), depth)
    return s_tir.Schedule(builder.get())


def scratch_of(cut: GatherNchwCut, vectors: Vectors, runs: list[TileRun]) -> StagedPlanes | StagedSpan | None:
    """Emits the scratch memory of a task; None where the source is read in place."""
    work, config = cut.work, cut.config
    if config.stage == "none":
        return None
    if cut.stages_span:
        results, tile = cut.block_columns(runs), max(run.width for run in runs)
        return StagedSpan.of(work.columns, vectors=vectors, results=results, planes=work.fan_in, tile=tile)
    sizes = {"block_rows": cut.rows.block_rows, "planes": work.fan_in, "tile": config.vectors_w}
    return StagedPlanes.of(work.rows, work.columns, vectors=vectors, **sizes)


@dataclass(frozen=True)
class ResultRows:
    """Rows of results from ``top`` on, or a block of the columns of a single one, in one plane after the other, and the
    scratch memory for them."""

    tensors: PlaneTensors
    cut: GatherNchwCut
    top: Expr
    columns: ColumnBlock
    runs: list[TileRun]
    staged: StagedPlanes | StagedSpan | None

    def sum_group(self, image: Expr, group: Expr, depth: Expr) -> None:
        """The results of one group of the convolution: they read the same planes of the source."""
        work, tensors = self.cut.work, self.tensors
        at = depth if work.axes.is_3d else None
        source = self._read(Plane(image, group * work.fan_in, at))
        for out in serial("out", work.fan_out):
            channel = bind("channel", group * work.fan_out + out)
            weights = ChannelWeights.of(channel, work, tensors.w, tensors.vectors)
            plane = Plane(image, channel, at)
            for row in tile_rows(self.cut.rows, self.top):
                for cell, run in tile_columns(self.runs, self.columns, cell=work.columns.down):
                    tile = PlaneTile(
                        tensors=tensors, cut=self.cut, source=source, plane=plane, top=row, cell=cell, run=run
                    )
                    tile.sum(weights)

    def _read(self, first: Plane) -> ReadRows:
        rows = self.cut.work.rows
        if self.staged is None:
            return InPlace(self.tensors.vectors, self.cut.work.columns, self.tensors.source, first)
        if isinstance(self.staged, StagedSpan):
            run = self.runs[0]
            tile, _ = self.columns.tiles(run.tiles if run.interior else 0)
            return self.staged.fill(self.tensors.source, first, bind("first_column", tile * run.width))
        top = bind("source_top", rows.origin(self.top) + rows.spanned(1)[0])
        return self.staged.fill(self.tensors.source, first, top)


class PlaneTensors:
    """Emits the kernel's parameters. ``vectors``: the cells of a row."""

    def __init__(self, work: Gather, vectors: Vectors, n: Expr) -> None:
        self.vectors = vectors
        self.source = argument(work.source, (n, work.source_pitch, *work.axes.inputs), work.dtype)
        self.w = argument("w", (work.weights, *work.axes.taps), work.dtype)
        self.bias = argument("bias", (work.channels,), work.dtype) if work.bias else None
        size = (n, work.channels, *work.axes.outputs)
        self.dy = argument("dy", size, work.dtype) if work.reads_dy else None  # for the epilogue
        self.result = argument(work.result, size, work.dtype)


@dataclass(frozen=True, kw_only=True)
class PlaneTile:
    """``tile_h`` rows from ``top`` on × some vectors of cells from ``cell`` on × the column phases of a cell.

    In 3-D a loop goes over the depths of the source that the plane meets: of each, the tile sums what it would in 2-D.
    """

    tensors: PlaneTensors
    cut: GatherNchwCut
    source: ReadRows
    plane: Plane
    """The plane of the results."""
    top: Expr
    cell: Expr
    run: TileRun

    def sum(self, weights: ChannelWeights) -> None:
        """Computes and stores the results of the tile."""
        columns = self.cut.work.columns
        sums = Accumulators(self.tensors.vectors, self.cut.config.tile_h, columns.down, self._vectors_w)
        ways = {"taps": self._add_rows_unrolled, "kw": self._add_rows_in_loops, "none": self._add_taps_in_loops}
        add_rows = ways[self.cut.config.unroll]
        own = 0 if self.plane.depth is None else self.plane.depth
        for kd, depth in planes_met(self.cut.work.depths, own):
            add_rows(sums, self.source.at_depth(depth), weights.at_tap(kd))
        self._store(sums)

    def _add_rows_unrolled(self, sums: Accumulators, source: ReadRows, weights: ChannelWeights) -> None:
        """All taps, straight code; one test for each row of the source keeps out of the padding."""
        rows = self.cut.work.rows
        for m in serial("m", self.cut.work.fan_in):
            for row_at, row_pairs in rows.reads(self.cut.config.tile_h).items():
                row = bind("source_row", rows.origin(self.top) + row_at)
                is_row = inside(row, rows.inputs)
                if is_row is not False:
                    with when(is_row):
                        self._add_row(sums, source, weights, m, row, row_pairs)

    def _add_rows_in_loops(self, sums: Accumulators, source: ReadRows, weights: ChannelWeights) -> None:
        """Loops over rows of the source, kernel columns unrolled. In every turn each row of the loop meets a kernel
        row: a weight of zero instead of a test would turn infinity into NaN."""
        rows = self.cut.work.rows
        origin = bind("origin", rows.origin(self.top))
        for m in serial("m", self.cut.work.fan_in):
            for loop in full_source_loops(rows, self.cut.config.tile_h):
                first = bind("first_row", origin + loop.at)
                for turn in serial("turn", *turns_inside(first, loop.delta, loop.count, size=rows.inputs)):
                    pairs = [(out, bind("kh", kh + turn * step)) for out, kh, step in loop.meetings]
                    self._add_row(sums, source, weights, m, first + turn * loop.delta, pairs)

    def _add_taps_in_loops(self, sums: Accumulators, source: ReadRows, weights: ChannelWeights) -> None:
        """Of a single row: loops over taps, each turn with those that lie whole vectors of columns apart. What one of
        them reads for a vector of results the next reads for its neighbour: it is loaded once."""
        columns, lanes = self.cut.work.columns, self.tensors.vectors.lanes
        period = loop_period(columns, lanes)
        apart = columns.step * period // lanes  # vectors
        whole, left = divmod(columns.taps, period)
        for m in serial("m", self.cut.work.fan_in):
            row = source.row(m, 0, self.cell)
            for first, stop, count in ((0, left, whole + 1), (left, period, whole)):
                for kw in serial("kw", first, stop if count else first):
                    column = bind("tap_column", kw * columns.step + columns.shift)
                    values: dict[int, Expr] = {}
                    for turn in range(count):
                        weight = weights.vector(m, 0, kw + turn * period)
                        for v in range(self._vectors_w):
                            at = v + turn * apart
                            if at not in values:
                                values[at] = bind("value", row(column + at * lanes))
                            sums.add((0, 0, v), values[at] * weight)

    def _add_row(
        self,
        sums: Accumulators,
        source: ReadRows,
        weights: ChannelWeights,
        m: Expr,
        row: Expr,
        pairs: list[tuple[int, Expr]],
    ) -> None:
        """Adds row ``row`` of the source to the rows of the tile that it meets: ``pairs`` of one of these and a kernel
        row."""
        columns, lanes, is_tested = self.cut.work.columns, self.tensors.vectors.lanes, self.run.is_tested
        cells = [self.cell + v * lanes for v in range(self._vectors_w)]
        read = [source.row(m, row, cell, is_tested=is_tested) for cell in cells]
        for column_at, column_pairs in columns.reads(columns.down).items():
            loaded = [(v, source_row(column_at)) for v, source_row in enumerate(read)]
            values = [(v, bind("value", value)) for v, value in loaded if value is not None]
            if not values:
                continue
            for out_row, kh in pairs:
                for phase, kw in column_pairs:
                    weight = weights.vector(m, kh, kw)
                    for v, value in values:
                        sums.add((out_row, phase, v), value * weight)

    @property
    def _vectors_w(self) -> int:
        return self.cut.vectors_in(self.run)

    def _store(self, sums: Accumulators) -> None:
        down, vectors, bias = self.cut.work.columns.down, self.tensors.vectors, self.tensors.bias
        epilogue, dy, is_tested = self.cut.work.epilogue, self.tensors.dy, self.run.is_tested
        offset = None if bias is None else bind("offset", vectors.everywhere(load(bias, self.plane.channel)))
        for row in range(self.cut.config.tile_h):
            with when(has_row(self.cut.rows, self.top, row)):
                for v in range(self._vectors_w):
                    phases = interleave(vectors, [sums[row, phase, v] for phase in range(down)])
                    for number, total in enumerate(phases):
                        value = total if offset is None else total + offset
                        at, column = self.plane.row(self.top + row), (self.cell + v * vectors.lanes) * down
                        column += number * vectors.lanes
                        taken = None if dy is None else load_columns(vectors, dy, at, column, is_tested=is_tested)
                        value = ON_CPU.activated(epilogue, value, taken)
                        store_columns(vectors, self.tensors.result, value, at, column, is_tested=is_tested)


@dataclass(frozen=True)
class ChannelWeights:
    """The weights of result channel ``channel``; where they are few, loaded once for all of its plane. Those of 16 bits
    are widened once for all of it, into scratch memory: a number that is the same in all lanes takes three
    instructions from 16 bits, one from 32."""

    work: Gather
    vectors: Vectors
    w: Any
    """As the kernel takes it or, in float32, the part of this channel."""
    first: Expr
    """The first of the channel's kernels in ``w``."""
    kd: Expr
    """The tap along the depth."""
    loaded: dict[tuple[int, int], Expr]

    @classmethod
    def of(cls, channel: Expr, work: Gather, w: Any, vectors: Vectors) -> ChannelWeights:
        first = channel * work.fan_in
        if work.dtype != "float32":
            w, first = _widened(w, first, work), 0
        weights = cls(work, vectors, w, first, 0, {})
        return weights if work.depths.taps > 1 else weights._with_few_loaded()

    def at_tap(self, kd: Expr) -> ChannelWeights:
        """Those at tap ``kd`` along the depth."""
        if self.work.depths.taps == 1:
            return self
        return ChannelWeights(self.work, self.vectors, self.w, self.first, kd, {})._with_few_loaded()

    def _with_few_loaded(self) -> ChannelWeights:
        work = self.work
        if work.fan_in == 1 and work.rows.taps * work.columns.taps <= FEW_WEIGHTS:
            for kh in range(work.rows.taps):
                for kw in range(work.columns.taps):
                    self.loaded[kh, kw] = self.vector(0, kh, kw)
        return self

    def vector(self, m: Expr, kh: Expr, kw: Expr) -> Expr:
        """The weight for the ``m``-th plane of the source."""
        if isinstance(kh, int) and isinstance(kw, int) and (kh, kw) in self.loaded:
            return self.loaded[kh, kw]
        at = self.work.axes.index(self.kd, kh, kw)
        return bind("weight", self.vectors.everywhere(self.w[(self.first + m, *at)]))


def _widened(w: Any, first: Expr, work: Gather) -> Any:
    """Emits a copy of a channel's kernels in float32."""
    wide = scratch("wide", work.fan_in, *work.axes.taps)
    for m in serial("m", work.fan_in):
        for at in taps_of(work.axes.taps):
            store(wide, load(w, first + m, *at), m, *at)
    return wide
