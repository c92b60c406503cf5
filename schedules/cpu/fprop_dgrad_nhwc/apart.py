"""Rows and columns that lie a dilation apart: to them a dilated convolution is one without dilation. No TVM here.

    column    0  1  2  3  4  5  6  7  8  9 10 11 12       dilation 3
    part 0    ■        ■        ■        ■        ■       five columns, next to each other
    part 1       ■        ■        ■        ■             four

A tile of such columns reads as few columns of the source as without dilation; of columns next to each other, taps share
few or none. So do rows, which follow each other in their part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dwconv.schedules.taps import Axis, TileRun

LEAST = 3
"""Taps closer than that share enough columns."""


@dataclass(frozen=True, kw_only=True)
class AxisApart(Axis):
    """One part of an axis, ``apart`` positions from one to the next: the longest, which the last of some parts are
    missing of. Its ``outputs`` and ``inputs`` are counted in the part."""

    apart: int
    whole: Axis

    @classmethod
    def of(cls, axis: Axis) -> AxisApart:
        """Of an axis that ``can_be_apart``."""
        apart = abs(axis.step)
        return cls(
            outputs=-(-axis.outputs // apart), inputs=-(-axis.inputs // apart), taps=axis.taps, up=1, down=1,
            step=axis.step // apart, shift=axis.shift // apart, apart=apart, whole=axis,
        )  # fmt: skip

    def is_tested(self, run: TileRun, at: int) -> bool:
        return self._is_last(run, at, self.inputs) and self.whole.inputs % self.apart != 0

    def may_lack(self, run: TileRun, out: int) -> bool:
        return self._is_last(run, out, self.outputs) and self.whole.outputs % self.apart != 0

    def inputs_in(self, part: Any) -> Any:
        """Those that a part has, whose number may be a TVM expression."""
        return (self.whole.inputs + (self.apart - 1) - part) // self.apart

    @staticmethod
    def _is_last(run: TileRun, at: int, positions: int) -> bool:
        return run.start + (run.tiles - 1) * run.width + at == positions - 1


def can_be_apart(axis: Axis) -> bool:
    """Whether what an output meets lies in its own part."""
    return (
        axis.taps > 1 and axis.up == axis.down == 1 and abs(axis.step) >= LEAST
        and axis.shift % axis.step == 0 and axis.outputs > abs(axis.step)
    )  # fmt: skip
