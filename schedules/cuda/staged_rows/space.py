"""The space of staged rows: which configurations there are, which fit, and where to start. No TVM here."""

from __future__ import annotations

import math
from functools import lru_cache

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.gpu.hardware import MOST_THREADS_Z, SHARED_LANES
from dwconv.schedules.cuda.gpu.limits import LEAST_THREADS, MOST_PADDED
from dwconv.schedules.cuda.gpu.limits import STAGED_ROWS as MOST_CODE
from dwconv.schedules.cuda.staged_rows.cut import Cut
from dwconv.schedules.cuda.staged_rows.estimate import code_size, registers_of
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule, Value, divisors
from dwconv.schedules.taps import Axis

PREFERRED_THREADS = 448
MOST_PREFERRED_REGISTERS = 128
"""Registers of a thread that leave room for 16 warps."""
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64)
"""Parts of an axis, one a block."""


def row_space(name: str, workload: Workload, target: CudaTarget) -> ConfigSpace:
    """Knobs: planes of a block, threads down and across, columns of a thread."""
    gather = Gather.of(workload)
    tiles_w = _tiles(gather.columns)
    across = {-(-gather.columns.outputs // tile) for tile in tiles_w}
    return ConfigSpace(
        name,
        Knob("planes", [1, 2, 4, 8, 16, 32]),
        Knob("threads_h", _threads({-(-gather.rows.outputs // gather.rows.down)}, PARTS)),
        Knob("threads_w", _threads(across, (1, 2, 4))),
        Knob("tile_w", tiles_w),
        rules=_rules(workload, target),
        preferred=lambda: _preferred(workload, target, tiles_w),
    )


def row_misfit(workload: Workload, target: CudaTarget) -> str | None:
    """Why not even the smallest tile fits; None if it does."""
    gather, dtype = Gather.of(workload), workload.dtype
    tile_w = gather.columns.down
    if (code := code_size(gather, tile_w)) > MOST_CODE:
        return f"one tile is {code} instructions without a loop, more than {MOST_CODE}"
    if (registers := registers_of(gather, tile_w)) > target.registers_per_thread:
        return f"a row of weights and one tile take {registers} registers, a thread has {target.registers_per_thread}"
    warps = [
        Cut(
            gather=gather, dtype=dtype, planes=-(-LEAST_THREADS // across), threads_h=1, threads_w=across, tile_w=tile_w
        )
        for across in _threads({-(-gather.columns.outputs // tile_w)}, (1, 2, 4))
    ]
    needed = min(tiles.shared_bytes for tiles in warps)
    if needed > target.shared_bytes_per_block:
        return f"the input of a block tile is {needed} bytes, shared memory {target.shared_bytes_per_block}"
    return None


def _threads(whole: set[int], parts: tuple[int, ...]) -> list[int]:
    """Threads that cover the axis in one block, or in several equal ones."""
    return sorted({count for size in whole for part in parts if (count := -(-size // part)) <= MOST_THREADS_Z} | {1})


def _tiles(columns: Axis) -> list[int]:
    """Whole periods of the taps: parts of the row, and powers of two."""
    periods = -(-columns.outputs // columns.down)
    counts = {*divisors(periods, most=min(periods, 32)), *(-(-periods // part) for part in (2, 3, 4)), 1, 2, 4, 8, 16}
    tiles = sorted({columns.down * count for count in counts if count <= max(32 // columns.down, 1)})
    return [tile for tile in tiles if columns.covered(tile) <= columns.outputs * MOST_PADDED] or tiles[:1]


def _preferred(workload: Workload, target: CudaTarget, tiles_w: list[int]) -> dict[str, Value]:
    """The widest tile that pays for the kernel's width, that code and registers allow; as many planes as let two blocks
    share an SM."""
    gather = Gather.of(workload)
    widest = max(16, gather.columns.taps)
    fitting = [
        tile
        for tile in tiles_w
        if tile <= widest
        and code_size(gather, tile) <= MOST_CODE
        and registers_of(gather, tile) <= MOST_PREFERRED_REGISTERS
    ]
    tile_w = min(fitting or tiles_w[:1], key=lambda tile: _reading(gather.columns, tile))
    threads_w = -(-gather.columns.outputs // tile_w)
    rows = -(-gather.rows.outputs // gather.rows.down)
    threads_h = next((h for part in PARTS if (h := -(-rows // part)) * threads_w <= PREFERRED_THREADS), 1)
    planes = 32
    while planes > 1:
        tiles = Cut(
            gather=gather, dtype=workload.dtype, planes=planes, threads_h=threads_h, threads_w=threads_w, tile_w=tile_w
        )
        if tiles.threads <= PREFERRED_THREADS and 2 * tiles.shared_bytes <= target.shared_bytes_per_sm - 2048:
            break
        planes //= 2
    return {"planes": planes, "threads_h": threads_h, "threads_w": threads_w, "tile_w": tile_w}


def _reading(columns: Axis, tile_w: int) -> float:
    """The cost of sums with that tile, over multiply-adds alone: reading weights and a source row. Tiles side
    by side meet in the same banks where their vectors are an even number apart."""
    apart = 0 if tile_w >= columns.outputs else columns.origin(tile_w)
    lanes = math.gcd(apart, SHARED_LANES)
    conflicts = 1.5 if apart and apart // lanes % 2 == 0 else 1.0
    return columns.covered(tile_w) / columns.outputs * (1 + SHARED_LANES / tile_w) * conflicts


def _rules(workload: Workload, target: CudaTarget) -> list[Rule]:
    gather = Gather.of(workload)
    wanted = gather.rows.covered(gather.rows.down) * gather.columns.covered(gather.columns.down)

    @lru_cache(maxsize=4)
    def tiles(config: Config) -> Cut:
        return Cut.of(workload, config)

    def computed(config: Config) -> int:
        rows = gather.rows.covered(config.threads_h * gather.rows.down)
        return rows * gather.columns.covered(config.threads_w * config.tile_w)

    def split(config: Config) -> bool:
        return bool(tiles(config).blocks_h * tiles(config).blocks_w > 1 and gather.channels % config.planes != 0)

    return [
        Rule(f"more than {target.threads_per_block} threads", lambda c: tiles(c).threads > target.threads_per_block),
        Rule(f"fewer than {LEAST_THREADS} threads", lambda c: tiles(c).threads < LEAST_THREADS),
        Rule(f"more than {MOST_PADDED}× the outputs wanted", lambda c: computed(c) > MOST_PADDED * wanted),
        Rule("a block holds parts of planes of several images", split),
        Rule(
            f"more than {MOST_CODE} instructions unrolled",
            lambda c: code_size(gather, c.tile_w) > MOST_CODE,
        ),
        Rule(
            "more registers than there are",
            lambda c: (
                registers_of(gather, c.tile_w)
                > min(target.registers_per_thread, target.registers_per_sm // tiles(c).threads)
            ),
        ),
        Rule(
            f"more than {target.shared_bytes_per_block} bytes of shared memory",
            lambda c: tiles(c).shared_bytes > target.shared_bytes_per_block,
        ),
    ]
