"""The tiles of direct strips: which there are, and which of them fit. No TVM here."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property

from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule, Value, divisors
from dwconv.schedules.taps import Axis
from dwconv.target import CudaTarget
from dwconv.workload import ITEMSIZE, DType, Workload

VECTOR_BYTES = 16


@dataclass(frozen=True, kw_only=True)
class Strip:
    """A configuration in numbers: the partition, and the vectors in which a thread reads and writes."""

    planes: int
    """Of a block, one thread each."""
    tile_h: int
    tile_w: int
    threads_h: int
    threads_w: int
    blocks_h: int
    blocks_w: int
    rows_ahead: int
    """A source row is asked for so many rows before it is used."""
    source_pieces: tuple[tuple[int, int], ...]
    """What a thread reads of a source row: (offset, lanes) of each vector."""
    result_lanes: int

    @classmethod
    def of(cls, work: Gather, config: Config, dtype: DType) -> Strip:
        itemsize = ITEMSIZE[dtype]
        lanes = aligned_lanes(work.columns.origin(config.tile_w), work.columns.inputs, itemsize)
        pieces = vectors(work.columns.reads(config.tile_w), lanes)
        return cls(
            planes=config.planes,
            tile_h=config.tile_h,
            tile_w=config.tile_w,
            threads_h=config.threads_h,
            threads_w=config.threads_w,
            blocks_h=-(-work.rows.outputs // (config.threads_h * config.tile_h)),
            blocks_w=-(-work.columns.outputs // (config.threads_w * config.tile_w)),
            rows_ahead=config.rows_ahead,
            source_pieces=tuple(pieces),
            result_lanes=aligned_lanes(config.tile_w, work.columns.outputs, itemsize),
        )

    @property
    def row_tiles(self) -> int:
        return self.blocks_h * self.threads_h

    @property
    def column_tiles(self) -> int:
        return self.blocks_w * self.threads_w

    @cached_property
    def source_slots(self) -> dict[int, int]:
        """Where each vector of a source row stands in registers, by offset; the widest first, so all are aligned."""
        slots, end = {}, 0
        for first, lanes in sorted(self.source_pieces, key=lambda piece: -piece[1]):
            slots[first] = end
            end += lanes
        return slots

    @property
    def source_span(self) -> int:
        """Registers of a source row."""
        return sum(lanes for _, lanes in self.source_pieces)


def aligned_lanes(step: int, pitch: int, itemsize: int) -> int:
    """The widest vector that starts at every multiple of ``step`` in rows of ``pitch`` elements."""
    return math.gcd(step, pitch, VECTOR_BYTES // itemsize)


def vectors(wanted: Iterable[int], lanes: int) -> list[tuple[int, int]]:
    """(offset, lanes) of aligned vectors that hold the ``wanted`` offsets: of each vector of ``lanes``, the smallest
    aligned part that does."""
    groups: dict[int, list[int]] = {}
    for at in sorted(wanted):
        groups.setdefault(at // lanes, []).append(at)
    pieces = []
    for held in groups.values():
        width = 1
        while held[0] // width != held[-1] // width:
            width *= 2
        pieces.append((held[0] // width * width, width))
    return pieces


# -- the space -----------------------------------------------------------------------------------------------------

MOST_PADDED = 1.3
"""Outputs computed over outputs wanted."""
MOST_CODE = 1700
"""Unrolled instructions. Beyond it compiling takes more than a second, and the code leaves the instruction cache."""
OTHER_REGISTERS = 20
"""For addresses, tests and numbers of tiles."""
LEAST_THREADS = 32
PREFERRED_THREADS = 224
FEW_THREADS = 256
"""Fewer on an SM leave it waiting for memory."""
START = 30
"""Instructions with which a thread finds its place."""
WARP = 32
LINE_BYTES = 128


def strip_space(name: str, work: Gather, workload: Workload, target: CudaTarget) -> ConfigSpace:
    """Knobs: the partition of planes, rows and columns, and how early a source row is asked for."""
    tiles_h, tiles_w = _tiles(work.rows, most=28), _tiles(work.columns, most=8)
    threads_h, threads_w = _threads(work.rows, tiles_h, most=64), _threads(work.columns, tiles_w, most=256)
    return ConfigSpace(
        name,
        Knob("planes", [1, 2, 4, 8, 16, 32, 64]),
        Knob("threads_h", threads_h),
        Knob("tile_h", tiles_h),
        Knob("threads_w", threads_w),
        Knob("tile_w", tiles_w),
        Knob("rows_ahead", [0, 1, 2, 4]),
        rules=_rules(work, target),
        preferred=_preferred(work, workload, target, tiles_h=tiles_h, tiles_w=tiles_w),
    )


def strip_misfit(work: Gather, target: CudaTarget) -> str | None:
    """Why not even the smallest tile fits; None if it does."""
    tile_h, tile_w = work.rows.down, work.columns.down
    if (code := _code(work, tile_h, tile_w)) > MOST_CODE:
        return f"one tile is {code} instructions without a loop, more than {MOST_CODE}"
    if (registers := _registers(work, tile_h, tile_w, rows_ahead=0)) > target.registers_per_thread:
        return f"the weights and one tile take {registers} registers, a thread has {target.registers_per_thread}"
    return None


def _tiles(axis: Axis, *, most: int) -> list[int]:
    """Whole periods of the taps that divide the axis, or are powers of two, and leave little idle."""
    periods = -(-axis.outputs // axis.down)
    counts = {*divisors(periods), 1, 2, 4, 8, 16}
    tiles = sorted(axis.down * count for count in counts if axis.down * count <= max(most, axis.down))
    return [tile for tile in tiles if _covered(axis, tile) <= axis.outputs * MOST_PADDED] or tiles[:1]


def _threads(axis: Axis, tiles: list[int], *, most: int) -> list[int]:
    """Threads that cover the axis in one block, in two or in four equal ones, whatever the tile."""
    whole = {-(-axis.outputs // tile) for tile in tiles}
    return sorted({count for size in whole for part in (1, 2, 4) if (count := -(-size // part)) <= most} | {1})


def _preferred(
    work: Gather, workload: Workload, target: CudaTarget, *, tiles_h: list[int], tiles_w: list[int]
) -> dict[str, Value]:
    """The tile that keeps an SM least busy, lower where that gives it too few threads; about seven warps a block."""

    def starved(tile_h: int) -> float:
        threads = -(-work.rows.outputs // tile_h) * threads_w * work.channels * workload.batch
        return max(1.0, target.sms * FEW_THREADS / threads)

    tiles = [(h, w) for h in tiles_h for w in tiles_w if _code(work, h, w) <= MOST_CODE] or [(tiles_h[0], tiles_w[0])]
    _, tile_w = min(tiles, key=lambda tile: _cycles(work, workload.dtype, *tile))
    threads_w = -(-work.columns.outputs // tile_w)
    heights = [h for h, w in tiles if w == tile_w]
    tile_h = min(heights, key=lambda height: _cycles(work, workload.dtype, height, tile_w) * starved(height))
    threads_h = max(1, min(-(-work.rows.outputs // tile_h), PREFERRED_THREADS // threads_w))
    planes = max(1, PREFERRED_THREADS // (threads_w * threads_h))
    return {
        "planes": 1 << (planes.bit_length() - 1),
        "threads_h": threads_h,
        "tile_h": tile_h,
        "threads_w": threads_w,
        "tile_w": tile_w,
        "rows_ahead": 2,
    }


def _cycles(work: Gather, dtype: DType, tile_h: int, tile_w: int) -> float:
    """Cycles of an SM for an output: four warp instructions are issued in one, one line of 128 bytes is looked up.

    A warp reads a piece of as many rows as it takes to give 32 threads a tile each.
    """
    rows, columns, itemsize = work.rows, work.columns, ITEMSIZE[dtype]
    threads = -(-columns.outputs // tile_w)
    rows_of_a_warp = max(1.0, WARP / threads)

    def lines(step: int) -> float:
        return rows_of_a_warp * (1 + (min(threads, WARP) * step * itemsize - 1) / LINE_BYTES)

    step = columns.origin(tile_w)
    loads = len(rows.reads(tile_h)) * len(vectors(columns.reads(tile_w), aligned_lanes(step, columns.inputs, itemsize)))
    stores = tile_h * tile_w / aligned_lanes(tile_w, columns.outputs, itemsize)
    looked_up = loads * lines(step) + stores * lines(tile_w) + rows.taps * columns.taps * rows_of_a_warp
    issued = _code(work, tile_h, tile_w) + loads + stores + rows.taps * columns.taps + START
    idle = _covered(rows, tile_h) * _covered(columns, tile_w) / (rows.outputs * columns.outputs)
    return (max(issued / 4, looked_up) + issued / 8 + loads + stores) * idle / (WARP * tile_h * tile_w)


def _rules(work: Gather, target: CudaTarget) -> list[Rule]:
    wanted = _covered(work.rows, work.rows.down) * _covered(work.columns, work.columns.down)

    def threads(config: Config) -> int:
        return int(config.planes * config.threads_h * config.threads_w)

    def computed(config: Config) -> int:
        rows = _covered(work.rows, config.threads_h * config.tile_h)
        return rows * _covered(work.columns, config.threads_w * config.tile_w)

    def whole_planes(config: Config) -> bool:
        down, across = config.threads_h * config.tile_h, config.threads_w * config.tile_w
        return bool(down >= work.rows.outputs and across >= work.columns.outputs)

    def registers(config: Config) -> int:
        return _registers(work, config.tile_h, config.tile_w, rows_ahead=config.rows_ahead)

    return [
        Rule(f"more than {target.threads_per_block} threads", lambda c: threads(c) > target.threads_per_block),
        Rule(f"fewer than {LEAST_THREADS} threads", lambda c: threads(c) < LEAST_THREADS),
        Rule(f"more than {MOST_PADDED}× the outputs wanted", lambda c: computed(c) > MOST_PADDED * wanted),
        Rule(
            "a block holds parts of planes of several images",
            lambda c: not whole_planes(c) and work.channels % c.planes != 0,
        ),
        Rule(f"more than {MOST_CODE} instructions unrolled", lambda c: _code(work, c.tile_h, c.tile_w) > MOST_CODE),
        Rule(
            "more registers than there are",
            lambda c: registers(c) > min(target.registers_per_thread, target.registers_per_sm // threads(c)),
        ),
    ]


def _covered(axis: Axis, part: int) -> int:
    return int(-(-axis.outputs // part) * part)


@cache
def _code(work: Gather, tile_h: int, tile_w: int) -> int:
    """About how many instructions a thread has, none of them in a loop."""
    rows, columns = work.rows.reads(tile_h), work.columns.reads(tile_w)
    products = sum(map(len, rows.values())) * sum(map(len, columns.values()))
    return products + len(rows) * len(columns) + tile_h * tile_w


@cache
def _registers(work: Gather, tile_h: int, tile_w: int, *, rows_ahead: int) -> int:
    """About how many a thread needs: weights, sums under way, source rows under way."""
    reads = work.rows.reads(tile_h)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, pairs in reads.items():
        for out, _ in pairs:
            first.setdefault(out, at)
            last[out] = at
    under_way = max(sum(first[out] <= at <= last[out] for out in first) for at in reads)
    sums = (tile_h if work.fan_in > 1 else under_way) * tile_w
    return (
        work.rows.taps * work.columns.taps + sums + (1 + rows_ahead) * len(work.columns.reads(tile_w)) + OTHER_REGISTERS
    )
