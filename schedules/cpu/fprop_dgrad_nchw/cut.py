"""How a configuration cuts the results: planes and rows into tasks, tasks into register tiles. No TVM here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cpu.shared.limits import column_lanes, loads_per_read
from dwconv.schedules.cpu.shared.row_blocks import RowCut, block_width, column_blocks
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config
from dwconv.schedules.tap_loops import full_source_loops
from dwconv.schedules.taps import Axis, TileRun

FEW_WEIGHTS = 9
"""So many weights of a channel are loaded once for all of its plane, and kept in registers."""


@dataclass(frozen=True)
class GatherNchwCut:
    """A task is some rows of ``planes`` planes; a tile is ``tile_h`` rows × ``vectors_w`` vectors of cells."""

    work: Gather
    config: Config
    target: CpuTarget

    @classmethod
    def of(cls, workload: Workload, config: Config, target: CpuTarget) -> GatherNchwCut:
        return cls(Gather.of(workload), config, target)

    @property
    def lanes(self) -> int:
        """Cells in a vector: ``down`` neighbouring columns each, one of each phase (see ``emit.rows``)."""
        columns = self.work.columns.home
        return column_lanes(-(-columns.outputs // columns.down), self.target)

    @property
    def rows(self) -> RowCut:
        return RowCut(rows=self.work.rows.outputs, block_h=self.config.block_h, tile_h=self.config.tile_h)

    @property
    def column_blocks(self) -> Any:
        """Blocks of columns, of a single row."""
        axes = self.work.axes
        if axes.are_known or self.config.stage == "none":
            return column_blocks(self.config, axes)
        return (axes.columns.outputs + self.block_w - 1) // self.block_w if spans_rows(self.work) else 1

    @property
    def block_w(self) -> int:
        """Columns of a block, about."""
        return block_width(self.config, self.work.axes)

    @property
    def stages_span(self) -> bool:
        """Whether what is copied to scratch memory is what a block of a row reads, padding and all."""
        blocks = self.column_blocks
        is_part = not isinstance(blocks, int) or blocks > 1 or self.config.unroll == "none"
        return self.config.stage == "scratch" and is_part

    def block_columns(self, runs: list[TileRun]) -> int:
        """Columns of a block, in whole tiles, at most."""
        width = runs[0].width
        if not self.work.axes.are_known:
            return (-(-self.block_w // width) + 1) * width
        whole = sum(run.tiles for run in runs if run.interior)
        tiles = -(-whole // self.column_blocks) + sum(run.tiles for run in runs if not run.interior)
        return int(tiles * width)

    def column_runs(self) -> list[TileRun]:
        """The tiles of a row. Where sizes are symbols, emits how many there are."""
        columns, is_padded = self.work.columns, self.config.stage == "scratch"
        return columns.vector_runs(self.lanes * columns.down, self.config.vectors_w, is_padded=is_padded)

    def vectors_in(self, run: TileRun) -> int:
        """Vectors of cells in a tile of ``run``."""
        return -(-run.width // (self.lanes * self.work.columns.down))

    @property
    def sums(self) -> int:
        """Vectors that are summed at the same time."""
        return int(self.config.tile_h * self.work.columns.down * self.config.vectors_w)

    @property
    def scratch_elements(self) -> int:
        """Floats of the source that a task holds in scratch memory, about."""
        if self.config.stage == "none":
            return 0
        if self.stages_span:
            results = self.block_columns(self.column_runs())
            return int(self.work.fan_in * self.work.columns.spanned(results)[1])
        _, rows = self.work.rows.spanned(self.rows.block_rows)
        nearest, farthest = self.work.columns.reach
        width = self.work.columns.inputs + 2 * self.lanes + farthest - nearest
        return self.work.fan_in * rows * width

    @property
    def code_size(self) -> int:
        """Vector instructions in the code of all tiles, about."""
        return _code_size(self)


def spans_rows(work: Gather) -> bool:
    """Whether a part of a row can be copied to scratch memory."""
    return work.axes.is_row and work.columns.up == work.columns.down == 1


def loop_period(columns: Axis, lanes: int) -> int:
    """Taps from one to the next that reads whole vectors of columns further on."""
    return lanes // math.gcd(lanes, columns.step)


@cache
def _code_size(cut: GatherNchwCut) -> int:
    work, tile_h, runs = cut.work, cut.config.tile_h, cut.column_runs()
    vectors = sum(map(cut.vectors_in, runs))
    reads = work.columns.reads(work.columns.down)
    loads = len(reads) * loads_per_read(work.columns, stage=cut.config.stage)
    if cut.config.unroll == "none":  # a few taps, whole vectors of columns apart, in two loops over the others
        apart = work.columns.taps // loop_period(work.columns, cut.lanes) + 1
        return int(2 * vectors * (2 * apart + 2))
    if cut.config.unroll == "kw":
        loops = full_source_loops(work.rows, tile_h)
        rows_read, meetings = len(loops), sum(len(loop.meetings) for loop in loops)
    else:
        row_reads = work.rows.reads(tile_h)
        rows_read, meetings = len(row_reads), sum(map(len, row_reads.values()))
    products = meetings * sum(map(len, reads.values()))
    stored = tile_h * work.columns.down
    return int(vectors * (rows_read * loads + products + 2 * stored) + len(runs) * products)
