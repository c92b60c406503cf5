"""How rows, the columns of a single one, and channels are cut into blocks, one for a task, and rows into register
tiles. No TVM here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dwconv.problems.target import CpuTarget
from dwconv.schedules.cpu.shared.limits import channel_lanes, vector_count
from dwconv.schedules.space import Config, Knob, divisors
from dwconv.schedules.taps import Axes, Axis

LEAST_WIDTH = 64
"""Columns of a block, at least."""
LONG_WIDTH = 16384
"""Columns of a block to start from, at most: rows that are longer make tasks enough."""


@dataclass(frozen=True, kw_only=True)
class RowCut:
    """Rows of results, cut into blocks of about ``block_h`` and tiles of ``tile_h``."""

    rows: int
    block_h: int
    tile_h: int

    @property
    def block_rows(self) -> int:
        """Rows of a block: ``block_h``, in whole tiles."""
        return -(-self.block_h // self.tile_h) * self.tile_h

    @property
    def blocks(self) -> int:
        return (self.rows + self.block_rows - 1) // self.block_rows


def block_heights(rows: int, *, multiple: int = 1) -> list[int]:
    """Rows of a block to choose from: all, a half, a quarter, an eighth, and a few small numbers."""
    sizes = {rows, -(-rows // 2), -(-rows // 4), -(-rows // 8), 4, 8, 14, 28}
    return sorted({-(-size // multiple) * multiple for size in sizes if size <= rows})


def channel_blocks(channels: int, target: CpuTarget, *, most_parts: int | None = 8) -> list[int]:
    """Channels of a task in NHWC: all, or an equal part of the vectors; the last may overlap the one before."""
    lanes = channel_lanes(channels, target)
    vectors = vector_count(channels, lanes)
    return sorted({vectors // part * lanes for part in divisors(vectors, most=most_parts) if part > 1} | {channels})


def width_knob(axes: Axes, *, least: int = LEAST_WIDTH) -> Knob:
    """Columns of a block, where images are single rows: all, a half, … and a few numbers that caches hold, down to
    ``least``. Of several rows, blocks are rows."""
    columns = axes.columns.outputs
    sizes = {columns, *(-(-columns // parts) for parts in (2, 4, 8, 16)), 16, 32, 64, 256, 1024, 4096, 16384}
    widths = sorted(size for size in sizes if least <= size <= columns)
    return Knob("block_w", widths if axes.is_row and len(widths) > 1 else [], absent=columns)


def column_blocks(config: Config, axes: Axes) -> int:
    """Blocks of columns. They share out the tiles of a row: each takes as many of those in the interior."""
    if "block_w" not in config.to_dict():
        return 1
    width = block_width(config, axes)
    return (axes.columns.outputs + width - 1) // width


def block_width(config: Config, axes: Axes) -> int:
    """Columns of a block, about. At any size, rows of up to twice as many columns stay whole, if they are whole at the
    size that the configuration was chosen for: nothing else was found to pay there."""
    whole = axes.columns.home.outputs
    width = int(config.to_dict().get("block_w", whole))
    return width if axes.are_known or width < whole else 2 * whole


def preferred_width(axes: Axes, *, tasks: int, threads: int, most: int = LONG_WIDTH, least: int = LEAST_WIDTH) -> int:
    """Columns of a block that leave every thread four tasks, if whole rows make ``tasks`` of them, and no more than
    ``most``, which stay in a cache."""
    columns = axes.columns.outputs
    wanted = min(most, columns // -(-4 * threads // tasks))
    widths = [int(width) for width in width_knob(axes, least=least).values] or [columns]
    return max((width for width in widths if width <= wanted), default=widths[0])


def preferred_block(rows: int, *, batch: int, threads: int) -> int:
    """Rows of a block that leave every thread two tasks or more, but no more than stay in its cache."""
    tasks_per_image = -(-2 * threads // batch)
    return max(1, min(14, rows // tasks_per_image))


def tile_sizes(sizes: Sequence[int], axis: Axis) -> list[int]:
    """Those of ``sizes`` that are multiples of ``axis.down`` and not beyond the axis; at least one."""
    most = -(-axis.outputs // axis.down) * axis.down
    return [size for size in sizes if size % axis.down == 0 and size <= most] or [axis.down]
