"""Planes cut into tiles of some rows of neighbouring columns, one a thread. Families of fprop and dgrad in NCHW have
this in common, wherever their source rows lie. No TVM here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, DType, Workload
from dwconv.schedules.cuda.gpu import hardware
from dwconv.schedules.cuda.gpu.hardware import MOST_THREADS_Z
from dwconv.schedules.cuda.gpu.memory import aligned_lanes
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, Limit
from dwconv.schedules.taps import Axis

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
class TiledCut(GatherCut):
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


def plane_limits(
    gather: Gather, target: CudaTarget, *, tiles: Callable[[Any], tuple[int, int]], **others: Any
) -> list[Limit]:
    """``tiles``: rows and columns of which a plane is made."""

    def covered(down: int, across: int) -> int:
        return gather.rows.covered(down) * gather.columns.covered(across)

    wanted = covered(gather.rows.down, gather.columns.down)
    return hardware.usual_limits(target, computed=lambda cut: covered(*tiles(cut)), wanted=wanted, **others)


def shares_images(test: Callable[[Any], bool]) -> Limit:
    return "a block holds parts of planes of several images", test


def snug(axis: Axis, tiles: Iterable[int]) -> list[int]:
    """Those tiles that leave little idle; the least one, if none does."""
    ordered = sorted(tiles)
    return [tile for tile in ordered if axis.covered(tile) <= axis.outputs * hardware.MOST_PADDED] or ordered[:1]


def threads_along(axis: Axis, tiles: list[int], parts: tuple[int, ...], *, most: int = MOST_THREADS_Z) -> list[int]:
    """Threads that cover the axis in one block, or in so many equal ones, whatever the tile."""
    whole = {-(-axis.outputs // tile) for tile in tiles}
    return sorted({count for size in whole for part in parts if (count := -(-size // part)) <= most} | {1})
