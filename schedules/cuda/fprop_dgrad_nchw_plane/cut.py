"""How a configuration cuts whole planes into tiles, and how they lie in shared memory. No TVM here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from dwconv.problems.workload import ITEMSIZE, DType
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, SHARED_LANES, VECTOR_BYTES
from dwconv.schedules.cuda.gpu.memory import exact_vectors
from dwconv.schedules.cuda.gpu.plane_layout import HeldPlanes, Layout, PlaneShape, Tiling, laid_out
from dwconv.schedules.cuda.gpu.plane_tiles import GatherCut

LOADS_UNDER_WAY = 16


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
