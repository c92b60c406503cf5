"""How a configuration cuts planes into strips, and in which vectors a thread reads and writes. No TVM here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dwconv.problems.workload import ITEMSIZE, DType, Workload
from dwconv.schedules.cuda.gpu.vectors import aligned_lanes, least_vectors
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A configuration in numbers: the partition, and the vectors in which a thread reads and writes."""

    gather: Gather
    dtype: DType
    planes: int
    """Planes of a block, one thread each."""
    tile_h: int
    tile_w: int
    threads_h: int
    threads_w: int
    blocks_h: int
    blocks_w: int
    rows_ahead: int
    """A source row is asked for so many rows before it is used."""
    source_pieces: tuple[tuple[int, int], ...]
    """The vectors of a source row that a thread reads: (offset, lanes) each."""
    result_lanes: int

    @classmethod
    def of(cls, workload: Workload, config: Config) -> Cut:
        gather, itemsize = Gather.of(workload), ITEMSIZE[workload.dtype]
        return cls(
            gather=gather,
            dtype=workload.dtype,
            planes=config.planes,
            tile_h=config.tile_h,
            tile_w=config.tile_w,
            threads_h=config.threads_h,
            threads_w=config.threads_w,
            blocks_h=-(-gather.rows.outputs // (config.threads_h * config.tile_h)),
            blocks_w=-(-gather.columns.outputs // (config.threads_w * config.tile_w)),
            rows_ahead=config.rows_ahead,
            source_pieces=tuple(source_pieces(gather, config.tile_w, itemsize=itemsize)),
            result_lanes=aligned_lanes(config.tile_w, gather.columns.outputs, itemsize=itemsize),
        )

    @property
    def threads(self) -> int:
        return self.planes * self.threads_h * self.threads_w

    @property
    def row_tiles(self) -> int:
        return self.blocks_h * self.threads_h

    @property
    def column_tiles(self) -> int:
        return self.blocks_w * self.threads_w

    @cached_property
    def source_slots(self) -> dict[int, int]:
        """Where each vector of a source row stands in registers, by offset; the widest first, so all are aligned."""
        slots, end = {}, 0
        for first, lanes in sorted(self.source_pieces, key=lambda piece: -piece[1]):
            slots[first] = end
            end += lanes
        return slots

    @property
    def source_span(self) -> int:
        """Registers of a source row."""
        return sum(lanes for _, lanes in self.source_pieces)


def source_pieces(gather: Gather, tile_w: int, *, itemsize: int) -> list[tuple[int, int]]:
    """(offset, lanes) of the vectors that a thread reads of a source row."""
    columns = gather.columns
    lanes = aligned_lanes(columns.origin(tile_w), columns.inputs, itemsize=itemsize)
    return least_vectors(columns.reads(tile_w), lanes)
