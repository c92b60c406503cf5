"""The spaces of strips and of staged rows: configurations, which of them fit, and where to start. No TVM here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import DType, Workload
from dwconv.schedules.cuda.gather_nchw.cut import RowsCut
from dwconv.schedules.cuda.gather_nchw.estimate import row_code, row_registers, strip_code, strip_registers, strip_work
from dwconv.schedules.cuda.gpu import hardware
from dwconv.schedules.cuda.gpu.hardware import MOST_THREADS_Z
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, ConfigSpace, Knob, Limit, Rule, Value, divisors, rules_of
from dwconv.schedules.taps import Axis


def limits(
    gather: Gather, target: CudaTarget, *, tiles: Callable[[Any], tuple[int, int]], **others: Any
) -> list[Limit]:
    """``tiles``: rows and columns of which a plane is made."""

    def covered(down: int, across: int) -> int:
        return gather.rows.covered(down) * gather.columns.covered(across)

    wanted = covered(gather.rows.down, gather.columns.down)
    return hardware.usual_limits(target, computed=lambda cut: covered(*tiles(cut)), wanted=wanted, **others)


def _shares_images(test: Callable[[Any], bool]) -> Limit:
    return "a block holds parts of planes of several images", test


def snug(axis: Axis, tiles: Iterable[int]) -> list[int]:
    """Those tiles that leave little idle; the least one, if none does."""
    ordered = sorted(tiles)
    return [tile for tile in ordered if axis.covered(tile) <= axis.outputs * hardware.MOST_PADDED] or ordered[:1]


# -- from global memory --------------------------------------------------------------------------------------------

STRIP_THREADS = 224
FEW_STRIP_THREADS = 256
"""Fewer on an SM leave it waiting for memory."""


def strip_space(name: str, workload: Workload, target: CudaTarget) -> ConfigSpace:
    gather = Gather.of(workload)
    tiles_h, tiles_w = _strip_tiles(gather.rows, most=28), _strip_tiles(gather.columns, most=8)
    return ConfigSpace(
        name,
        Knob("planes", [1, 2, 4, 8, 16, 32, 64]),
        Knob("threads_h", _threads(gather.rows, tiles_h, (1, 2, 4))),
        Knob("tile_h", tiles_h),
        Knob("threads_w", _threads(gather.columns, tiles_w, (1, 2, 4), most=256)),
        Knob("tile_w", tiles_w),
        Knob("rows_ahead", [0, 1, 2, 4]),
        rules=[Rule(*limit) for limit in _strip_limits(gather, target)],
        preferred=lambda: _preferred_strip(gather, workload, target, tiles_h=tiles_h, tiles_w=tiles_w),
    )


def strip_misfit(workload: Workload, target: CudaTarget) -> str | None:
    gather = Gather.of(workload)
    tile_h, tile_w = gather.rows.down, gather.columns.down
    if reason := hardware.grid_misfit(workload, gather):
        return reason
    if (code := strip_code(gather, tile_h, tile_w)) > hardware.GLOBAL_STRIP_CODE:
        return f"one tile is {code} instructions without a loop, more than {hardware.GLOBAL_STRIP_CODE}"
    if (registers := strip_registers(gather, tile_h, tile_w, rows_ahead=0)) > target.registers_per_thread:
        return f"the weights and one tile take {registers} registers, a thread has {target.registers_per_thread}"
    return None


def _strip_tiles(axis: Axis, *, most: int) -> list[int]:
    """Whole periods of the taps that divide the axis, or are powers of two, and leave little idle."""
    periods = -(-axis.outputs // axis.down)
    counts = {*divisors(periods), 1, 2, 4, 8, 16}
    return snug(axis, {axis.down * count for count in counts if axis.down * count <= max(most, axis.down)})


def _threads(axis: Axis, tiles: list[int], parts: tuple[int, ...], *, most: int = MOST_THREADS_Z) -> list[int]:
    """Threads that cover the axis in one block, or in so many equal ones, whatever the tile."""
    whole = {-(-axis.outputs // tile) for tile in tiles}
    return sorted({count for size in whole for part in parts if (count := -(-size // part)) <= most} | {1})


def _strip_limits(gather: Gather, target: CudaTarget) -> list[Limit]:
    def tiles(c: Config) -> tuple[int, int]:
        return c.threads_h * c.tile_h, c.threads_w * c.tile_w

    def shared(c: Config) -> bool:
        down, across = tiles(c)
        is_whole = down >= gather.rows.outputs and across >= gather.columns.outputs
        return not is_whole and gather.result_planes % c.planes != 0

    return [
        _shares_images(shared),
        *limits(
            gather,
            target,
            tiles=tiles,
            threads=lambda c: c.planes * c.threads_h * c.threads_w,
            code=lambda c: strip_code(gather, c.tile_h, c.tile_w),
            most_code=hardware.GLOBAL_STRIP_CODE,
            registers=lambda c: strip_registers(gather, c.tile_h, c.tile_w, rows_ahead=c.rows_ahead),
        ),
    ]


def _preferred_strip(
    gather: Gather, workload: Workload, target: CudaTarget, *, tiles_h: list[int], tiles_w: list[int]
) -> dict[str, Value]:
    """The tile that keeps an SM least busy, lower where that gives it too few threads; about seven warps a block."""

    def starved(tile_h: int) -> float:
        threads = -(-gather.rows.outputs // tile_h) * threads_w * gather.result_planes * workload.batch
        return max(1.0, target.sms * FEW_STRIP_THREADS / threads)

    fitting = [(h, w) for h in tiles_h for w in tiles_w if strip_code(gather, h, w) <= hardware.GLOBAL_STRIP_CODE]
    tiles = fitting or [(tiles_h[0], tiles_w[0])]
    _, tile_w = min(tiles, key=lambda tile: _strip_cycles(gather, workload.dtype, *tile))
    threads_w = -(-gather.columns.outputs // tile_w)
    heights = [h for h, w in tiles if w == tile_w]
    tile_h = min(heights, key=lambda height: _strip_cycles(gather, workload.dtype, height, tile_w) * starved(height))
    threads_h = max(1, min(-(-gather.rows.outputs // tile_h), STRIP_THREADS // threads_w))
    planes = max(1, STRIP_THREADS // (threads_w * threads_h))
    return {
        "planes": 1 << (planes.bit_length() - 1),
        "threads_h": threads_h,
        "tile_h": tile_h,
        "threads_w": threads_w,
        "tile_w": tile_w,
        "rows_ahead": 2,
    }


def _strip_cycles(gather: Gather, dtype: DType, tile_h: int, tile_w: int) -> float:
    """Cycles of an SM for an output: four warp instructions are issued in one, one line of 128 bytes is looked up."""
    rows, columns = gather.rows, gather.columns
    work = strip_work(gather, dtype, tile_h, tile_w, across=-(-columns.outputs // tile_w))
    idle = rows.covered(tile_h) * columns.covered(tile_w) / (rows.outputs * columns.outputs)
    busy = max(work.instructions / 4, work.lines) + work.instructions / 8 + work.loads + work.stores
    return busy * idle / (hardware.WARP * tile_h * tile_w)


# -- from rows in shared memory ------------------------------------------------------------------------------------

ROW_THREADS = 448
MOST_PREFERRED_REGISTERS = 128
"""Registers of a thread that leave room for 16 warps."""
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64)
"""Parts of an axis, one a block."""


def row_space(name: str, workload: Workload, target: CudaTarget) -> ConfigSpace:
    gather = Gather.of(workload)
    tiles_w = _row_tiles(gather.columns)
    return ConfigSpace(
        name,
        Knob("planes", [1, 2, 4, 8, 16, 32]),
        Knob("threads_h", _threads(gather.rows, [gather.rows.down], PARTS)),
        Knob("threads_w", _threads(gather.columns, tiles_w, (1, 2, 4))),
        Knob("tile_w", tiles_w),
        rules=rules_of(partial(RowsCut.of, workload), _row_limits(gather, target)),
        preferred=lambda: _preferred_rows(workload, target, tiles_w),
    )


def row_misfit(workload: Workload, target: CudaTarget) -> str | None:
    gather = Gather.of(workload)
    tile_w = gather.columns.down
    if (code := row_code(gather, tile_w)) > hardware.STAGED_ROWS_CODE:
        return f"one tile is {code} instructions without a loop, more than {hardware.STAGED_ROWS_CODE}"
    if (registers := row_registers(gather, tile_w)) > target.registers_per_thread:
        return f"a row of weights and one tile take {registers} registers, a thread has {target.registers_per_thread}"
    warps = [
        RowsCut.of_tile(
            workload, planes=-(-hardware.LEAST_THREADS // across), threads_h=1, threads_w=across, tile_w=tile_w
        )
        for across in _threads(gather.columns, [tile_w], (1, 2, 4))
    ]
    needed = min(tiles.shared_bytes for tiles in warps)
    if needed > target.shared_bytes_per_block:
        return f"the input of a block tile is {needed} bytes, shared memory {target.shared_bytes_per_block}"
    return None


def _row_tiles(columns: Axis) -> list[int]:
    periods = -(-columns.outputs // columns.down)
    counts = {*divisors(periods, most=min(periods, 32)), *(-(-periods // part) for part in (2, 3, 4)), 1, 2, 4, 8, 16}
    return snug(columns, {columns.down * count for count in counts if count <= max(32 // columns.down, 1)})


def _preferred_rows(workload: Workload, target: CudaTarget, tiles_w: list[int]) -> dict[str, Value]:
    """The widest tile that pays for the kernel's width, that code and registers allow; as many planes as let two blocks
    share an SM."""
    gather = Gather.of(workload)
    widest = max(16, gather.columns.taps)
    fitting = [
        tile
        for tile in tiles_w
        if tile <= widest
        and row_code(gather, tile) <= hardware.STAGED_ROWS_CODE
        and row_registers(gather, tile) <= MOST_PREFERRED_REGISTERS
    ]
    tile_w = min(fitting or tiles_w[:1], key=lambda tile: _reading(gather.columns, tile))
    threads_w = -(-gather.columns.outputs // tile_w)
    rows = -(-gather.rows.outputs // gather.rows.down)
    threads_h = next((h for part in PARTS if (h := -(-rows // part)) * threads_w <= ROW_THREADS), 1)
    planes = 32
    while planes > 1:
        tiles = RowsCut.of_tile(workload, planes=planes, threads_h=threads_h, threads_w=threads_w, tile_w=tile_w)
        if tiles.threads <= ROW_THREADS and 2 * tiles.shared_bytes <= target.shared_bytes_per_sm - 2048:
            break
        planes //= 2
    return {"planes": planes, "threads_h": threads_h, "threads_w": threads_w, "tile_w": tile_w}


def _reading(columns: Axis, tile_w: int) -> float:
    """The cost of sums with that tile, over multiply-adds alone: reading weights and a source row. Tiles side
    by side meet in the same banks where their vectors are an even number apart."""
    apart = 0 if tile_w >= columns.outputs else columns.origin(tile_w)
    lanes = math.gcd(apart, hardware.SHARED_LANES)
    conflicts = 1.5 if apart and apart // lanes % 2 == 0 else 1.0
    return columns.covered(tile_w) / columns.outputs * (1 + hardware.SHARED_LANES / tile_w) * conflicts


def _row_limits(gather: Gather, target: CudaTarget) -> list[Limit]:
    return [
        _shares_images(lambda cut: cut.blocks_h * cut.blocks_w > 1 and gather.channels % cut.planes != 0),
        *limits(
            gather,
            target,
            tiles=lambda cut: (cut.threads_h * gather.rows.down, cut.threads_w * cut.tile_w),
            threads=lambda cut: cut.threads,
            code=lambda cut: row_code(gather, cut.tile_w),
            most_code=hardware.STAGED_ROWS_CODE,
            registers=lambda cut: row_registers(gather, cut.tile_w),
        ),
        hardware.limit_of_shared(target),
    ]
