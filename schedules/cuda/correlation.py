"""How a weight gradient is cut over blocks and threads, in either layout: plain integers, no TVM here.

The pixels of dy are cut into tiles of ``tile_h`` × ``tile_w``, the images into ``split_n`` shares (every split_n-th
image). An item is a tile in one share: one thread's serial work. The items go over ``threads_p`` threads of a block,
and, where there are more, over blocks: the parts that the second kernel adds up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from dwconv.schedules.space import Config
from dwconv.schedules.taps import Axis
from dwconv.target import CudaTarget
from dwconv.workload import ITEMSIZE, Workload

Pixel = tuple[int, int]
"""(column, channel), counted from a tile's first."""

VECTOR_BYTES = 16
"""The widest load."""


@dataclass(frozen=True)
class Load:
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


def loads(columns: Sequence[int], *, channels: int, pitch: int, vector: int) -> list[Load]:
    """The fewest loads that bring ``channels`` of each of ``columns``, each as narrow as it can be.

    Pixels of a row lie ``pitch`` elements apart; a load is aligned, and of at most ``vector`` elements."""
    wanted: dict[int, dict[Pixel, int]] = {}
    for column in columns:
        for channel in range(channels):
            element = column * pitch + channel
            wanted.setdefault(element // vector, {})[column, channel] = element
    found = []
    for elements in wanted.values():
        low, high, lanes = min(elements.values()), max(elements.values()), 1
        while low // lanes != high // lanes:
            lanes *= 2
        first = low // lanes * lanes
        found.append(Load(first, lanes, tuple((pixel, element - first) for pixel, element in elements.items())))
    return found


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """A workload, and a choice of the knobs that both layouts share."""

    workload: Workload
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

    @classmethod
    def of(cls, workload: Workload, config: Config) -> Correlation:
        return cls(workload=workload, **dict(config.values))  # type: ignore[arg-type]

    @cached_property
    def rows(self) -> Axis:
        return Axis.of_convolution(self.workload, 0)

    @cached_property
    def columns(self) -> Axis:
        return Axis.of_convolution(self.workload, 1)

    @property
    def channel_last(self) -> bool:
        return self.workload.layout == "nhwc"

    # -- the straight code of a thread -----------------------------------------------------------------------------

    @cached_property
    def row_reads(self) -> dict[int, list[tuple[int, int]]]:
        """For each row of x that it reads, the (dy row, kernel row of the group) pairs that meet it."""
        reads = self.rows.part(0, self.group_kh)
        one_place = self.tiles_h == 1 and self.unroll_h == self.tile_h and self.groups == 1
        return reads.live_reads(0, self.unroll_h) if one_place else reads.reads(self.unroll_h)

    @cached_property
    def column_reads(self) -> dict[int, list[tuple[int, int]]]:
        """The same for columns of x. Where a tile is as wide as dy, those in the padding are left out."""
        return self.columns.live_reads(0, self.tile_w) if self.tiles_w == 1 else self.columns.reads(self.tile_w)

    @cached_property
    def x_loads(self) -> list[Load]:
        """Of a row."""
        pitch = self.workload.channels if self.channel_last else 1
        return loads(list(self.column_reads), channels=self.x_channels, pitch=pitch, vector=self.x_vector)

    @cached_property
    def dy_loads(self) -> list[Load]:
        pitch = self.workload.out_channels if self.channel_last else 1
        return loads(range(self.tile_w), channels=self.vector_c, pitch=pitch, vector=self.dy_vector)

    @property
    def x_channels(self) -> int:
        """Input channels that ``vector_c`` output channels read."""
        return max(1, self.vector_c // self.workload.multiplier)

    @property
    def x_vector(self) -> int:
        """Elements of x that one load may bring."""
        return self.x_channels if self.channel_last else self._along_rows(self.columns.inputs, self.columns.up)

    @property
    def dy_vector(self) -> int:
        return self.vector_c if self.channel_last else self._along_rows(self.columns.outputs, 1)

    def _along_rows(self, size: int, step: int) -> int:
        """The widest vector of neighbours in a row that is aligned in every row and every tile."""
        widest = VECTOR_BYTES // ITEMSIZE[self.workload.dtype]
        return math.gcd(size, widest) if self.tiles_w == 1 else math.gcd(size, step * self.tile_w, widest)

    @property
    def sums_of_channel(self) -> int:
        """That a thread keeps: its taps, then perhaps the bias."""
        return self.group_kh * self.columns.taps + self.workload.bias

    def sum_of(self, kernel_row: int, kernel_column: int) -> int:
        """Which of them a tap is; rows count from the group's first."""
        return kernel_row * self.columns.taps + kernel_column

    @property
    def sum_of_bias(self) -> int:
        return self.sums_of_channel - 1

    @property
    def results(self) -> int:
        """Of the pass: all of dw, and of dbias."""
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
    def groups(self) -> int:
        """Of kernel rows."""
        return -(-self.rows.taps // self.group_kh)

    @property
    def kernel_rows(self) -> int:
        """That blocks, threads and groups cover: all, and perhaps some beyond the last."""
        return self.blocks[2] * self.threads_kh * self.group_kh

    @property
    def last_row(self) -> int:
        """Where the last straight code starts in dy."""
        return self.tiles_h * self.tile_h - self.unroll_h

    @property
    def last_column(self) -> int:
        return (self.tiles_w - 1) * self.tile_w

    @property
    def vectors(self) -> int:
        """Of channels."""
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
        """Threads over threads with work."""
        channels, parts, _ = self.blocks
        idle = channels * self.threads_c / self.vectors * (parts * self.threads_p / self.items)
        return idle * self.kernel_rows / self.rows.taps

    @property
    def workspace_bytes(self) -> int:
        return 4 * self.parts * self.results

    # -- what it costs ---------------------------------------------------------------------------------------------

    @cached_property
    def products(self) -> int:
        """Multiply-adds in the straight code."""
        pairs_h, pairs_w = (
            sum(len(pairs) for pairs in reads.values()) for reads in (self.row_reads, self.column_reads)
        )
        return pairs_h * pairs_w * self.vector_c

    @property
    def loads(self) -> int:
        """In the straight code."""
        return len(self.row_reads) * len(self.x_loads) + self.unroll_h * len(self.dy_loads)

    @property
    def instructions(self) -> float:
        """About how many there are for an output: products, loads, and what 16-bit data and padding add."""
        outputs = self.tile_h * self.tile_w * self.vector_c
        return self.instructions_of_image / outputs * self.kernel_rows / self.group_kh

    @cached_property
    def instructions_of_image(self) -> float:
        """Of a thread's, for its tile of one image."""
        rows, itemsize = len(self.row_reads), ITEMSIZE[self.workload.dtype]
        # In NCHW neighbouring threads do not read neighbouring words if a tile is wider than a vector.
        turns = 1 if self.channel_last else min(self.tile_w // self.dy_vector, 32 // (itemsize * self.dy_vector))
        wanted = rows * len(self.column_reads) * self.x_channels + self.unroll_h * self.tile_w * self.vector_c
        begin = BOOKKEEPING * (1 + self.unroll_h / self.tile_h)  # of the straight code, and of the tile
        straight = self.products + 2 * turns * self.loads + self._padding + begin + (wanted if itemsize == 2 else 0)
        return straight * self.tile_h / self.unroll_h

    @property
    def instructions_of_sums(self) -> float:
        """Of a thread's, once: sums set to zero, and on their way to one thread of those that share them. Halving, half
        of the threads pass theirs on and the other half add them; what some of a warp do takes the time of all."""
        sums, halvings = self.sums_of_channel * self.vector_c, (self.threads_p - 1).bit_length()
        across = self.threads_c if self.channel_last else 1
        busy = [min(self.threads_p, -(-(across << halving) // WARP) * WARP / across) for halving in range(halvings)]
        return START + sums + sums * (3 * sum(busy) + busy[0] if busy else 1) / self.threads_p + 8 * halvings

    @property
    def _padding(self) -> float:
        """Instructions that put zeros where padding is, or that branch around it."""
        ends_h, ends_w = range(self.unroll_h * self.rows.up), range(self.tile_w * self.columns.up)
        rows = sum(self.groups > 1 or at not in ends_h for at in self.row_reads)
        beyond = [load for load in self.x_loads if self.tiles_w > 1 and load.column not in ends_w]
        if self.edge == "skip":
            return 3 * rows + 4 * len(self.row_reads) * len(beyond)
        zeros = [max(1.0, load.lanes * ITEMSIZE[self.workload.dtype] / 8) for load in self.x_loads]
        edge = [max(1.0, load.lanes * ITEMSIZE[self.workload.dtype] / 8) for load in beyond]
        return rows * sum(zeros) + (len(self.row_reads) - rows) * sum(edge)

    @property
    def read_again(self) -> float:
        """Rows that the threads read over rows that there are: tiles share their halo, groups of kernel rows all."""
        reach_h = (self.group_kh - 1) * self.rows.step + 1
        rows = ((self.tile_h - 1) * self.rows.up + reach_h) / (self.tile_h * self.rows.up)
        x, dy = self.rows.up * self.columns.up, self.workload.multiplier
        return self.groups * (x * max(1.0, rows) + dy) / (x + dy)

    @property
    def registers(self) -> int:
        """About how many a thread needs at least: the sums, the rows of dy that an x meets, and what is on its way."""
        rows = min(self.unroll_h, (self.group_kh - 1) * self.rows.step // self.rows.up + 1)
        sums = self.sums_of_channel * self.vector_c
        coming = min(MOST_COMING, sum(load.lanes for load in self.x_loads))
        return sums + rows * self.tile_w * self.vector_c + coming + OTHER_REGISTERS


BOOKKEEPING, START = 12, 40
"""Instructions that find out where a tile is, and where a thread is."""
WARP = 32
OTHER_REGISTERS, MOST_COMING = 26, 32
"""For addresses and counters, and for a row of x on its way."""


def registers_of(target: CudaTarget, *, threads: int, blocks: int) -> int:
    """That each thread can have where an SM holds ``blocks`` blocks of ``threads``. Warps get theirs four by four."""
    warps = -(-blocks * -(-threads // target.warp) // 4) * 4
    return min(target.registers_per_thread, target.registers_per_sm // (target.warp * warps) // 8 * 8)
