"""The weight gradient as both layouts compute it: sums over the results, one for each tap. No TVM here.

dw[c, k] = Σ over n, o of x[n, o · stride + k · dilation − padding, c // multiplier] · dy[n, o, c]
dbias[c] = Σ over n, o of dy[n, o, c]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from dwconv.problems.workload import Workload
from dwconv.schedules.gather import PassOfAxes, groups_of
from dwconv.schedules.taps import Axes, Axis


@dataclass(frozen=True, kw_only=True)
class WeightGradient(PassOfAxes):
    """The geometry of a wgrad workload; an axis goes from dy, its outputs, to x, its inputs."""

    multiplier: int

    @classmethod
    def of(cls, workload: Workload) -> WeightGradient:
        return _of(workload)

    @property
    def input_channels(self) -> int:
        return groups_of(self.channels, self.multiplier)

    @property
    def input_pitch(self) -> int:
        """Channels of the tensor that holds x."""
        return self.x_pitch or self.input_channels

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.channels, *self.axes.taps)

    def column_groups(self, group_kw: int) -> list[tuple[int, int]]:
        """(the first, how many) kernel columns that are summed at the same time: ``group_kw``, the last perhaps
        fewer."""
        return [(kw, min(group_kw, self.columns.taps - kw)) for kw in range(0, self.columns.taps, group_kw)]


@lru_cache(maxsize=16)
def _of(workload: Workload) -> WeightGradient:
    """Every configuration of a search needs it."""
    return WeightGradient(
        axes=Axes.of_convolution(workload),
        channels=workload.out_channels,
        dtype=workload.dtype,
        multiplier=workload.multiplier,
        bias=workload.bias,
        x_pitch=workload.x_pitch,
    )


@dataclass(frozen=True)
class Pieces:
    """``count`` pieces of ``size`` each, one after the other, the first at ``first``."""

    first: int
    count: int
    size: int


def pieces(size: int, piece: int) -> list[Pieces]:
    """``size`` in whole pieces, and one of what is left."""
    whole, left = divmod(size, piece)
    found = [Pieces(0, whole, piece)] if whole else []
    return [*found, Pieces(whole * piece, 1, left)] if left else found


@dataclass(frozen=True, kw_only=True)
class RegisterTaps:
    """The taps that are summed in registers at the same time: ``height`` × ``width`` from (kh, kw) on, or none; all of
    them at tap ``kd`` along the depth."""

    kd: Any = 0
    """An integer, or a TVM expression in a loop; so are ``kh`` and ``kw``."""
    kh: Any
    height: int
    kw: Any
    width: int
    sums_dy: bool = False
    """Whether dy itself is summed too, for the bias."""

    @property
    def is_one_row(self) -> bool:
        """Whether the taps are in one kernel row, and nothing else is summed: then only the rows that it meets
        count."""
        return self.height == 1 and not self.sums_dy


@cache
def x_rows_read(rows: Axis, *, group_kh: int, tile_h: int) -> float:
    """Rows of x that tiles of ``tile_h`` rows of dy read for groups of ``group_kh`` kernel rows, each once for all dy
    of the tile that it meets."""
    firsts = range(0, rows.taps, group_kh)
    spans = sum(len(rows.part(0, min(group_kh, rows.taps - first)).reads(tile_h)) for first in firsts)
    return rows.live_pairs * spans / (tile_h * rows.taps)
