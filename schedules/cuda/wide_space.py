"""The tiles of wide rows: which there are, how they lie in shared memory, and which of them fit. No TVM here."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cache, cached_property

from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule, Value, divisors
from dwconv.schedules.taps import Axis
from dwconv.target import CudaTarget
from dwconv.workload import DType, Workload

SHARED_LANES = 4
"""Words in the widest access of shared memory."""
BANKS = 32


@dataclass(frozen=True, kw_only=True)
class Staged:
    """The part of a source axis that a block holds: ``size`` elements from ``block · step + first`` on."""

    first: int
    size: int
    step: int


@dataclass(frozen=True, kw_only=True)
class Wide:
    """A configuration in numbers. A thread owns ``tile_h`` rows, as many as a gradient's stride, of ``tile_w`` columns;
    a block holds the source rows and the weights of its planes in shared memory, in float32."""

    work: Gather
    dtype: DType
    planes: int
    threads_h: int
    threads_w: int
    tile_w: int

    @classmethod
    def of(cls, work: Gather, config: Config, dtype: DType) -> Wide:
        return cls(
            work=work,
            dtype=dtype,
            planes=config.planes,
            threads_h=config.threads_h,
            threads_w=config.threads_w,
            tile_w=config.tile_w,
        )

    @property
    def tile_h(self) -> int:
        return self.work.rows.down

    @property
    def threads(self) -> int:
        return self.planes * self.threads_h * self.threads_w

    @property
    def blocks_h(self) -> int:
        return -(-self.work.rows.outputs // (self.threads_h * self.tile_h))

    @property
    def blocks_w(self) -> int:
        return -(-self.work.columns.outputs // (self.threads_w * self.tile_w))

    @property
    def row_tiles(self) -> int:
        return self.blocks_h * self.threads_h

    @property
    def column_tiles(self) -> int:
        return self.blocks_w * self.threads_w

    # -- in shared memory ----------------------------------------------------------------------------------------------

    @cached_property
    def shared_lanes(self) -> int:
        """Words of a source row that a thread reads at a time: where tiles lie side by side, they start at any."""
        return SHARED_LANES if self.column_tiles == 1 else math.gcd(self._columns_apart, SHARED_LANES)

    @cached_property
    def fetch_lanes(self) -> int:
        """Elements of a source row fetched from global memory at a time: as many as shared memory takes at a time."""
        step = 0 if self.blocks_w == 1 else self.threads_w * self._columns_apart
        return math.gcd(step, self.work.columns.inputs, SHARED_LANES)

    @property
    def unit(self) -> int:
        """Rows and planes begin at multiples of it."""
        return max(self.shared_lanes, self.fetch_lanes)

    @cached_property
    def rows(self) -> Staged:
        axis, apart = self.work.rows, self._rows_apart
        if self.blocks_h == 1:
            return Staged(first=0, size=axis.inputs, step=0)
        reads = list(axis.reads(self.tile_h))
        size = (self.threads_h - 1) * apart + reads[-1] + 1 - reads[0]
        return Staged(first=reads[0], size=size, step=self.threads_h * apart)

    @cached_property
    def columns(self) -> Staged:
        """Whole vectors; the padding too, unless one thread has all columns: then it is not multiplied."""
        axis, apart, unit = self.work.columns, self._columns_apart, self.unit
        if self.column_tiles == 1:
            return Staged(first=0, size=-(-axis.inputs // unit) * unit, step=0)
        reads = list(axis.reads(self.tile_w))
        first = reads[0] // unit * unit
        size = (self.threads_w - 1) * apart + reads[-1] + 1 - first
        return Staged(first=first, size=-(-size // unit) * unit, step=self.threads_w * apart)

    @property
    def row_words(self) -> int:
        """From a staged row to the next."""
        return self._apart[0]

    @property
    def plane_words(self) -> int:
        """From a staged plane to the next."""
        return self._apart[1]

    @property
    def weight_lanes(self) -> int:
        """Words of a row of weights that a thread reads at a time. Threads of one plane read the same: of the up to 8
        planes of a warp shared memory gives 4 words in a turn, of 16 planes 2, and 32 planes take 4 turns for 4."""
        planes = min(self.planes, -(-BANKS // self.threads_w))
        return SHARED_LANES if planes <= BANKS // SHARED_LANES or planes == BANKS else 2

    @property
    def weight_words(self) -> int:
        """From a row of weights to the next."""
        return -(-self.work.columns.taps // SHARED_LANES) * SHARED_LANES

    @property
    def kernel_words(self) -> int:
        """From the weights of a plane to the next: an odd number of vectors, so that planes lie in different banks."""
        return (self.work.rows.taps * self.weight_words // self.weight_lanes | 1) * self.weight_lanes

    @property
    def kernels_at(self) -> int:
        """Where the kernels stand: after the source planes, at a whole vector."""
        return -(-self.planes * self.plane_words // SHARED_LANES) * SHARED_LANES

    @property
    def shared_bytes(self) -> int:
        return 4 * (self.kernels_at + self.planes * self.kernel_words)

    @property
    def _rows_apart(self) -> int:
        """Source rows from a tile to the next."""
        return self.work.rows.origin(self.tile_h)

    @property
    def _columns_apart(self) -> int:
        return self.work.columns.origin(self.tile_w)

    @cached_property
    def _apart(self) -> tuple[int, int]:
        return spread_vectors(
            self.rows.size,
            self.columns.size,
            lanes=self.shared_lanes,
            unit=self.unit,
            threads=(self.threads_w, self.planes, self.threads_h),
            steps=(self._columns_apart, self._rows_apart),
        )


@cache
def spread_vectors(
    rows: int, columns: int, *, lanes: int, unit: int, threads: tuple[int, int, int], steps: tuple[int, int]
) -> tuple[int, int]:
    """Words from a staged row, and from a staged plane, to the next, so that the threads that shared memory serves at
    a time (32, or 8 with vectors of 4) meet in as few banks as can be.

    ``threads`` lie across columns, planes and rows; their reads are ``steps`` columns and rows apart.
    """
    served, units = BANKS // lanes, BANKS // lanes
    across, planes, _ = threads

    def most_in_a_bank(row: int, plane: int) -> int:
        worst = 0
        for first in range(0, BANKS, served):
            places = set()
            for thread in range(first, first + served):
                column, rest = thread % across, thread // across
                places.add(column * steps[0] + rest % planes * plane + rest // planes * steps[1] * row)
            worst = max(worst, *Counter(place // lanes % units for place in places).values())
        return worst

    found, least = (columns, rows * columns), BANKS + 1
    for row in range(columns, columns + (BANKS if threads[2] > 1 else 1), unit):
        for plane in range(rows * row, rows * row + BANKS, unit):
            most = most_in_a_bank(row, plane)
            if most < least and (least == BANKS + 1 or planes * plane <= planes * found[1] * 1.25):
                found, least = (row, plane), most
            if least == 1:
                return found
    return found


# -- the space -----------------------------------------------------------------------------------------------------

MOST_PADDED = 1.3
"""Outputs computed over outputs wanted."""
MOST_CODE = 1500
"""Unrolled instructions in the loop over kernel rows. Beyond it compiling takes more than a second."""
OTHER_REGISTERS = 32
LEAST_THREADS = 32
PREFERRED_THREADS = 448
MOST_PREFERRED_REGISTERS = 128
"""Of a thread: leaves room for 16 warps."""
MOST_THREADS_AXIS = 64
"""What CUDA allows on z."""
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64)
"""Of an axis, one a block."""


def wide_space(name: str, work: Gather, workload: Workload, target: CudaTarget) -> ConfigSpace:
    """Knobs: planes of a block, threads down and across, columns of a thread."""
    tiles_w = _tiles(work.columns)
    across = {-(-work.columns.outputs // tile) for tile in tiles_w}
    return ConfigSpace(
        name,
        Knob("planes", [1, 2, 4, 8, 16, 32]),
        Knob("threads_h", _threads({-(-work.rows.outputs // work.rows.down)}, PARTS)),
        Knob("threads_w", _threads(across, (1, 2, 4))),
        Knob("tile_w", tiles_w),
        rules=_rules(work, workload.dtype, target),
        preferred=_preferred(work, workload, target, tiles_w),
    )


def wide_misfit(work: Gather, dtype: DType, target: CudaTarget) -> str | None:
    """Why not even the smallest tile fits; None if it does."""
    tile_w = work.columns.down
    if (code := _code(work, tile_w)) > MOST_CODE:
        return f"one tile is {code} instructions without a loop, more than {MOST_CODE}"
    if (registers := _registers(work, tile_w)) > target.registers_per_thread:
        return f"a row of weights and one tile take {registers} registers, a thread has {target.registers_per_thread}"
    warps = [
        Wide(work=work, dtype=dtype, planes=-(-LEAST_THREADS // across), threads_h=1, threads_w=across, tile_w=tile_w)
        for across in _threads({-(-work.columns.outputs // tile_w)}, (1, 2, 4))
    ]
    needed = min(tiles.shared_bytes for tiles in warps)
    if needed > target.shared_bytes_per_block:
        return f"the input of a block tile is {needed} bytes, shared memory {target.shared_bytes_per_block}"
    return None


def _threads(whole: set[int], parts: tuple[int, ...]) -> list[int]:
    """Threads that cover the axis in one block, or in several equal ones."""
    return sorted({count for size in whole for part in parts if (count := -(-size // part)) <= MOST_THREADS_AXIS} | {1})


def _tiles(columns: Axis) -> list[int]:
    """Whole periods of the taps: parts of the row, and powers of two."""
    periods = -(-columns.outputs // columns.down)
    counts = {*divisors(periods, most=min(periods, 32)), *(-(-periods // part) for part in (2, 3, 4)), 1, 2, 4, 8, 16}
    tiles = sorted({columns.down * count for count in counts if count <= max(32 // columns.down, 1)})
    return [tile for tile in tiles if _covered(columns, tile) <= columns.outputs * MOST_PADDED] or tiles[:1]


def _preferred(work: Gather, workload: Workload, target: CudaTarget, tiles_w: list[int]) -> dict[str, Value]:
    """The widest tile that pays for the kernel's width, that code and registers allow; as many planes as let two blocks
    share an SM."""
    widest = max(16, work.columns.taps)
    fitting = [
        tile
        for tile in tiles_w
        if tile <= widest and _code(work, tile) <= MOST_CODE and _registers(work, tile) <= MOST_PREFERRED_REGISTERS
    ]
    tile_w = min(fitting or tiles_w[:1], key=lambda tile: _reading(work.columns, tile))
    threads_w = -(-work.columns.outputs // tile_w)
    rows = -(-work.rows.outputs // work.rows.down)
    threads_h = next((h for part in PARTS if (h := -(-rows // part)) * threads_w <= PREFERRED_THREADS), 1)
    planes = 32
    while planes > 1:
        tiles = Wide(
            work=work, dtype=workload.dtype, planes=planes, threads_h=threads_h, threads_w=threads_w, tile_w=tile_w
        )
        if tiles.threads <= PREFERRED_THREADS and 2 * tiles.shared_bytes <= target.shared_bytes_per_sm - 2048:
            break
        planes //= 2
    return {"planes": planes, "threads_h": threads_h, "threads_w": threads_w, "tile_w": tile_w}


def _reading(columns: Axis, tile_w: int) -> float:
    """What sums cost with that tile, over multiply-adds alone: reading weights and a source row. Tiles side
    by side meet in the same banks where their vectors are an even number apart."""
    apart = 0 if tile_w >= columns.outputs else columns.origin(tile_w)
    lanes = math.gcd(apart, SHARED_LANES)
    conflicts = 1.5 if apart and apart // lanes % 2 == 0 else 1.0
    return _covered(columns, tile_w) / columns.outputs * (1 + SHARED_LANES / tile_w) * conflicts


def _rules(work: Gather, dtype: DType, target: CudaTarget) -> list[Rule]:
    wanted = _covered(work.rows, work.rows.down) * _covered(work.columns, work.columns.down)

    def tiles(config: Config) -> Wide:
        return Wide.of(work, config, dtype)

    def computed(config: Config) -> int:
        rows = _covered(work.rows, config.threads_h * work.rows.down)
        return rows * _covered(work.columns, config.threads_w * config.tile_w)

    def split(config: Config) -> bool:
        return bool(tiles(config).blocks_h * tiles(config).blocks_w > 1 and work.channels % config.planes != 0)

    return [
        Rule(f"more than {target.threads_per_block} threads", lambda c: tiles(c).threads > target.threads_per_block),
        Rule(f"fewer than {LEAST_THREADS} threads", lambda c: tiles(c).threads < LEAST_THREADS),
        Rule(f"more than {MOST_PADDED}× the outputs wanted", lambda c: computed(c) > MOST_PADDED * wanted),
        Rule("a block holds parts of planes of several images", split),
        Rule(f"more than {MOST_CODE} instructions unrolled", lambda c: _code(work, c.tile_w) > MOST_CODE),
        Rule(
            "more registers than there are",
            lambda c: (
                _registers(work, c.tile_w)
                > min(target.registers_per_thread, target.registers_per_sm // tiles(c).threads)
            ),
        ),
        Rule(
            f"more than {target.shared_bytes_per_block} bytes of shared memory",
            lambda c: tiles(c).shared_bytes > target.shared_bytes_per_block,
        ),
    ]


def _covered(axis: Axis, part: int) -> int:
    return int(-(-axis.outputs // part) * part)


@cache
def _code(work: Gather, tile_w: int) -> int:
    """About how many instructions a kernel row takes, for every row of the tile."""
    reads = work.columns.reads(tile_w)
    products = sum(map(len, reads.values()))
    return work.rows.down * (products + (len(reads) + work.columns.taps) // SHARED_LANES)


@cache
def _registers(work: Gather, tile_w: int) -> int:
    """About how many a thread needs: sums, a row of weights, what it has read of a row."""
    return work.rows.down * tile_w + work.columns.taps + len(work.columns.reads(tile_w)) // 2 + OTHER_REGISTERS
