"""The kernel of fprop and dgrad in NCHW: every result is a sum of what its taps meet in the source.

    result[c, o] = bias[c] + Σ over k of source[c, meets(o, k)] · w[c, k]     (schedules/taps.py says what meets what)

Padding beside a row is zeros in some lanes, which are multiplied like the others: a weight that is NaN or infinite
gives NaN there, as in PyTorch's op without oneDNN. Rows of padding are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm import s_tir, tirx

from dwconv.problems.workload import Workload
from dwconv.schedules.any_size import at_any_size
from dwconv.schedules.cpu.emit.loops import WHOLE_ROW, ColumnBlock, is_one, tile_columns, tile_rows
from dwconv.schedules.cpu.emit.rows import InPlace, Plane, Rows, SpanStaging, StagedPlanes, StagedSpan, Staging
from dwconv.schedules.cpu.emit.vectors import Vectors
from dwconv.schedules.cpu.emit.words import parallel
from dwconv.schedules.cpu.gather_nchw.cut import Cut
from dwconv.schedules.cpu.gather_nchw.tile import ChannelWeights, PlaneTensors, PlaneTile
from dwconv.schedules.emit import BATCH, Expr, bind, ceil_div, divided, kernel, serial, when
from dwconv.schedules.taps import Run


def schedule_gather(workload: Workload, cut: Cut) -> s_tir.Schedule:
    """Parameters: source (n, C, H, W), w (weights, KH, KW), bias (C′) if there is one, dy (n, C′, OH, OW) if the
    epilogue takes it, result (n, C′, OH, OW); in 3-D with depths before heights."""
    cut = at_any_size(cut, workload)
    work, planes, column_blocks = cut.work, cut.config.planes, cut.column_blocks
    blocks = cut.rows.blocks * column_blocks
    groups, depths = work.channels // work.fan_out, work.depths.outputs
    n = tirx.Var(BATCH, "int32")
    with kernel() as builder:
        tensors = PlaneTensors.arguments(work, Vectors(cut.lanes, cut.lanes), n)
        runs = cut.column_runs()
        for task in parallel("task", ceil_div(n * (groups * depths), planes) * blocks):
            is_cut = not is_one(cut.rows.blocks)
            top = bind("top", task % blocks // column_blocks * cut.rows.block_rows) if is_cut else 0
            columns = WHOLE_ROW
            if not is_one(column_blocks):
                columns = ColumnBlock(bind("block", task % column_blocks), column_blocks)
            block = RowBlock.allocate(tensors, cut, top, columns, runs)
            for turn in serial("plane", planes):
                number = bind("number", task // blocks * planes + turn)
                with when(True if planes == 1 else number < n * (groups * depths)):
                    volume, depth = divided(number, depths)
                    block.sum_group(bind("image", volume // groups), bind("group", volume % groups), depth)
    return s_tir.Schedule(builder.get())


@dataclass(frozen=True)
class RowBlock:
    """Rows of results from ``top`` on, or a block of the columns of a single one, in one plane after the other, and the
    scratch memory for them."""

    tensors: PlaneTensors
    cut: Cut
    top: Expr
    columns: ColumnBlock
    runs: list[Run]
    staged: StagedPlanes | StagedSpan | None
    """None where the source is read in place."""

    @classmethod
    def allocate(cls, tensors: PlaneTensors, cut: Cut, top: Expr, columns: ColumnBlock, runs: list[Run]) -> RowBlock:
        if cut.config.stage == "none":
            return cls(tensors, cut, top, columns, runs, None)
        if cut.stages_span:
            results = cut.block_columns(runs)
            span = SpanStaging.of(
                cut.work.columns,
                vectors=tensors.vectors,
                results=results,
                planes=cut.work.fan_in,
                tile=max(run.width for run in runs),
            )
            return cls(tensors, cut, top, columns, runs, span.allocate())
        staging = Staging.of(
            cut.work.rows,
            cut.work.columns,
            vectors=tensors.vectors,
            block_rows=cut.rows.block_rows,
            planes=cut.work.fan_in,
            tile=cut.config.vectors_w,
        )
        return cls(tensors, cut, top, columns, runs, staging.allocate())

    def sum_group(self, image: Expr, group: Expr, depth: Expr) -> None:
        """The results of one group of the convolution: they read the same planes of the source."""
        work, tensors = self.cut.work, self.tensors
        at = depth if work.axes.is_3d else None
        source = self._read(Plane(image, group * work.fan_in, at))
        for out in serial("out", work.fan_out):
            channel = bind("channel", group * work.fan_out + out)
            weights = ChannelWeights.of(channel, work, tensors.w, tensors.vectors)
            for row in tile_rows(self.cut.rows, self.top):
                for cell, run in self._tile_cells():
                    tile = PlaneTile(
                        tensors=tensors,
                        cut=self.cut,
                        source=source,
                        plane=Plane(image, channel, at),
                        top=row,
                        cell=cell,
                        run=run,
                    )
                    tile.sum(weights)

    def _read(self, first: Plane) -> Rows:
        rows = self.cut.work.rows
        if self.staged is None:
            return InPlace(self.tensors.vectors, self.cut.work.columns, self.tensors.source, first)
        if isinstance(self.staged, StagedSpan):
            run = self.runs[0]
            tile, _ = self.columns.tiles(run.tiles if run.interior else 0)
            return self.staged.fill(self.tensors.source, first, bind("first_column", tile * run.width))
        top = bind("source_top", rows.origin(self.top) + rows.spanned(1)[0])
        return self.staged.fill(self.tensors.source, first, top)

    def _tile_cells(self) -> Iterator[tuple[Expr, Run]]:
        """Loops over the tiles of a row, edges and interior: the first cell of each."""
        return tile_columns(self.runs, self.columns, cell=self.cut.work.columns.down)
