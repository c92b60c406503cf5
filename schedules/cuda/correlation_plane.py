"""How the weight gradient of small NCHW maps is cut over blocks and threads: plain integers, no TVM here.

A block has ``planes`` neighbouring channels and ``images`` images at a time, and goes through its share of the images.
Of each image the channels' planes are one piece of memory, in x as in dy: pieces are copied to shared memory as they
lie, ``pipeline`` of them under way or in use. A thread has the same tile of the same channels in all of its images.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

from dwconv.schedules.cuda.halving import SHARED_WORDS, first_half, halvings
from dwconv.schedules.cuda.plane_layout import Held, Layout, PlaneShape, Tiling, laid_out
from dwconv.schedules.cuda.plane_tile import live_reads, whole_vectors
from dwconv.schedules.space import Config
from dwconv.schedules.taps import Axis
from dwconv.workload import ITEMSIZE, Workload

OTHER_REGISTERS = 26
"""For addresses and counters."""
BOOKKEEPING, START = 30, 60
"""Instructions that go to the next image; and that find a thread's place, and store what it summed."""
COPY = 3.5
"""To find out where a vector comes from, whether it exists, and where it goes."""


@dataclass(frozen=True, kw_only=True)
class PlaneCorrelation:
    """A configuration in numbers. A thread owns ``tile_h`` rows of ``tile_w`` columns of dy of ``thread_planes``
    channels."""

    workload: Workload
    planes: int
    """Neighbouring channels of a block."""
    images: int
    """Of a block at a time, each with threads of its own."""
    thread_planes: int
    tile_h: int
    tile_w: int
    split_n: int
    """Blocks that share out the images, each with sums of its own."""
    pipeline: int
    """Turns whose planes have room in shared memory: one in use, the others on their way."""

    @classmethod
    def of(cls, workload: Workload, config: Config) -> PlaneCorrelation:
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
        """Of ``thread_planes`` channels, side by side in a block."""
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
        """Of a block, at the workload's batch size."""
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
        """Of the pass: all of dw, and of dbias."""
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
    def x(self) -> Held:
        return self.layout.held[0]

    @property
    def dy(self) -> Held:
        return self.layout.held[1]

    def copies(self, held: Held) -> int:
        """Vectors that a thread copies for a turn, at most."""
        return -(-self.images * self.planes * held.elements // (held.copied_lanes * self.threads))

    @property
    def copied_bytes(self) -> int:
        """Of the narrower of the vectors in which planes are copied."""
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
        return self.planes_bytes + 4 * passed

    # -- what a thread does ----------------------------------------------------------------------------------------

    @property
    def padded(self) -> float:
        """Outputs computed over outputs wanted."""
        tiles = self.tiling.plane_threads
        return tiles * self.tile_h * self.tile_w / (self.rows.outputs * self.columns.outputs)

    @cached_property
    def _reads(self) -> tuple[dict[int, list[tuple[int, int]]], dict[int, list[tuple[int, int]]]]:
        tiling = self.tiling
        rows = live_reads(self.rows, self.tile_h, tiles=tiling.tiles_h)
        return rows, live_reads(self.columns, self.tile_w, tiles=tiling.tiles_w)

    @cached_property
    def products(self) -> int:
        """Multiply-adds for one image."""
        pairs_h, pairs_w = (sum(map(len, reads.values())) for reads in self._reads)
        return pairs_h * pairs_w * self.thread_planes

    @cached_property
    def loads(self) -> int:
        """Vectors of shared memory that it reads for one image."""
        rows, columns = self._reads
        x = _vectors(tuple(rows), tuple(columns), pitch=self.columns.inputs, lanes=self.x.lanes)
        every = tuple(range(self.tile_h)), tuple(range(self.tile_w))
        dy = _vectors(*every, pitch=self.columns.outputs, lanes=self.dy.lanes)
        return self.thread_planes * (x + dy)

    @property
    def instructions_of_image(self) -> float:
        """About as many as are unrolled."""
        rows, columns = self._reads
        converted = zeros = 0
        elements = len(rows) * len(columns) + self.tile_h * self.tile_w
        if ITEMSIZE[self.workload.dtype] == 2:
            converted = self.thread_planes * elements
        if self.tiling.tiles_h > 1:
            beyond = sum(not 0 <= at < self.tile_h * self.rows.up for at in rows)
            zeros = self.thread_planes * beyond * len(columns) // max(1, self.x.lanes)
        copied = COPY * (self.copies(self.x) + self.copies(self.dy))
        return self.products + self.loads + converted + zeros + copied + BOOKKEEPING

    @property
    def instructions_of_sums(self) -> float:
        """Of a thread, once: halving, half of the threads pass theirs on and the other half add them."""
        sums, count = self.thread_planes * self.sums_of_channel, halvings(self.mates)
        return START + sums + 3 * sums * (2 - 2.0**-count) * (count > 0) + 12 * count

    @property
    def registers(self) -> int:
        """About how many a thread needs: the sums, the rows of dy that an x meets, and rows on their way."""
        met = min(self.tile_h, (self.rows.taps - 1) * self.rows.step // self.rows.up + 1)
        _, columns = self._reads
        words = 2 if ITEMSIZE[self.workload.dtype] == 4 else 1
        row = len(columns) * (1 + words) // 2
        return self.thread_planes * self.sums_of_channel + met * self.tile_w + 2 * row + OTHER_REGISTERS


@cache
def _vectors(rows: tuple[int, ...], columns: tuple[int, ...], *, pitch: int, lanes: int) -> int:
    return sum(len(whole_vectors([row * pitch + column for column in columns], lanes)) for row in rows)
