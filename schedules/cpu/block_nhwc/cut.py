"""How a configuration cuts a block: rows and channels into tasks, tasks into register tiles. No TVM here: of images of
any size, axes have expressions for numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dwconv.problems.block import Block
from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cpu.shared.limits import channel_lanes, vector_count
from dwconv.schedules.space import Config
from dwconv.schedules.taps import WIDTH, Axes, Axis, inputs_beyond

Tap = tuple[Any, Any]
"""Of a kernel: kd, which is 0 in 2-D, and kh."""
BAND_PIXELS = 256
"""Pixels whose sums are added up before they are added to those of the task: what rounding leaves in a sum grows with
the number of its terms."""


@dataclass(frozen=True)
class BlocksOfRows:
    """``rows`` rows in blocks of ``block_rows``, of which the last may be lower."""

    rows: Any
    block_rows: Any
    blocks: Any

    @classmethod
    def of(cls, rows: Any, block_rows: Any) -> BlocksOfRows:
        return cls(rows, block_rows, (rows + (block_rows - 1)) // block_rows)


@dataclass(frozen=True)
class FusedBlockCut:
    """A task of the convolution is some rows of the result of one image in a block of channels; in 3-D some planes, of
    rows side by side. What goes from pixel to pixel has tasks of as many rows, or planes, in all channels."""

    workload: Workload
    config: Config
    target: CpuTarget
    any_axes: Axes | None = None
    """Those of a kernel of any size; so is the next."""
    any_results: BlocksOfRows | None = None
    any_channels: Any = None
    """The symbol of a kernel of any number of channels, which are all in one task."""

    @property
    def block(self) -> Block:
        assert self.workload.block is not None
        return self.workload.block

    @property
    def learns(self) -> tuple[bool, bool]:
        """Whether the first norm, and the second, has the statistics of the batch or of each image: in inference
        neither."""
        if self.workload.pass_ == "inference":
            return False, False
        first, second = self.block.norm1, self.block.batch_norm2
        return bool(first and not first.is_frozen), bool(second and not second.is_frozen)

    @property
    def of_images(self) -> bool:
        """Whether each image has statistics of its own."""
        return self.block.is_of_images

    @property
    def takes_images(self) -> bool:
        """Whether each thread takes images, so that their parts wait for no other thread."""
        return bool(self.of_images and self.config.parallel == "images")

    @property
    def axes(self) -> Axes:
        """From y to x or, in the backward pass, from dx to dy."""
        return self.any_axes or axes_of(self.workload)

    @property
    def along(self) -> Axis:
        """The axis that tasks are blocks of, and go down: that of the rows or, in 3-D, of the planes."""
        return self.axes.depths if self.axes.is_3d else self.axes.rows

    @property
    def across(self) -> Axis:
        """The rows of a plane; in 2-D one."""
        return self.axes.rows if self.axes.is_3d else self.axes.depths

    def tap(self, along: Any, across: Any) -> Tap:
        """By its numbers along these axes."""
        return (along, across) if self.axes.is_3d else (0, along)

    @property
    def gathered(self) -> Workload:
        """The pass of the convolution that goes the same way."""
        return self.workload.convolution("dgrad" if self.workload.pass_ == "backward" else "fprop")

    @property
    def x_size(self) -> tuple[Any, ...]:
        """(height, width) of x, in 3-D with the depth before; the next is that of y."""
        return self.axes.outputs if self.workload.pass_ == "backward" else self.axes.inputs

    @property
    def y_size(self) -> tuple[Any, ...]:
        return self.axes.inputs if self.workload.pass_ == "backward" else self.axes.outputs

    @property
    def lanes(self) -> int:
        return channel_lanes(self.workload.channels, self.target)

    @property
    def channels(self) -> Any:
        return self.workload.channels if self.any_channels is None else self.any_channels

    @property
    def vectors(self) -> Any:
        return vector_count(self.channels, self.lanes)

    @property
    def block_vectors(self) -> Any:
        """Vectors of channels in a task."""
        return vector_count(self.config.block_c if self.any_channels is None else self.any_channels, self.lanes)

    @property
    def channel_blocks(self) -> int:
        return int(self.vectors // self.block_vectors) if self.any_channels is None else 1

    @property
    def results(self) -> BlocksOfRows:
        return self.any_results or BlocksOfRows.of(self.along.outputs, self.config.block_h)

    @property
    def prefetches(self) -> bool:
        return bool(self.config.prefetch == "next_row")

    @property
    def tile_widths(self) -> list[int]:
        """Of the tiles of a row; at any size those that what is left of a row may take, too."""
        if not self.workload.any_size:
            return [size for _, _, size in self.column_tiles]
        width, columns = int(self.config.tile_w), self.axes.columns.home
        left, half = columns.outputs % width, width // 2
        return sorted(
            {width, *(each for each in (left, half) if each % columns.down == 0), *range(1, columns.down + 1)} - {0}
        )

    @property
    def column_tiles(self) -> list[tuple[int, int, int]]:
        """(the first column, how many tiles, their width): whole tiles, and one of what is left."""
        width, columns = self.config.tile_w, self.axes.columns.outputs
        whole, left = divmod(columns, width)
        tiles = [(0, whole, width), (whole * width, 1, left)]
        return [(start, count, size) for start, count, size in tiles if count and size]

    @property
    def ring(self) -> RingCut:
        columns = self.axes.columns
        nearest, farthest = columns.reach
        left = max(0, -nearest)
        rows = self.along.spanned(1)[1]
        if self.any_axes:
            right = max(0, columns.origin(-columns.down) + farthest + 1 - inputs_beyond(self.gathered, WIDTH)[0])
            return RingCut(rows=rows, left=left, columns=columns.inputs + (left + right))
        read = [
            columns.origin(start + (count - 1) * size) + max(columns.reads(size), default=0)
            for start, count, size in self.column_tiles
        ]
        return RingCut(rows=rows, left=left, columns=left + max(columns.inputs, *(last + 1 for last in read)))

    @property
    def ring_bytes(self) -> int:
        ring = self.ring
        return 4 * ring.rows * self.across.inputs * ring.columns * self.block_vectors * self.lanes

    @property
    def sums(self) -> int:
        """Vectors that a tile sums, or holds beside its sums, at the same time."""
        return tile_sums(self.axes, int(self.config.tile_w), is_forward=self.workload.pass_ != "backward")

    @property
    def code_size(self) -> int:
        """Vector instructions in the code of all tiles, about."""
        widths = self.tile_widths
        products = sum(len(pairs) for size in widths for pairs in self.axes.columns.reads(size).values())
        return products * (2 if self.workload.pass_ == "backward" else 1) + 60 * sum(widths)


@dataclass(frozen=True)
class RingCut:
    """The last ``rows`` rows, or planes, of what the convolution reads, with ``left`` columns of zeros before each row
    and some behind."""

    rows: int
    left: int
    columns: Any


def axes_of(workload: Workload) -> Axes:
    """From y to x or, in the backward pass, from dx to dy."""
    return Axes.of_input_gradient(workload) if workload.pass_ == "backward" else Axes.of_convolution(workload)


def tile_sums(axes: Axes, width: int, *, is_forward: bool) -> int:
    """Vectors that a tile of ``width`` columns sums, or holds beside its sums, at the same time."""
    return width if is_forward else 2 * width + axes.columns.taps
