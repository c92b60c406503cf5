"""How configurations cut planes into strips, and how a block's source lies in shared memory. No TVM here.

A thread owns ``tile_h`` rows of ``tile_w`` columns. Its source rows come straight from global memory (``StripCut``),
from rows in shared memory (``RowsCut``), or from whole planes there (``PlanesCut``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from dwconv.problems.workload import ITEMSIZE, DType, Workload
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, BANKS, SHARED_LANES, VECTOR_BYTES
from dwconv.schedules.cuda.gpu.memory import (
    aligned_lanes,
    exact_vectors,
    least_vectors,
    spread_vectors,
    threads_places,
    turns_of_threads,
)
from dwconv.schedules.cuda.gpu.plane_layout import HeldPlanes, Layout, PlaneShape, Tiling, laid_out
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config

LOADS_UNDER_WAY = 16

AnyCut = TypeVar("AnyCut", bound="GatherCut")


@dataclass(frozen=True, kw_only=True)
class GatherCut:
    """A configuration in numbers."""

    gather: Gather
    dtype: DType
    planes: int
    """Planes of a block."""
    tile_h: int
    tile_w: int

    @classmethod
    def of(cls: type[AnyCut], workload: Workload, config: Config) -> AnyCut:
        return cls(gather=Gather.of(workload), dtype=workload.dtype, **dict(config.values))  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class BlockedCut(GatherCut):
    """A block has ``threads_h`` × ``threads_w`` tiles of each of its planes; several blocks may share a plane."""

    threads_h: int
    threads_w: int

    @property
    def threads(self) -> int:
        return self.planes * self.threads_h * self.threads_w

    @property
    def blocks_h(self) -> int:
        return -(-self.gather.rows.outputs // (self.threads_h * self.tile_h))

    @property
    def blocks_w(self) -> int:
        return -(-self.gather.columns.outputs // (self.threads_w * self.tile_w))

    @property
    def row_tiles(self) -> int:
        return self.blocks_h * self.threads_h

    @property
    def column_tiles(self) -> int:
        return self.blocks_w * self.threads_w

    @cached_property
    def result_lanes(self) -> int:
        return aligned_lanes(self.tile_w, self.gather.columns.outputs, itemsize=ITEMSIZE[self.dtype])


# -- from global memory --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class StripCut(BlockedCut):
    """Strips straight from global memory."""

    rows_ahead: int
    """A source row is loaded so many rows before it is used."""
    has_vectors: bool = True
    """Whether rows are as long as vectors need it. Of any size, a kernel has code for those that are not, too."""

    @cached_property
    def result_lanes(self) -> int:
        return super().result_lanes if self.has_vectors else 1

    @cached_property
    def source_pieces(self) -> list[tuple[int, int]]:
        return least_vectors(self.gather.columns.reads(self.tile_w), self.source_lanes)

    @cached_property
    def source_lanes(self) -> int:
        return source_lanes(self.gather, self.tile_w, itemsize=ITEMSIZE[self.dtype]) if self.has_vectors else 1

    @property
    def source_span(self) -> int:
        return sum(lanes for _, lanes in self.source_pieces)


def source_lanes(gather: Gather, tile_w: int, *, itemsize: int) -> int:
    """Elements of the widest vectors in which a thread reads a source row."""
    return aligned_lanes(gather.columns.origin(tile_w), gather.columns.inputs, itemsize=itemsize)


# -- from rows in shared memory ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class StagedAxis:
    """The part of a source axis that a block holds: ``size`` elements from ``block · step + first`` on."""

    first: int
    size: int
    step: int


@dataclass(frozen=True, kw_only=True)
class RowsCut(BlockedCut):
    """A block holds the source rows and the weights of its planes in shared memory, in float32. A thread has as many
    rows as a gradient's stride."""

    @classmethod
    def of(cls, workload: Workload, config: Config) -> RowsCut:
        return cls.of_tile(workload, **dict(config.values))  # type: ignore[arg-type]

    @classmethod
    def of_tile(cls, workload: Workload, **knobs: int) -> RowsCut:
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


# -- from whole planes in shared memory ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PlanesCut(GatherCut):
    """A block holds whole planes in shared memory. A thread owns a tile of ``thread_planes`` of them."""

    thread_planes: int
    held: DType
    """The type in shared memory: the tensors' own, or float32."""

    # -- threads ----------------------------------------------------------------------------------------------------

    @cached_property
    def tiling(self) -> Tiling:
        return Tiling(
            thread_planes=self.thread_planes,
            tiles_h=-(-self.gather.rows.outputs // self.tile_h),
            tiles_w=-(-self.gather.columns.outputs // self.tile_w),
            groups=-(-self.planes // self.thread_planes),
            images=1,
            channels=self.gather.channels,
            held=self.held,
            even_first=False,
        )

    @property
    def threads(self) -> int:
        return self.planes // self.thread_planes * self.tiling.plane_threads

    @property
    def loads_under_way(self) -> int:
        turns = -(-self.planes * self.source.elements // (self.source.copied_lanes * self.threads))
        return min(turns, LOADS_UNDER_WAY)

    # -- shared memory -------------------------------------------------------------------------------------------------

    @cached_property
    def layout(self) -> Layout:
        rows, columns = self.gather.rows, self.gather.columns
        source = self._shape(rows.inputs, columns.inputs, rows.origin(self.tile_h), columns.origin(self.tile_w))
        return laid_out(self.tiling, source, self._shape(rows.outputs, columns.outputs, self.tile_h, self.tile_w))

    @property
    def source(self) -> HeldPlanes:
        return self.layout.held[0]

    @property
    def result(self) -> HeldPlanes:
        return self.layout.held[1]

    @property
    def ragged(self) -> bool:
        return self.tiling.tiles_w > 1 or self.gather.rows.outputs % self.tile_h != 0

    def result_pieces(self, each: int) -> list[tuple[int, int]]:
        """The vectors in which a thread stores its tile of its ``each``-th plane: (elements from the tile's first,
        lanes). Whole rows are one piece of memory; the end of the plane is the end of a vector."""
        pitch, lanes, first = self.gather.columns.outputs, self.result.lanes, each * self.result.pitch
        runs = [(row * pitch, row * pitch + self.tile_w) for row in range(self.tile_h)]
        if self.tiling.tiles_w == 1 and (not self.ragged or self.result.elements % lanes == 0):
            runs = [(0, self.tile_h * pitch)]
        pieces = [piece for start, stop in runs for piece in exact_vectors(first + start, first + stop, lanes)]
        return [(at - first, width) for at, width in pieces]

    @property
    def kernel_words(self) -> int:
        return self.gather.rows.taps * self.gather.columns.taps

    @property
    def kernel_lanes(self) -> int:
        return math.gcd(self.thread_planes * self.kernel_words, SHARED_LANES)

    @property
    def held_elements(self) -> int:
        return self.planes * max(self.source.pitch, self.result.pitch)

    @property
    def shared_bytes(self) -> int:
        planes = -(-self.held_elements * ITEMSIZE[self.held] // VECTOR_BYTES) * VECTOR_BYTES
        return planes + self.planes * self.kernel_words * BANK_BYTES

    @staticmethod
    def _shape(rows: int, columns: int, step_h: int, step_w: int) -> PlaneShape:
        return PlaneShape(elements=rows * columns, columns=columns, down=step_h * columns, across=step_w)
