"""How a configuration cuts a block, in plain integers. No TVM here.

What goes from pixel to pixel cuts all pixels of all images into ``parts`` equal parts. The convolution cuts images into
tiles; of those in the same columns, down the images, each of ``split`` shares is a part.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dwconv.problems.block import Block
from dwconv.problems.workload import ITEMSIZE, DType, Workload
from dwconv.schedules.cuda.gpu.cost import SHARED_WORDS, first_half
from dwconv.schedules.cuda.gpu.hardware import VECTOR_BYTES
from dwconv.schedules.space import Config
from dwconv.schedules.taps import Axes, Axis

AHEAD = 4
"""Vectors of an image that a thread has on their way at a time."""
STAGED_AHEAD = 8
"""Vectors that a thread has on their way while it stages a patch, before it needs its registers for sums; twice as
many of 16 bits that it copies."""
MOMENT_ROWS = 4
"""Of the moments of a part: two sums, the number of pixels, and the pivot."""
NORM_ROWS = 2
"""Of the sums that the gradients of a norm are made of."""
TABLE_ROWS = 4
"""Numbers of a norm, for each channel, that pixels are multiplied with."""

ADDING_LANES, MOST_SHARES = 8, 64
"""Channels of a block of threads that adds parts up, a sector of memory; and threads that share the parts of each."""


def adding_shares(parts: int) -> int:
    return max(1, min(MOST_SHARES, parts // 4))


@dataclass(frozen=True, kw_only=True)
class TileAxis:
    """The cut of rows or columns: ``threads`` tiles of ``tile`` outputs side by side in a block."""

    axis: Axis
    tile: int
    threads: int

    @property
    def block(self) -> int:
        return self.tile * self.threads

    @property
    def tiles(self) -> int:
        return -(-self.axis.outputs // self.block)

    @property
    def ragged(self) -> bool:
        return self.axis.outputs % self.block != 0

    @property
    def step(self) -> int:
        return int(self.axis.origin(self.tile))

    @property
    def block_step(self) -> int:
        return int(self.axis.origin(self.block))

    @cached_property
    def reads(self) -> dict[int, list[tuple[int, int]]]:
        """For every input that a thread's tile meets, counted from its origin, the (output, tap) pairs."""
        return self.axis.reads(self.tile)

    @cached_property
    def spanned(self) -> tuple[int, int]:
        """(the first, how many) inputs of a block, counted from its origin."""
        return self.axis.spanned(self.block)

    @property
    def products(self) -> int:
        return sum(map(len, self.reads.values()))

    @property
    def reads_padding(self) -> bool:
        first, count = self.spanned
        last = (self.tiles - 1) * self.block_step
        return first < 0 or last + first + count > self.axis.inputs


@dataclass(frozen=True, kw_only=True)
class BlockCut:
    """A workload and a choice of the knobs."""

    workload: Workload
    vector_c: int
    """Neighbouring channels of a thread."""
    threads_c: int
    """Threads of a block side by side on channels."""
    threads_p: int
    """Threads side by side on pixels, where results come from one pixel each."""
    parts: int
    tile_h: int
    tile_w: int
    threads_h: int
    threads_w: int
    split: int
    blocks_per_sm: int
    """Of the convolution, at least, which sets how many registers a thread may have."""

    @classmethod
    def of(cls, workload: Workload, config: Config) -> BlockCut:
        return cls(workload=workload, **dict(config.values))  # type: ignore[arg-type]

    @property
    def block(self) -> Block:
        assert self.workload.block is not None
        return self.workload.block

    @property
    def itemsize(self) -> int:
        return ITEMSIZE[self.workload.dtype]

    @property
    def is_forward(self) -> bool:
        return self.workload.pass_ == "forward"

    @cached_property
    def axes(self) -> Axes:
        """From y to x or, in the backward pass, from dx to dy."""
        return axes_of(self.workload)

    @cached_property
    def rows(self) -> TileAxis:
        return TileAxis(axis=self.axes.rows, tile=self.tile_h, threads=self.threads_h)

    @cached_property
    def columns(self) -> TileAxis:
        return TileAxis(axis=self.axes.columns, tile=self.tile_w, threads=self.threads_w)

    @property
    def ragged(self) -> bool:
        return self.rows.ragged or self.columns.ragged

    # -- channels --------------------------------------------------------------------------------------------------

    @property
    def vectors(self) -> int:
        return self.workload.channels // self.vector_c

    @property
    def channel_blocks(self) -> int:
        return -(-self.vectors // self.threads_c)

    @property
    def idle_channels(self) -> bool:
        return self.vectors % self.threads_c != 0

    @property
    def block_channels(self) -> int:
        return self.threads_c * self.vector_c

    # -- threads ---------------------------------------------------------------------------------------------------

    @property
    def pixel_threads(self) -> int:
        return self.threads_c * self.threads_p

    @property
    def strips(self) -> int:
        return self.threads_h * self.threads_w

    @property
    def tile_threads(self) -> int:
        return self.threads_c * self.strips

    @property
    def tile_parts(self) -> int:
        return self.columns.tiles * self.split

    @property
    def tile_blocks(self) -> int:
        return self.tile_parts * self.channel_blocks

    # -- partial sums ----------------------------------------------------------------------------------------------

    @property
    def taps(self) -> int:
        return self.axes.rows.taps * self.axes.columns.taps

    @property
    def tile_rows(self) -> int:
        """Partial sums of a channel that a block of the convolution leaves."""
        if self.is_forward:
            return MOMENT_ROWS if self.block.norm2 else 0
        return self.taps + (NORM_ROWS if self.block.norm1 else 0)

    @property
    def pixel_rows(self) -> int:
        """Those that a block which goes from pixel to pixel leaves."""
        if self.is_forward:
            return MOMENT_ROWS if self.block.norm1 else 0
        return NORM_ROWS if self.block.norm2 else 0

    @property
    def partial_words(self) -> int:
        """Room for the partial sums of either, one after the other, of all channels."""
        rows = max(self.parts * self.pixel_rows, self.tile_parts * self.tile_rows)
        return rows * self.workload.channels

    # -- shared memory of the convolution --------------------------------------------------------------------------

    @property
    def patch_pixels(self) -> int:
        return self.rows.spanned[1] * self.columns.spanned[1]

    @property
    def images_staged(self) -> int:
        return 1 if self.is_forward or not self.block.norm2 else 2

    @property
    def staged_ahead(self) -> int:
        return STAGED_AHEAD * (2 if self.copies_patch else 1) // self.images_staged

    @property
    def patch_dtype(self) -> DType:
        """That of the image, unless a norm or an activation makes what the convolution reads: that stays float32."""
        before = self.block.norm1 or self.block.act1 != "identity" if self.is_forward else self.block.norm2
        return "float32" if before else self.workload.dtype

    @property
    def copies_patch(self) -> bool:
        return self.patch_dtype != "float32"

    @property
    def patch_elements(self) -> int:
        return self.patch_pixels * self.block_channels

    @property
    def weight_pitch(self) -> int:
        """Words from the weights of a tap to those of the next. An odd multiple of a vector: eight taps of four
        channels lie in 32 different banks, and vectors stay aligned."""
        widest = VECTOR_BYTES // 4
        vectors = -(-self.block_channels // widest)
        return widest * (vectors + (vectors % 2 == 0))

    @property
    def weight_words(self) -> int:
        return self.taps * self.weight_pitch

    @property
    def table_words(self) -> int:
        norms = (self.block.norm1,) if self.is_forward else (self.block.norm1, self.block.norm2)
        return TABLE_ROWS * sum(norm is not None for norm in norms) * self.block_channels

    @property
    def passed_words(self) -> int:
        if self.strips == 1 or not self.tile_rows:
            return 0
        places = first_half(self.strips) * self.threads_c
        rows = self.tile_rows - (1 if self.is_forward else 0)
        return min(rows * self.vector_c, max(1, SHARED_WORDS // places)) * places

    @property
    def static_bytes(self) -> int:
        return 4 * (self.weight_words + self.table_words + self.passed_words)

    @property
    def shared_bytes(self) -> int:
        return ITEMSIZE[self.patch_dtype] * self.patch_elements + self.static_bytes


def axes_of(workload: Workload) -> Axes:
    if workload.pass_ == "forward":
        return Axes.of_convolution(workload)
    return Axes.of_input_gradient(workload)
