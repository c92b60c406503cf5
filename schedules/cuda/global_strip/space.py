"""The space of direct strips: which configurations there are, which fit, and where to start. No TVM here."""

from __future__ import annotations

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import DType, Workload
from dwconv.schedules.cuda.global_strip.estimate import code_size, registers_of, thread_work
from dwconv.schedules.cuda.gpu.hardware import WARP
from dwconv.schedules.cuda.gpu.limits import GLOBAL_STRIP as MOST_CODE
from dwconv.schedules.cuda.gpu.limits import LEAST_THREADS, MOST_PADDED
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule, Value, divisors
from dwconv.schedules.taps import Axis

PREFERRED_THREADS = 224
FEW_THREADS = 256
"""Fewer on an SM leave it waiting for memory."""


def strip_space(name: str, workload: Workload, target: CudaTarget) -> ConfigSpace:
    """Knobs: the partition of planes, rows and columns, and how early a source row is asked for."""
    gather = Gather.of(workload)
    tiles_h, tiles_w = _tiles(gather.rows, most=28), _tiles(gather.columns, most=8)
    threads_h, threads_w = _threads(gather.rows, tiles_h, most=64), _threads(gather.columns, tiles_w, most=256)
    return ConfigSpace(
        name,
        Knob("planes", [1, 2, 4, 8, 16, 32, 64]),
        Knob("threads_h", threads_h),
        Knob("tile_h", tiles_h),
        Knob("threads_w", threads_w),
        Knob("tile_w", tiles_w),
        Knob("rows_ahead", [0, 1, 2, 4]),
        rules=_rules(gather, target),
        preferred=lambda: _preferred(gather, workload, target, tiles_h=tiles_h, tiles_w=tiles_w),
    )


def strip_misfit(workload: Workload, target: CudaTarget) -> str | None:
    """Why not even the smallest strip fits; None if it does."""
    gather = Gather.of(workload)
    tile_h, tile_w = gather.rows.down, gather.columns.down
    if (code := code_size(gather, tile_h, tile_w)) > MOST_CODE:
        return f"one tile is {code} instructions without a loop, more than {MOST_CODE}"
    if (registers := registers_of(gather, tile_h, tile_w, rows_ahead=0)) > target.registers_per_thread:
        return f"the weights and one tile take {registers} registers, a thread has {target.registers_per_thread}"
    return None


def _tiles(axis: Axis, *, most: int) -> list[int]:
    """Whole periods of the taps that divide the axis, or are powers of two, and leave little idle."""
    periods = -(-axis.outputs // axis.down)
    counts = {*divisors(periods), 1, 2, 4, 8, 16}
    tiles = sorted(axis.down * count for count in counts if axis.down * count <= max(most, axis.down))
    return [tile for tile in tiles if axis.covered(tile) <= axis.outputs * MOST_PADDED] or tiles[:1]


def _threads(axis: Axis, tiles: list[int], *, most: int) -> list[int]:
    """Threads that cover the axis in one block, in two or in four equal ones, whatever the tile."""
    whole = {-(-axis.outputs // tile) for tile in tiles}
    return sorted({count for size in whole for part in (1, 2, 4) if (count := -(-size // part)) <= most} | {1})


def _rules(gather: Gather, target: CudaTarget) -> list[Rule]:
    rows, columns = gather.rows, gather.columns
    wanted = rows.covered(rows.down) * columns.covered(columns.down)

    def threads(config: Config) -> int:
        return int(config.planes * config.threads_h * config.threads_w)

    def computed(config: Config) -> int:
        return rows.covered(config.threads_h * config.tile_h) * columns.covered(config.threads_w * config.tile_w)

    def whole_planes(config: Config) -> bool:
        down, across = config.threads_h * config.tile_h, config.threads_w * config.tile_w
        return bool(down >= rows.outputs and across >= columns.outputs)

    def registers(config: Config) -> int:
        return registers_of(gather, config.tile_h, config.tile_w, rows_ahead=config.rows_ahead)

    return [
        Rule(f"more than {target.threads_per_block} threads", lambda c: threads(c) > target.threads_per_block),
        Rule(f"fewer than {LEAST_THREADS} threads", lambda c: threads(c) < LEAST_THREADS),
        Rule(f"more than {MOST_PADDED}× the outputs wanted", lambda c: computed(c) > MOST_PADDED * wanted),
        Rule(
            "a block holds parts of planes of several images",
            lambda c: not whole_planes(c) and gather.result_planes % c.planes != 0,
        ),
        Rule(
            f"more than {MOST_CODE} instructions unrolled",
            lambda c: code_size(gather, c.tile_h, c.tile_w) > MOST_CODE,
        ),
        Rule(
            "more registers than there are",
            lambda c: registers(c) > min(target.registers_per_thread, target.registers_per_sm // threads(c)),
        ),
    ]


# -- where to start ------------------------------------------------------------------------------------------------


def _preferred(
    gather: Gather, workload: Workload, target: CudaTarget, *, tiles_h: list[int], tiles_w: list[int]
) -> dict[str, Value]:
    """The tile that keeps an SM least busy, lower where that gives it too few threads; about seven warps a block."""

    def starved(tile_h: int) -> float:
        threads = -(-gather.rows.outputs // tile_h) * threads_w * gather.result_planes * workload.batch
        return max(1.0, target.sms * FEW_THREADS / threads)

    fitting = [(h, w) for h in tiles_h for w in tiles_w if code_size(gather, h, w) <= MOST_CODE]
    tiles = fitting or [(tiles_h[0], tiles_w[0])]
    _, tile_w = min(tiles, key=lambda tile: _cycles(gather, workload.dtype, *tile))
    threads_w = -(-gather.columns.outputs // tile_w)
    heights = [h for h, w in tiles if w == tile_w]
    tile_h = min(heights, key=lambda height: _cycles(gather, workload.dtype, height, tile_w) * starved(height))
    threads_h = max(1, min(-(-gather.rows.outputs // tile_h), PREFERRED_THREADS // threads_w))
    planes = max(1, PREFERRED_THREADS // (threads_w * threads_h))
    return {
        "planes": 1 << (planes.bit_length() - 1),
        "threads_h": threads_h,
        "tile_h": tile_h,
        "threads_w": threads_w,
        "tile_w": tile_w,
        "rows_ahead": 2,
    }


def _cycles(gather: Gather, dtype: DType, tile_h: int, tile_w: int) -> float:
    """Cycles of an SM for an output: four warp instructions are issued in one, one line of 128 bytes is looked up."""
    rows, columns = gather.rows, gather.columns
    work = thread_work(gather, dtype, tile_h, tile_w, across=-(-columns.outputs // tile_w))
    idle = rows.covered(tile_h) * columns.covered(tile_w) / (rows.outputs * columns.outputs)
    busy = max(work.instructions / 4, work.lines) + work.instructions / 8 + work.loads + work.stores
    return busy * idle / (WARP * tile_h * tile_w)
