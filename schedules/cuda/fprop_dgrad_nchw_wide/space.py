"""The space of wide rows: configurations, which of them fit, and where to start. No TVM here."""

from __future__ import annotations

import math
from functools import partial

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.fprop_dgrad_nchw_wide.cut import WideCut
from dwconv.schedules.cuda.fprop_dgrad_nchw_wide.estimate import row_code, row_registers
from dwconv.schedules.cuda.gpu import hardware
from dwconv.schedules.cuda.gpu.plane_tiles import plane_limits, shares_images, snug, threads_along
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import ConfigSpace, Knob, Limit, Value, divisors, rules_of
from dwconv.schedules.taps import Axis

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
        Knob("threads_h", threads_along(gather.rows, [gather.rows.down], PARTS)),
        Knob("threads_w", threads_along(gather.columns, tiles_w, (1, 2, 4))),
        Knob("tile_w", tiles_w),
        rules=rules_of(partial(WideCut.of, workload), _row_limits(gather, target)),
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
        WideCut.of_tile(
            workload, planes=-(-hardware.LEAST_THREADS // across), threads_h=1, threads_w=across, tile_w=tile_w
        )
        for across in threads_along(gather.columns, [tile_w], (1, 2, 4))
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
        tiles = WideCut.of_tile(workload, planes=planes, threads_h=threads_h, threads_w=threads_w, tile_w=tile_w)
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
        shares_images(lambda cut: cut.blocks_h * cut.blocks_w > 1 and gather.channels % cut.planes != 0),
        *plane_limits(
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
