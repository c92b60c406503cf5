"""What it takes to read vectors of neighbouring columns, and to copy rows to scratch memory first. No TVM here."""

from __future__ import annotations

from dataclasses import dataclass

from dwconv.schedules.cpu.shared.cost import LINE_BYTES, Traffic
from dwconv.schedules.taps import Axis


def lines_of_columns(lanes: int) -> float:
    """Cache lines of a vector of columns, on average: it begins at any column."""
    return 1 + 4 * (lanes - 1) / LINE_BYTES


@dataclass(frozen=True, kw_only=True)
class ReadWork:
    """Instructions that read a vector of columns once, on average."""

    loads: float
    shuffles: float

    @classmethod
    def of(cls, columns: Axis, *, lanes: int, stage: str) -> ReadWork:
        """With a stride, read in place, all columns in between are loaded, and split by phase."""
        if stage == "none" and columns.up > 1:
            return cls(loads=1.5 * lines_of_columns(lanes), shuffles=2.0)
        return cls(loads=lines_of_columns(lanes), shuffles=0.0)


@dataclass(frozen=True, kw_only=True)
class ScratchWork:
    """What copying rows to scratch memory takes, in vectors."""

    scratches: int = 0
    """Times that scratch memory is allocated; the next, that it is filled."""
    fills: int = 0
    copied: float = 0.0
    cleared: float = 0.0
    phases: int = 1

    @classmethod
    def of(
        cls, columns: Axis, *, lanes: int, scratches: int, fills: int, rows_filled: int, rows_held: int
    ) -> ScratchWork:
        """``rows_filled``: those that are copied each time. ``rows_held``: those that scratch memory has room for, and
        that are cleared at each allocation."""
        pitch = columns.inputs / lanes + 2
        return cls(
            scratches=scratches,
            fills=fills,
            copied=fills * rows_filled * columns.inputs / lanes,
            cleared=scratches * rows_held * pitch,
            phases=columns.up,
        )

    @property
    def loads(self) -> float:
        return self.copied * min(2, self.phases)

    @property
    def stores(self) -> float:
        return self.copied + self.cleared

    @property
    def shuffles(self) -> float:
        return self.copied if self.phases > 1 else 0.0

    @property
    def turns(self) -> float:
        return self.copied + self.cleared / 2

    def traffic(self, *, lanes: int, held_bytes: float) -> Traffic:
        """Stored, and loaded again."""
        return Traffic(bytes=2 * 4.0 * lanes * self.copied, held_bytes=held_bytes)
