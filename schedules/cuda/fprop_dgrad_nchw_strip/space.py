"""The space of strips: configurations, which of them fit, and where to start. No TVM here."""

from __future__ import annotations

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import DType, Workload
from dwconv.schedules.cuda.fprop_dgrad_nchw_strip.estimate import strip_code, strip_registers, thread_work
from dwconv.schedules.cuda.gpu import hardware
from dwconv.schedules.cuda.gpu.plane_tiles import plane_limits, shares_images, snug, threads_along
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, ConfigSpace, Knob, Limit, Rule, Value, divisors
from dwconv.schedules.taps import Axis

STRIP_THREADS = 224
FEW_STRIP_THREADS = 256
"""Fewer on an SM leave it waiting for memory."""


def strip_space(name: str, workload: Workload, target: CudaTarget) -> ConfigSpace:
    gather = Gather.of(workload)
    tiles_h, tiles_w = _strip_tiles(gather.rows, most=28), _strip_tiles(gather.columns, most=8)
    return ConfigSpace(
        name,
        Knob("planes", [1, 2, 4, 8, 16, 32, 64]),
        Knob("threads_h", threads_along(gather.rows, tiles_h, (1, 2, 4))),
        Knob("tile_h", tiles_h),
        Knob("threads_w", threads_along(gather.columns, tiles_w, (1, 2, 4), most=256)),
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


def _strip_limits(gather: Gather, target: CudaTarget) -> list[Limit]:
    def tiles(c: Config) -> tuple[int, int]:
        return c.threads_h * c.tile_h, c.threads_w * c.tile_w

    def shared(c: Config) -> bool:
        down, across = tiles(c)
        is_whole = down >= gather.rows.outputs and across >= gather.columns.outputs
        return not is_whole and gather.result_planes % c.planes != 0

    return [
        shares_images(shared),
        *plane_limits(
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
    work = thread_work(gather, dtype, tile_h, tile_w, across=-(-columns.outputs // tile_w))
    idle = rows.covered(tile_h) * columns.covered(tile_w) / (rows.outputs * columns.outputs)
    busy = max(work.instructions / 4, work.lines) + work.instructions / 8 + work.loads + work.stores
    return busy * idle / (hardware.WARP * tile_h * tile_w)
