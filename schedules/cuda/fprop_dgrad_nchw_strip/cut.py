"""How a configuration cuts planes into strips, whose source rows come straight from global memory. No TVM here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dwconv.problems.workload import ITEMSIZE
from dwconv.schedules.cuda.gpu.memory import aligned_lanes, least_vectors
from dwconv.schedules.cuda.gpu.plane_tiles import TiledCut
from dwconv.schedules.gather import Gather


@dataclass(frozen=True, kw_only=True)
class StripCut(TiledCut):
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
