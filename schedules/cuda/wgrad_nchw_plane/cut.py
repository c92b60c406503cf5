"""How kernels that sum over images cut NCHW maps, of which whole planes lie in shared memory: plain integers, no TVM.

A block has ``planes`` neighbouring channels and ``images`` images at a time, and goes through its share of the images.
Of each image the channels' planes are one piece of memory, in x as in dy: pieces are copied to shared memory as they
lie, ``pipeline`` of them under way or in use. A thread has the same tile of the same channels in all of its images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.gpu.cost import SHARED_WORDS, first_half
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES
from dwconv.schedules.cuda.gpu.memory import exact_vectors
from dwconv.schedules.cuda.gpu.plane_layout import HeldPlanes, Layout, PlaneShape, Tiling, laid_out
from dwconv.schedules.cuda.gpu.workload_cut import WorkloadCut
from dwconv.schedules.space import Config
from dwconv.schedules.taps import Axis


@dataclass(frozen=True, kw_only=True)
class ImagePlanes(WorkloadCut):
    """A configuration in numbers. A thread owns ``tile_h`` rows of ``tile_w`` columns of ``thread_planes`` channels of
    one tensor, and reads of the other what these meet."""

    writes: ClassVar[bool] = False
    """Whether a thread writes a result where its tile was."""

    planes: int
    """Neighbouring channels of a block."""
    images: int
    """Images of a block at a time, each with threads of its own."""
    thread_planes: int
    tile_h: int
    tile_w: int
    split_n: int
    """Blocks that share out the images, each with sums of its own."""
    pipeline: int
    """Turns whose planes have room in shared memory: one in use, the others on their way."""

    # -- threads and blocks ----------------------------------------------------------------------------------------

    @cached_property
    def tiling(self) -> Tiling:
        return Tiling(
            thread_planes=self.thread_planes,
            tiles_h=-(-self.rows.outputs // self.tile_h),
            tiles_w=-(-self.columns.outputs // self.tile_w),
            groups=self.groups,
            images=self.images,
            channels=self.workload.channels,
            held=self.workload.dtype,
            even_first=True,
            written=self.writes,
        )

    @property
    def groups(self) -> int:
        return self.planes // self.thread_planes

    @property
    def threads(self) -> int:
        return self.images * self.groups * self.tiling.plane_threads

    @property
    def mates(self) -> int:
        return self.images * self.tiling.plane_threads

    @property
    def channel_blocks(self) -> int:
        return -(-self.workload.channels // self.planes)

    @property
    def full(self) -> bool:
        return self.workload.channels % self.planes == 0

    @property
    def turns(self) -> int:
        return -(-self.workload.batch // (self.images * self.split_n))

    # -- sums ------------------------------------------------------------------------------------------------------

    @property
    def taps(self) -> int:
        return self.rows.taps * self.columns.taps

    @property
    def sums_of_channel(self) -> int:
        """That a thread keeps: its taps, then perhaps the bias."""
        return self.taps + self.workload.bias

    @property
    def results(self) -> int:
        return self.workload.out_channels * self.sums_of_channel

    # -- shared memory ---------------------------------------------------------------------------------------------

    @cached_property
    def layout(self) -> Layout:
        """First the tensor that tiles meet, then the one that has them."""
        rows, columns = self.rows, self.columns
        met = PlaneShape(
            elements=rows.inputs * columns.inputs,
            columns=columns.inputs,
            down=rows.origin(self.tile_h) * columns.inputs,
            across=columns.origin(self.tile_w),
        )
        tiled = PlaneShape(
            elements=rows.outputs * columns.outputs,
            columns=columns.outputs,
            down=self.tile_h * columns.outputs,
            across=self.tile_w,
        )
        return laid_out(self.tiling, met, tiled)

    @property
    def met(self) -> HeldPlanes:
        return self.layout.held[0]

    @property
    def tiled(self) -> HeldPlanes:
        return self.layout.held[1]

    def copies(self, held: HeldPlanes) -> int:
        """Vectors that a thread copies for a turn, at most."""
        return -(-self.images * self.planes * held.elements // (held.copied_lanes * self.threads))

    @property
    def copied_bytes(self) -> int:
        return min(held.copied_lanes for held in self.layout.held) * ITEMSIZE[self.workload.dtype]

    @property
    def planes_bytes(self) -> int:
        pitch = self.met.pitch + self.tiled.pitch
        return self.pipeline * self.images * self.planes * pitch * ITEMSIZE[self.workload.dtype]

    @property
    def shared_bytes(self) -> int:
        sums = self.thread_planes * self.sums_of_channel
        passed = min(SHARED_WORDS, sums * self.groups * first_half(self.mates)) if self.mates > 1 else 0
        return self.planes_bytes + BANK_BYTES * passed

    @property
    def padded(self) -> float:
        rows, columns = self.rows, self.columns
        wanted = rows.covered(rows.down) * columns.covered(columns.down)
        return self.tiling.plane_threads * self.tile_h * self.tile_w / wanted


@dataclass(frozen=True, kw_only=True)
class GradientCut(ImagePlanes):
    """A configuration in numbers. dy has the tiles, and meets x."""


@dataclass(frozen=True, kw_only=True)
class BackwardCut(ImagePlanes):
    """A configuration in numbers. x has the tiles, and so has dx, which takes its place; they meet dy."""

    axis_of: ClassVar[Callable[[Workload, int], Axis]] = Axis.of_input_gradient
    writes: ClassVar[bool] = True

    def row_pieces(self, each: int, row: int) -> list[tuple[int, int]]:
        """The vectors in which a thread stores a row of dx: (elements from the first of its tile in its ``each``-th
        plane, lanes)."""
        first, start = each * self.tiled.pitch, row * self.columns.outputs
        stop = start + min(self.tile_w, self.columns.outputs)
        pieces = exact_vectors(first + start, first + stop, self.tiled.lanes)
        return [(at - first, width) for at, width in pieces]


def kind_of(workload: Workload) -> type[ImagePlanes]:
    return GradientCut if workload.pass_ == "wgrad" else BackwardCut


def cut_of(workload: Workload, config: Config) -> ImagePlanes:
    return kind_of(workload).of(workload, config)
