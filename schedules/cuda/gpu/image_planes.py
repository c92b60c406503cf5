"""How kernels that sum over images cut NCHW maps, of which whole planes lie in shared memory: plain integers, no TVM.

A block has ``planes`` neighbouring channels and ``images`` images at a time, and goes through its share of the images.
Of each image the channels' planes are one piece of memory, in x as in dy: pieces are copied to shared memory as they
lie, ``pipeline`` of them under way or in use. A thread has the same tile of the same channels in all of its images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import ClassVar, TypeVar

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.gpu.cost import BlockWork
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, LINE_BYTES, WARP, occupancy, registers_left
from dwconv.schedules.cuda.gpu.plane_layout import HeldPlanes, Layout, PlaneShape, Tiling, laid_out
from dwconv.schedules.cuda.gpu.split_sum import SHARED_WORDS, adding_work, first_half, halvings
from dwconv.schedules.cuda.gpu.vectors import whole_vectors
from dwconv.schedules.space import Config
from dwconv.schedules.taps import Axis

START = 60
"""Instructions that find a thread's place, and store what it summed."""


SomePlanes = TypeVar("SomePlanes", bound="ImagePlanes")


@dataclass(frozen=True, kw_only=True)
class ImagePlanes:
    """A configuration in numbers. A thread owns ``tile_h`` rows of ``tile_w`` columns of ``thread_planes`` channels of
    one tensor, and reads of the other what these meet."""

    writes: ClassVar[bool] = False
    """Whether a thread writes a result where its tile was."""

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
    def of(cls: type[SomePlanes], workload: Workload, config: Config) -> SomePlanes:
        return cls(workload=workload, **dict(config.values))  # type: ignore[arg-type]

    @property
    def rows(self) -> Axis:
        """From the tensor that has the tiles to the other one; so is the next."""
        raise NotImplementedError

    @property
    def columns(self) -> Axis:
        raise NotImplementedError

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
            written=self.writes,
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
        """Sums of all channels: dw, and dbias."""
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
        """The tensor of which a thread reads what its tile meets."""
        return self.layout.held[0]

    @property
    def tiled(self) -> HeldPlanes:
        """The tensor that has the tiles."""
        return self.layout.held[1]

    def copies(self, held: HeldPlanes) -> int:
        """Vectors that a thread copies for a turn, at most."""
        return -(-self.images * self.planes * held.elements // (held.copied_lanes * self.threads))

    @property
    def copied_bytes(self) -> int:
        """Bytes of the narrower of the vectors in which planes are copied."""
        return min(held.copied_lanes for held in self.layout.held) * ITEMSIZE[self.workload.dtype]

    @property
    def planes_bytes(self) -> int:
        pitch = self.met.pitch + self.tiled.pitch
        return self.pipeline * self.images * self.planes * pitch * ITEMSIZE[self.workload.dtype]

    @property
    def shared_bytes(self) -> int:
        """With the sums on their way from thread to thread."""
        sums = self.thread_planes * self.sums_of_channel
        passed = min(SHARED_WORDS, sums * self.groups * first_half(self.mates)) if self.mates > 1 else 0
        return self.planes_bytes + BANK_BYTES * passed

    @property
    def padded(self) -> float:
        """Positions computed over positions wanted."""
        rows, columns = self.rows, self.columns
        wanted = rows.covered(rows.down) * columns.covered(columns.down)
        return self.tiling.plane_threads * self.tile_h * self.tile_w / wanted


@dataclass(frozen=True, kw_only=True)
class ThreadWork:
    """What a thread does."""

    products: int
    """Multiply-adds for one image; so is the next."""
    accesses: int
    """Vectors of shared memory that it reads or writes."""
    instructions_of_image: float
    """About as many as are unrolled."""
    instructions_of_sums: float
    """Those that it executes once."""
    registers: int
    """About how many it needs."""


def instructions_of_sums(cut: ImagePlanes) -> float:
    """To find a thread's place, to add up its sums and to store them: halving, half of the threads pass theirs on and
    the other half add them."""
    sums, count = cut.thread_planes * cut.sums_of_channel, halvings(cut.mates)
    return START + sums + 3 * sums * (2 - 2.0**-count) * (count > 0) + 12 * count


@cache
def vectors_of(rows: tuple[int, ...], columns: tuple[int, ...], *, pitch: int, lanes: int) -> int:
    """Vectors in which a thread reads these rows and columns of a plane."""
    return sum(len(whole_vectors([row * pitch + column for column in columns], lanes)) for row in rows)


def block_works(cut: ImagePlanes, work: ThreadWork, target: CudaTarget) -> tuple[BlockWork, ...]:
    """The kernel that reads both tensors, and the one that adds what its blocks wrote, if they are several parts."""
    first = _of_sums(cut, work, target)
    if cut.split_n == 1:
        return (first,)
    return first, adding_work(parts=cut.split_n, results=cut.results, target=target)


def _of_sums(cut: ImagePlanes, work: ThreadWork, target: CudaTarget) -> BlockWork:
    workload, itemsize = cut.workload, ITEMSIZE[cut.workload.dtype]
    warps = -(-cut.threads // WARP)
    width = min(held.lanes for held in cut.layout.held) * itemsize
    accessed = warps * work.accesses * max(1.0, width / BANK_BYTES) * cut.layout.turns
    plane = cut.images * cut.planes * itemsize
    read = plane * (cut.met.elements + cut.tiled.elements)
    moved = read + cut.writes * plane * cut.tiled.elements
    written = float(BANK_BYTES * cut.split_n * cut.results if cut.split_n > 1 else 0)
    return BlockWork(
        blocks=cut.channel_blocks * cut.split_n,
        threads=cut.threads,
        registers=registers_left(target, threads=cut.threads, blocks=blocks_at_a_time(cut, work, target)),
        shared_bytes=cut.shared_bytes,
        instructions=warps * (cut.turns * work.instructions_of_image + work.instructions_of_sums),
        fma=float(warps * cut.turns * work.products),
        lines=cut.turns * moved / LINE_BYTES,
        bank_turns=cut.turns * (accessed + moved / LINE_BYTES) + warps * work.instructions_of_sums / 4,
        dram_bytes=workload.bytes + written,
        cache_bytes=workload.bytes + written,
        bytes_in_flight=float(min(cut.pipeline, cut.turns) * read),
        waits=math.ceil(cut.turns / cut.pipeline),  # as many turns as have room ask for their planes at once
        loads_ahead=cut.pipeline > 1,
    )


def blocks_at_a_time(cut: ImagePlanes, work: ThreadWork, target: CudaTarget) -> int:
    """Blocks on an SM, by its threads, its shared memory, and the registers that a thread should need; at least 1."""
    alone = occupancy(threads=cut.threads, registers=1, shared_bytes=cut.shared_bytes, target=target)
    return next((count for count in range(alone.blocks_per_sm, 0, -1) if holds(cut, work, target, count)), 1)


def holds(cut: ImagePlanes, work: ThreadWork, target: CudaTarget, count: int) -> bool:
    """Whether so many blocks on an SM leave a thread the registers that it should need."""
    left = registers_left(target, threads=cut.threads, blocks=count)
    return left >= min(work.registers, target.registers_per_thread)
