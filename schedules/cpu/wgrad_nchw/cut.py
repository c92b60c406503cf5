"""How a configuration cuts the weight gradient: taps into groups, rows of dy into blocks and tiles. No TVM here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cpu.shared.limits import column_lanes, loads_per_read
from dwconv.schedules.cpu.shared.row_blocks import column_blocks
from dwconv.schedules.cpu.shared.weight_gradient import Pieces, WeightGradient, pieces
from dwconv.schedules.space import Config
from dwconv.schedules.taps import column_runs


@dataclass(frozen=True)
class WgradNchwCut:
    """``group_kh`` × ``group_kw`` taps are summed at the same time; a tile is ``tile_h`` rows × one vector of dy."""

    work: WeightGradient
    config: Config
    target: CpuTarget

    @classmethod
    def of(cls, workload: Workload, config: Config, target: CpuTarget) -> WgradNchwCut:
        return cls(WeightGradient.of(workload), config, target)

    @property
    def lanes(self) -> int:
        return column_lanes(self.work.columns.home.outputs, self.target)

    @property
    def blocks(self) -> Any:
        """Blocks of rows; ``block_h`` divides them where they are known."""
        return (self.work.rows.outputs + self.config.block_h - 1) // self.config.block_h

    @property
    def column_blocks(self) -> Any:
        """Blocks of columns, of a single row; of any size only if it is read in place."""
        axes = self.work.axes
        return column_blocks(self.config, axes) if axes.are_known or self.config.stage == "none" else 1

    @property
    def unroll(self) -> str:
        """Which kernel columns are unrolled: all ("kw"), or those of a group, which is a turn of a loop ("group")."""
        return str(self.config.to_dict().get("unroll", "kw"))

    @property
    def row_tiles(self) -> list[Pieces]:
        """The tiles of a block: whole ones, and one of the rows that are left."""
        return pieces(self.config.block_h, self.config.tile_h)

    @property
    def row_groups(self) -> list[Pieces]:
        """Kernel rows that are summed at the same time: whole groups, and one of what is left."""
        return pieces(self.work.rows.taps, self.config.group_kh)

    @property
    def column_groups(self) -> list[tuple[int, int]]:
        return self.work.column_groups(self.config.group_kw)

    @property
    def is_one_group(self) -> bool:
        """Whether all taps are summed at the same time."""
        return len(self.column_groups) == 1 and sum(rows.count for rows in self.row_groups) == 1

    @property
    def scratch_elements(self) -> int:
        """Floats of x that a task holds in scratch memory, about."""
        if self.config.stage == "none":
            return 0
        columns = self.work.columns
        return self.work.rows.spanned(self.config.block_h)[1] * (columns.inputs + columns.taps)

    @property
    def code_size(self) -> int:
        """Vector instructions in the code of all tiles, about."""
        return _code_size(self)


@cache
def _code_size(cut: WgradNchwCut) -> int:
    rows, columns = cut.work.rows, cut.work.columns
    if cut.unroll == "group":  # tiles, and those of the two edges, where lanes are masked
        return sum(1 + 2 * width + 2 * (6 * width) for width in {width for _, width in cut.column_groups})
    runs, loads_each = len(column_runs(columns, cut.lanes)), loads_per_read(columns, stage=cut.config.stage)
    code = 0
    for group in cut.row_groups:
        for tiles in cut.row_tiles:
            reads = rows.part(0, group.size).reads(tiles.size)
            products, loads = sum(map(len, reads.values())), len(reads) * loads_each
            code += runs * (len(cut.column_groups) * tiles.size + columns.taps * (loads + products))
        code += 2 * group.size * columns.taps
    return code
