"""What the configuration space of wgrad in NCHW says: how taps and rows are cut, rules, the size of the code."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from dwconv.schedules.space import Config
from dwconv.schedules.taps import Axis, column_runs


@dataclass(frozen=True)
class TapParts:
    """Groups of taps that are summed at the same time."""

    rows: tuple[tuple[int, int, int], ...]
    """(first kernel row, how many groups, kernel rows of a group)"""
    columns: tuple[tuple[int, int], ...]
    """(first kernel column, kernel columns of the group)"""

    @property
    def one(self) -> bool:
        """Whether all taps are one group."""
        return len(self.columns) == 1 and sum(count for _, count, _ in self.rows) == 1


def tap_parts(taps_h: int, taps_w: int, config: Config) -> TapParts:
    """``group_kh`` × ``group_kw`` taps at a time, and what is left over."""
    columns = tuple((kw, min(config.group_kw, taps_w - kw)) for kw in range(0, taps_w, config.group_kw))
    return TapParts(tuple(_cut(taps_h, config.group_kh)), columns)


def row_tiles(config: Config) -> list[tuple[int, int, int]]:
    """(first row, how many tiles, rows of a tile) in a block."""
    return _cut(config.block_h, config.tile_h)


def _cut(size: int, part: int) -> list[tuple[int, int, int]]:
    whole, left = divmod(size, part)
    cut = [(0, whole, part)] if whole else []
    return [*cut, (whole * part, 1, left)] if left else cut


def group_widths(taps_w: int, *, most: int) -> list[int]:
    """Kernel columns of a group: all, or equal parts of them, up to ``most``."""
    parts = range(1, taps_w + 1)
    return sorted({-(-taps_w // part) for part in parts if -(-taps_w // part) <= most})


def code_size(rows: Axis, columns: Axis, config: Config, *, lanes: int) -> int:
    """About how many vector instructions there are in the code of all tiles."""
    return _code_size(rows, columns, config, lanes)


@cache
def _code_size(rows: Axis, columns: Axis, config: Config, lanes: int) -> int:
    parts = tap_parts(rows.taps, columns.taps, config)
    runs = len(column_runs(columns, lanes))
    code = 0
    for _, _, taps_h in parts.rows:
        for _, _, height in row_tiles(config):
            reads = rows.part(0, taps_h).reads(height)
            met = sum(map(len, reads.values()))
            loads = len(reads) * (2 * columns.up if config.stage == "none" and columns.up > 1 else 1)
            code += runs * (len(parts.columns) * height + columns.taps * (loads + met))
        code += 2 * taps_h * columns.taps
    return code
