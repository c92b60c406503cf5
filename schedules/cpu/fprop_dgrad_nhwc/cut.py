"""How a configuration cuts the results: rows and channels into tasks, tasks into register tiles; and whether these are
stored into the caches or past them. No TVM here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cpu.fprop_dgrad_nhwc.apart import AxisApart, can_be_apart
from dwconv.schedules.cpu.shared.limits import RowCode, channel_lanes, load_cost, vector_count
from dwconv.schedules.cpu.shared.row_blocks import RowCut, column_blocks
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, Knob
from dwconv.schedules.taps import Axis, TileRun, column_runs, rolled_column_runs


@dataclass(frozen=True)
class GatherNhwcCut:
    """A task is some rows of one image in a block of channels. Of a block, the last vector may overlap the one
    before."""

    work: Gather
    config: Config
    target: CpuTarget

    @classmethod
    def of(cls, workload: Workload, config: Config, target: CpuTarget) -> GatherNhwcCut:
        return cls(Gather.of(workload), config, target)

    @property
    def lanes(self) -> int:
        return channel_lanes(self.work.chosen_channels or self.work.channels, self.target)

    @property
    def rows(self) -> RowCut:
        """Of an image, or of each of ``row_step`` parts of it."""
        return RowCut(rows=self.row_axis.outputs, block_h=self.config.block_h, tile_h=self.config.tile_h)

    @property
    def row_axis(self) -> Axis:
        """The rows that tiles are cut from, likewise."""
        return self.work.rows if self.row_step == 1 else _apart(self.work.rows)

    @property
    def row_step(self) -> int:
        """Rows from one of a tile to the next."""
        return abs(self.work.rows.step) if self.tile_step > 1 and can_be_apart(self.work.rows) else 1

    @property
    def column_blocks(self) -> int:
        """Blocks of columns, of a single row."""
        return column_blocks(self.config, self.work.axes)

    @property
    def block_columns(self) -> int:
        """Columns of a block, about."""
        return -(-self.work.columns.outputs // self.column_blocks)

    @property
    def block_vectors(self) -> int:
        """Vectors of channels in a block."""
        is_known = isinstance(self.work.channels, int)
        return vector_count(self.config.block_c if is_known else self.work.channels, self.lanes)

    @property
    def channel_blocks(self) -> int:
        """One, if channels are a symbol."""
        if not isinstance(self.work.channels, int):
            return 1
        return vector_count(self.work.channels, self.lanes) // self.block_vectors

    @property
    def tile_step(self) -> int:
        """Columns from one of a tile to the next."""
        return int(self.config.to_dict().get("tile_step", 1))

    @property
    def columns(self) -> Axis:
        """Those that tiles are cut from: all, or of each of ``tile_step`` parts those that lie so far apart."""
        return self.work.columns if self.tile_step == 1 else _apart(self.work.columns)

    @property
    def column_runs(self) -> list[TileRun]:
        """The tiles of a row, or of a part of it: the left edge, the interior, the right edge."""
        runs = rolled_column_runs if self.config.unroll == "none" else column_runs
        return runs(self.columns, self.config.tile_w)

    @property
    def sums(self) -> int:
        """Vectors that are summed at the same time."""
        rows = self.config.tile_h if self.config.unroll == "taps" else 1
        return int(rows * self.config.tile_w * self.config.vectors_c)

    @property
    def code_size(self) -> int:
        """Vector instructions in the code of all tiles, about."""
        work, tile_h, tile_w, vectors_c = self.work, self.config.tile_h, self.config.tile_w, self.config.vectors_c
        whole, left = divmod(self.block_vectors, vectors_c)
        vectors = vectors_c * (whole > 0) + left
        load = load_cost(work.multiplier)
        if self.config.unroll == "none":
            return int(tile_h * (tile_w + 4 * work.columns.down) * vectors * (1 + load))
        row = RowCode.of(self.columns, tile_w)
        if self.config.unroll == "kw":
            return int(tile_h * vectors * (load * row.reads + row.products))
        rows_read = self.row_axis.reads(tile_h)
        taps = sum(map(len, rows_read.values()))
        code = vectors * (len(rows_read) * load * row.reads + taps * row.products)
        return int(code + len(rows_read) * row.tiles * self.sums)


_apart = cache(AxisApart.of)


def step_knob(work: Gather, workload: Workload) -> Knob:
    """There is a choice only where taps lie wide apart: of a known size, since parts of a row differ in length."""
    has_choice = not workload.any_size and not work.axes.is_row and can_be_apart(work.columns)
    return Knob("tile_step", [1, abs(work.columns.step)] if has_choice else [], absent=1)


def store_knob(work: Gather, workload: Workload, target: CpuTarget) -> Knob:
    """There is a choice only where the result is too large to be found in the caches, if its pixels are whole vectors,
    and on x86."""
    is_x86 = target.vector_bytes >= 32
    is_large = workload.batch > largest_cached_batch(workload, target)
    streams = is_x86 and is_large and work.channels % target.lanes() == 0
    return Knob("store", ["cached", "streamed"] if streams else [], absent="cached")


def streamed_above(workload: Workload, config: Config, target: CpuTarget) -> int | None:
    """The batch beyond which the kernel streams its result; of any size how many elements; None: it never does."""
    is_streamed = config.to_dict().get("store") == "streamed"
    if is_streamed and workload.any_size:
        return 3 * target.cache_bytes // 4 // ITEMSIZE[workload.dtype]
    return largest_cached_batch(workload, target) if is_streamed else None


def largest_cached_batch(workload: Workload, target: CpuTarget) -> int:
    """The largest batch whose result is left to the caches: it takes up to three quarters of the last one.

    Measured with 32 MiB of cache, time with streamed over time with cached stores. Results of 26 to 43 MB: the pass
    alone 0.6 to 0.9; with a sum of the result behind 0.9 to 1.2; with a product of it and another tensor 0.94 to 1.02.
    Results of 10 to 20 MB: 0.6 to 1.1, 0.9 to 2.6, 1.0 to 1.2: they had better be found in the cache."""
    result_bytes = ITEMSIZE[workload.dtype] * math.prod(workload.shape_of(workload.results[0]))
    return 3 * target.cache_bytes // 4 // (result_bytes // workload.batch)
