"""How a configuration cuts the weight gradient: results into tasks, taps into what registers hold. No TVM here."""

from __future__ import annotations

from dataclasses import dataclass

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cpu.shared.limits import RowCode, channel_lanes, load_cost, sum_registers, vector_count
from dwconv.schedules.cpu.shared.row_blocks import column_blocks
from dwconv.schedules.cpu.shared.weight_gradient import WeightGradient
from dwconv.schedules.space import Config


@dataclass(frozen=True)
class WeightCut:
    """``group_kh`` × ``group_kw`` taps of ``vectors_c`` vectors of channels are summed at the same time, over tiles of
    ``tile_h`` × ``tile_w`` dy."""

    work: WeightGradient
    config: Config
    target: CpuTarget

    @classmethod
    def of(cls, workload: Workload, config: Config, target: CpuTarget) -> WeightCut:
        return cls(WeightGradient.of(workload), config, target)

    @property
    def lanes(self) -> int:
        return channel_lanes(self.work.chosen_channels or self.work.channels, self.target)

    @property
    def vectors(self) -> int:
        return vector_count(self.work.channels, self.lanes)

    @property
    def row_blocks(self) -> int:
        """Blocks of rows of dy in an image."""
        return (self.work.rows.outputs + int(self.config.block_h) - 1) // int(self.config.block_h)

    @property
    def column_blocks(self) -> int:
        """Blocks of columns, of a single row."""
        return column_blocks(self.config, self.work.axes)

    @property
    def tile_h(self) -> int:
        return self._knob("tile_h", absent=1)

    @property
    def prefetch(self) -> int:
        """How many rows ahead the lines of x and dy are prefetched; 0: not at all."""
        return self._knob("prefetch", absent=0)

    def _knob(self, name: str, *, absent: int) -> int:
        value = self.config.to_dict().get(name, absent)
        assert isinstance(value, int)
        return value

    @property
    def group_kw(self) -> int:
        """Kernel columns that are summed at the same time: all, or the largest equal parts that registers hold."""
        if self.config.unroll == "none":
            return 1
        taps = self.work.columns.taps
        room = max(1, sum_registers(self.target) // (self.config.group_kh * self.config.vectors_c))
        parts = -(-taps // room)
        return -(-taps // parts)

    @property
    def sums(self) -> int:
        """Vectors that are summed at the same time."""
        return int(self.config.group_kh * self.group_kw * self.config.vectors_c)

    @property
    def column_groups(self) -> list[tuple[int, int]]:
        return self.work.column_groups(self.group_kw)

    @property
    def code_size(self) -> int:
        """Vector instructions in the code of all tiles, about."""
        config, load = self.config, load_cost(self.work.multiplier)
        if config.unroll == "none":
            return int(config.vectors_c * (2 + load))
        if config.unroll == "group":  # tiles, and two edges where columns go one by one
            widths = {width for _, width in self.column_groups}
            edges = 3 * sum(widths) * (2 + load)
            return int(config.vectors_c * (edges + sum((load + config.tile_w) * (width + 1) for width in widths)))
        whole, left = divmod(self.vectors, config.vectors_c)
        vectors = config.vectors_c * (whole > 0) + left
        kernel_rows = 1 if config.group_kh == 1 else self.work.rows.taps
        groups = -(-kernel_rows // config.group_kh)
        code = 0
        for kw, taps in self.column_groups:
            row = RowCode.of(self.work.columns.part(kw, taps), config.tile_w)
            for height in {config.tile_h, 1}:  # whole tiles and rows that are left
                rows = kernel_rows + groups * (height - 1)
                code += vectors * (groups * height * row.tiles * config.tile_w + rows * load * row.reads)
                code += vectors * kernel_rows * height * row.products
                code += rows * row.tiles * config.group_kh * taps * vectors  # sums meet after every tile and row test
        return int(code)
