"""How a weight gradient is cut over blocks and threads, in either layout: plain integers, no TVM here.

An item is a tile of dy in one of ``split_n`` shares of images: one thread's serial work. Items go over ``threads_p``
threads of a block, and, where there are more, over blocks: the parts that the second kernel adds up. A kernel of any
size has as many items as at the size that its configuration was chosen for; each goes through every so-many-th tile.
In 3-D each plane of dy counts as an image, and each tap along the depth has groups of kernel rows of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from dwconv.problems.workload import ITEMSIZE
from dwconv.schedules.cuda.gpu.memory import aligned_lanes, least_vectors
from dwconv.schedules.cuda.gpu.workload_cut import WorkloadCut
from dwconv.schedules.taps import DEPTH, Axis

Pixel = tuple[int, int]
"""(column, channel), counted from a tile's first."""


@dataclass(frozen=True)
class VectorLoad:
    """One vector of a row: ``lanes`` elements from ``first`` on, of which ``pixels`` are wanted."""

    first: int
    """Counted from the tile's first element in the row."""
    lanes: int
    pixels: tuple[tuple[Pixel, int], ...]
    """Each with its place in the vector."""

    @property
    def column(self) -> int:
        """One of its columns. It is inside the tensor as a whole, or outside."""
        return self.pixels[0][0][0]

    @property
    def channel(self) -> int:
        """Its first element, counted from that column's first."""
        (_, channel), place = self.pixels[0]
        return channel - place


def loads(columns: Sequence[int], *, channels: int, pitch: int, vector: int) -> list[VectorLoad]:
    """The fewest loads that bring ``channels`` of each of ``columns``, each as narrow as it can be.

    Pixels of a row lie ``pitch`` elements apart; a load is aligned, and of at most ``vector`` elements."""
    wanted: dict[int, dict[Pixel, int]] = {}
    for column in columns:
        for channel in range(channels):
            element = column * pitch + channel
            wanted.setdefault(element // vector, {})[column, channel] = element
    return [
        VectorLoad(first, lanes, tuple((pixel, element - first) for pixel, element in elements.items()))
        for elements in wanted.values()
        for first, lanes in least_vectors(elements.values(), vector)
    ]


@dataclass(frozen=True, kw_only=True)
class WeightGradientCut(WorkloadCut):
    """A workload, and a choice of the knobs that both layouts share."""

    vector_c: int = 1
    """Neighbouring channels of a thread; in NCHW always 1."""
    threads_c: int = 1
    """Threads of a block side by side on channels."""
    tile_h: int
    unroll_h: int
    """Rows of a tile in straight code; a loop goes over the tile."""
    tile_w: int
    group_kh: int
    """Kernel rows that a thread sums up."""
    threads_kh: int = 1
    """Groups of kernel rows side by side in a block."""
    threads_p: int = 1
    """Threads of a block side by side on items: those whose sums meet in shared memory."""
    split_n: int = 1
    blocks_per_sm: int = 1
    """At least, which sets how many registers a thread may have."""
    edge: str
    """Rows of padding: ``zero``, they are multiplied; ``skip``, a branch leaves them out."""
    has_vectors: bool = True
    """NCHW: whether rows are as long as vectors need it. Of any size, a kernel has code for those that are not, too."""

    @cached_property
    def depths(self) -> Axis:
        return Axis.of_convolution(self.workload, DEPTH)

    @property
    def channel_last(self) -> bool:
        return self.workload.layout == "nhwc"

    # -- the straight code of a thread -----------------------------------------------------------------------------

    @cached_property
    def row_reads(self) -> dict[int, list[tuple[int, int]]]:
        """For each row of x that it reads, the (dy row, kernel row of the group) pairs that meet it."""
        reads = self.rows.part(0, self.group_kh)
        one_place = (
            not self.workload.any_size
            and self.tiles_h == 1
            and self.unroll_h == self.tile_h
            and self.groups == self.depths.taps
        )
        return reads.live_reads(0, self.unroll_h) if one_place else reads.reads(self.unroll_h)

    @cached_property
    def column_reads(self) -> dict[int, list[tuple[int, int]]]:
        """What each column of x meets. Where a tile is as wide as dy, columns in the padding are left out."""
        one_place = not self.workload.any_size and self.tiles_w == 1
        return self.columns.live_reads(0, self.tile_w) if one_place else self.columns.reads(self.tile_w)

    @cached_property
    def x_loads(self) -> list[VectorLoad]:
        pitch = self.workload.channels if self.channel_last else 1
        return loads(list(self.column_reads), channels=self.x_channels, pitch=pitch, vector=self.x_vector)

    @cached_property
    def dy_loads(self) -> list[VectorLoad]:
        pitch = self.workload.out_channels if self.channel_last else 1
        return loads(range(self.tile_w), channels=self.vector_c, pitch=pitch, vector=self.dy_vector)

    @property
    def x_channels(self) -> int:
        return max(1, self.vector_c // self.workload.multiplier)

    @property
    def x_vector(self) -> int:
        return self.x_channels if self.channel_last else self._along_rows(self.columns.inputs, self.columns.up)

    @property
    def dy_vector(self) -> int:
        return self.vector_c if self.channel_last else self._along_rows(self.columns.outputs, 1)

    def _along_rows(self, size: int, step: int) -> int:
        """The widest vector of neighbours in a row that is aligned in every row and every tile."""
        is_alone = self.tiles_w == 1 and not self.workload.any_size
        steps = (size,) if is_alone else (size, step * self.tile_w)
        return aligned_lanes(*steps, itemsize=ITEMSIZE[self.workload.dtype]) if self.has_vectors else 1

    # -- sums ------------------------------------------------------------------------------------------------------

    @property
    def sums_of_channel(self) -> int:
        """That a thread keeps: its taps, then perhaps the bias."""
        return self.group_kh * self.columns.taps + self.workload.bias

    @property
    def results(self) -> int:
        return self.workload.out_channels * (math.prod(self.workload.kernel) + self.workload.bias)

    # -- how often, and where --------------------------------------------------------------------------------------

    @property
    def tiles_h(self) -> int:
        return -(-self.rows.outputs // self.tile_h)

    @property
    def tiles_w(self) -> int:
        return -(-self.columns.outputs // self.tile_w)

    @property
    def items(self) -> int:
        return self.split_n * self.tiles_h * self.tiles_w

    @property
    def parts(self) -> int:
        return -(-self.items // self.threads_p)

    @property
    def planes(self) -> int:
        return self.workload.batch * self.depths.outputs

    @property
    def planes_met(self) -> float:
        """Share of them that a tap along the depth brings upon a plane of x, the mean of all taps."""
        return self.depths.live_pairs / (self.depths.outputs * self.depths.taps)

    @property
    def groups(self) -> int:
        """Groups of kernel rows: so many as one tap along the depth has, for each of these taps."""
        return self.depths.taps * -(-self.rows.taps // self.group_kh)

    @property
    def _groups_covered(self) -> int:
        return self.blocks[2] * self.threads_kh

    @property
    def kernel_rows(self) -> int:
        """Of a tap along the depth, that blocks, threads and groups cover: all, and perhaps some beyond the last."""
        return -(-self._groups_covered // self.depths.taps) * self.group_kh

    @property
    def vectors(self) -> int:
        return self.workload.out_channels // self.vector_c

    @property
    def blocks(self) -> tuple[int, int, int]:
        """Of (channels, parts, groups of kernel rows)."""
        return -(-self.vectors // self.threads_c), self.parts, -(-self.groups // self.threads_kh)

    @property
    def threads(self) -> int:
        return self.threads_c * self.threads_kh * self.threads_p

    @property
    def padded(self) -> float:
        channels, parts, _ = self.blocks
        idle = channels * self.threads_c / self.vectors * (parts * self.threads_p / self.items)
        return idle * (self._groups_covered * self.group_kh) / (self.depths.taps * self.rows.taps)

    @property
    def workspace_bytes(self) -> int:
        return 4 * self.parts * self.results
