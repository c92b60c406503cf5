"""How the weight gradient of small NCHW maps is cut over blocks and threads: plain integers, no TVM here.

A block has ``planes`` neighbouring channels and ``images`` images at a time, and goes through its share of the images.
Of each image the channels' planes are one piece of memory, in x as in dy: pieces are copied to shared memory as they
lie, ``pipeline`` of them under way or in use. A thread has the same tile of the same channels in all of its images.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES
from dwconv.schedules.cuda.gpu.plane_layout import HeldPlanes, Layout, PlaneShape, Tiling, laid_out
from dwconv.schedules.cuda.gpu.split_sum import SHARED_WORDS, first_half
from dwconv.schedules.space import Config
from dwconv.schedules.taps import Axis


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A configuration in numbers. A thread owns ``tile_h`` rows of ``tile_w`` columns of dy of ``thread_planes``
    channels."""

    workload: Workload
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

    @classmethod
    def of(cls, workload: Workload, config: Config) -> Cut:
        return cls(workload=workload, **dict(config.values))  # type: ignore[arg-type]

    @cached_property
    def rows(self) -> Axis:
        return Axis.of_convolution(self.workload, 0)

    @cached_property
    def columns(self) -> Axis:
        return Axis.of_convolution(self.workload, 1)

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
            dtype=self.workload.dtype,
            held=self.workload.dtype,
            even_first=True,
        )

    @property
    def groups(self) -> int:
        """Groups of ``thread_planes`` channels, side by side in a block."""
        return self.planes // self.thread_planes

    @property
    def threads(self) -> int:
        return self.images * self.groups * self.tiling.plane_threads

    @property
    def mates(self) -> int:
        """Threads of a block that sum up the same channels."""
        return self.images * self.tiling.plane_threads

    @property
    def channel_blocks(self) -> int:
        return -(-self.workload.channels // self.planes)

    @property
    def full(self) -> bool:
        """Whether every block has all its channels."""
        return self.workload.channels % self.planes == 0

    @property
    def turns(self) -> int:
        """Turns of a block, at the workload's batch size."""
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
        """Results of the pass: all of dw, and of dbias."""
        return self.workload.out_channels * self.sums_of_channel

    # -- shared memory ---------------------------------------------------------------------------------------------

    @cached_property
    def layout(self) -> Layout:
        rows, columns = self.rows, self.columns
        x = PlaneShape(
            elements=rows.inputs * columns.inputs,
            columns=columns.inputs,
            down=rows.origin(self.tile_h) * columns.inputs,
            across=columns.origin(self.tile_w),
        )
        dy = PlaneShape(
            elements=rows.outputs * columns.outputs,
            columns=columns.outputs,
            down=self.tile_h * columns.outputs,
            across=self.tile_w,
        )
        return laid_out(self.tiling, x, dy)

    @property
    def x(self) -> HeldPlanes:
        return self.layout.held[0]

    @property
    def dy(self) -> HeldPlanes:
        return self.layout.held[1]

    def copies(self, held: HeldPlanes) -> int:
        """Vectors that a thread copies for a turn, at most."""
        return -(-self.images * self.planes * held.elements // (held.copied_lanes * self.threads))

    @property
    def copied_bytes(self) -> int:
        """Bytes of the narrower of the vectors in which planes are copied."""
        return min(self.x.copied_lanes, self.dy.copied_lanes) * ITEMSIZE[self.workload.dtype]

    @property
    def planes_bytes(self) -> int:
        pitch = self.x.pitch + self.dy.pitch
        return self.pipeline * self.images * self.planes * pitch * ITEMSIZE[self.workload.dtype]

    @property
    def shared_bytes(self) -> int:
        """With the sums on their way from thread to thread."""
        sums = self.thread_planes * self.sums_of_channel
        passed = min(SHARED_WORDS, sums * self.groups * first_half(self.mates)) if self.mates > 1 else 0
        return self.planes_bytes + BANK_BYTES * passed

    @property
    def padded(self) -> float:
        """Outputs computed over outputs wanted."""
        tiles = self.tiling.plane_threads
        return tiles * self.tile_h * self.tile_w / (self.rows.outputs * self.columns.outputs)
