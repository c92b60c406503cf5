"""How a configuration cuts planes into tiles of rows, and how the source rows of a block lie in shared memory. No TVM
here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, BANKS, SHARED_LANES
from dwconv.schedules.cuda.gpu.memory import spread_vectors, threads_places, turns_of_threads
from dwconv.schedules.cuda.gpu.plane_tiles import TiledCut
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config


@dataclass(frozen=True, kw_only=True)
class StagedAxis:
    """The part of a source axis that a block holds: ``size`` elements from ``block · step + first`` on."""

    first: int
    size: int
    step: int


@dataclass(frozen=True, kw_only=True)
class WideCut(TiledCut):
    """A block holds the source rows and the weights of its planes in shared memory, in float32. A thread has as many
    rows as a gradient's stride."""

    @classmethod
    def of(cls, workload: Workload, config: Config) -> WideCut:
        return cls.of_tile(workload, **dict(config.values))  # type: ignore[arg-type]

    @classmethod
    def of_tile(cls, workload: Workload, **knobs: int) -> WideCut:
        gather = Gather.of(workload)
        return cls(gather=gather, dtype=workload.dtype, tile_h=gather.rows.down, **knobs)

    @cached_property
    def shared_lanes(self) -> int:
        """Words of a source row that a thread reads at a time: where tiles lie side by side, they start at any."""
        return SHARED_LANES if self.column_tiles == 1 else math.gcd(self._columns_apart, SHARED_LANES)

    @cached_property
    def fetch_lanes(self) -> int:
        """Elements of a source row fetched from global memory at a time: as many as shared memory takes at a time."""
        step = 0 if self.blocks_w == 1 else self.threads_w * self._columns_apart
        return math.gcd(step, self.gather.columns.inputs, SHARED_LANES)

    @property
    def unit(self) -> int:
        return max(self.shared_lanes, self.fetch_lanes)

    @cached_property
    def rows(self) -> StagedAxis:
        axis, apart = self.gather.rows, self._rows_apart
        if self.blocks_h == 1:
            return StagedAxis(first=0, size=axis.inputs, step=0)
        reads = list(axis.reads(self.tile_h))
        size = (self.threads_h - 1) * apart + reads[-1] + 1 - reads[0]
        return StagedAxis(first=reads[0], size=size, step=self.threads_h * apart)

    @cached_property
    def columns(self) -> StagedAxis:
        """Whole vectors; the padding too, unless one thread has all columns: then it is not multiplied."""
        axis, apart, unit = self.gather.columns, self._columns_apart, self.unit
        if self.column_tiles == 1:
            return StagedAxis(first=0, size=-(-axis.inputs // unit) * unit, step=0)
        reads = list(axis.reads(self.tile_w))
        first = reads[0] // unit * unit
        size = (self.threads_w - 1) * apart + reads[-1] + 1 - first
        return StagedAxis(first=first, size=-(-size // unit) * unit, step=self.threads_w * apart)

    @property
    def row_words(self) -> int:
        return self._apart[0]

    @property
    def plane_words(self) -> int:
        return self._apart[1]

    @cached_property
    def read_turns(self) -> float:
        """Turns that shared memory takes for what a warp reads of source rows, over the fewest there could be."""
        places = threads_places(
            (self.threads_h, self.planes, self.threads_w),
            apart=(self._rows_apart * self.row_words, self.plane_words, self._columns_apart),
        )
        taken = turns_of_threads(places, itemsize=BANK_BYTES, lanes=self.shared_lanes)
        return taken.taken / taken.least

    @property
    def weight_lanes(self) -> int:
        """Words of a row of weights that a thread reads at a time. Threads of one plane read the same: of the up to 8
        planes of a warp shared memory gives 4 words in a turn, of 16 planes 2, and 32 planes take 4 turns for 4."""
        planes = min(self.planes, -(-BANKS // self.threads_w))
        return SHARED_LANES if planes <= BANKS // SHARED_LANES or planes == BANKS else 2

    @property
    def weight_words(self) -> int:
        return -(-self.gather.columns.taps // SHARED_LANES) * SHARED_LANES

    @property
    def kernel_words(self) -> int:
        """From the weights of a plane to the next: an odd number of vectors, so that planes lie in different banks."""
        return (self.gather.rows.taps * self.weight_words // self.weight_lanes | 1) * self.weight_lanes

    @property
    def kernels_at(self) -> int:
        return -(-self.planes * self.plane_words // SHARED_LANES) * SHARED_LANES

    @property
    def shared_bytes(self) -> int:
        return BANK_BYTES * (self.kernels_at + self.planes * self.kernel_words)

    @property
    def _rows_apart(self) -> int:
        return self.gather.rows.origin(self.tile_h)

    @property
    def _columns_apart(self) -> int:
        return self.gather.columns.origin(self.tile_w)

    @cached_property
    def _apart(self) -> tuple[int, int]:
        return spread_vectors(
            self.rows.size,
            self.columns.size,
            lanes=self.shared_lanes,
            unit=self.unit,
            threads=(self.threads_w, self.planes, self.threads_h),
            steps=(self._columns_apart, self._rows_apart),
        )
