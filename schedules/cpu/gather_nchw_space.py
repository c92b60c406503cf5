"""What the configuration spaces of fprop and dgrad in NCHW share: tiles, rules, the size of the code. No TVM here."""

from __future__ import annotations

from functools import cache

from dwconv.schedules.cpu import sizes
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule
from dwconv.schedules.taps import Axis, Run, column_runs, full_source_loops
from dwconv.target import CpuTarget, Target
from dwconv.workload import Workload

WIDEST_KERNEL = 128
"""Kernel columns are unrolled; beyond this width that is too much code."""

LARGEST_STRIDE = 4
"""Columns are interleaved from so many phases at most."""

MOST_SCRATCH = 1 << 18
"""Floats of scratch memory of a task: half of what the second-level cache of most machines holds."""


def misfit(workload: Workload, target: Target) -> str | None:
    """Why the NCHW templates of the CPU cannot run a workload; None if they can."""
    if workload.dtype != "float32":
        return f"it computes float32, not {workload.dtype}"
    if workload.layout != "nchw":
        return f"it is for nchw, the workload is {workload.layout}"
    if workload.kernel[1] > WIDEST_KERNEL:
        return f"kernel_w={workload.kernel[1]} is beyond {WIDEST_KERNEL}"
    if workload.stride[1] > LARGEST_STRIDE:
        return f"stride_w={workload.stride[1]} is beyond {LARGEST_STRIDE}"
    return None


def lanes_along(columns: int, target: CpuTarget) -> int:
    """Columns in a vector: as many as a register holds, or the power of two that holds them all, at least four."""
    return min(target.lanes(), max(4, 1 << (columns - 1).bit_length()))


def work_lanes(work: Gather, target: CpuTarget) -> int:
    return lanes_along(-(-work.columns.outputs // work.columns.down), target)


def rows_in_block(config: Config) -> int:
    """``block_h``, in whole tiles."""
    return int(-(-config.block_h // config.tile_h) * config.tile_h)


def column_tiles(columns: Axis, *, width: int, stage: str) -> list[Run]:
    """The tiles of a row. Read in place, edges are tiles of their own; in scratch memory there are none."""
    if stage == "none":
        return column_runs(columns, width)
    whole, left = divmod(columns.outputs, width)
    tiles = [Run(start=0, tiles=whole, width=width, interior=True)] if whole else []
    return [*tiles, Run(start=whole * width, tiles=1, width=left, interior=False)] if left else tiles


def gather_space(name: str, work: Gather, workload: Workload, target: CpuTarget) -> ConfigSpace:
    rows, columns = work.rows, work.columns
    lanes = work_lanes(work, target)
    vectors = -(-columns.outputs // (lanes * columns.down))
    registers = sizes.sum_registers(target)
    tile_h = max(rows.down, 4 // rows.down * rows.down)
    whole = -(-rows.outputs // rows.down) * rows.down
    if vectors == 1 and whole * columns.down <= registers and whole <= 14 // rows.up:
        tile_h = whole  # every row of the source is loaded once; several tiles would share weights, and spill them
    small = rows.taps * columns.taps <= 81
    return ConfigSpace(
        name,
        Knob("stage", ["none", "scratch"]),
        Knob("planes", [1, 2, 4, 8, 16]),
        Knob("block_h", sizes.row_blocks(rows.outputs, multiple=rows.down)),
        Knob("tile_h", sizes.tiles((1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14), rows)),
        Knob("vectors_w", [count for count in (1, 2, 3, 4, 7) if count <= vectors]),
        Knob("unroll", ["taps", "kw"] if rows.taps > 1 else ["taps"]),
        *sizes.thread_knob(workload, target),
        rules=[
            Rule(
                "a tile is higher than its block",
                lambda config: config.tile_h > config.block_h,
            ),
            Rule(
                "planes one after the other share nothing but scratch memory",
                lambda config: config.planes > 1 and config.stage == "none" and config.unroll == "taps",
            ),
            Rule(
                f"more sums in a tile than {registers} registers",
                lambda config: sums(work, config) > max(registers, rows.down * columns.down),
            ),
            Rule(
                "too much scratch memory for a cache",
                lambda config: scratch_elements(work, config, lanes=lanes) > MOST_SCRATCH,
            ),
            Rule(
                "too much code: it takes long to compile",
                lambda config: code_size(work, config, lanes=lanes) > sizes.MOST_CODE,
            ),
        ],
        preferred={
            "threads": target.threads,
            "stage": "none" if small else "scratch",
            "planes": 1 if small else 4,
            "block_h": preferred_rows(work, batch=workload.batch, threads=target.threads),
            "tile_h": tile_h, "vectors_w": 2 if columns.up == 1 else 1,
            "unroll": "taps" if rows.taps * columns.taps <= 25 else "kw",
        },
    )  # fmt: skip


def sums(work: Gather, config: Config) -> int:
    """Vectors that are summed at the same time."""
    return int(config.tile_h * work.columns.down * config.vectors_w)


def preferred_rows(work: Gather, *, batch: int, threads: int) -> int:
    """All rows, unless there are too few planes for the threads."""
    planes = batch * (work.channels // work.fan_out)
    blocks = max(1, -(-4 * threads // planes))
    return max(1, work.rows.outputs // blocks)


def scratch_elements(work: Gather, config: Config, *, lanes: int) -> int:
    """About how many floats of the source a task holds in scratch memory."""
    if config.stage == "none":
        return 0
    _, rows = work.rows.spanned(rows_in_block(config))
    nearest, farthest = work.columns.reach
    width = work.columns.inputs + 2 * lanes + farthest - nearest
    return work.fan_in * rows * width


def code_size(work: Gather, config: Config, *, lanes: int) -> int:
    """About how many vector instructions there are in the code of all tiles."""
    return _code_size(work, config, lanes)


@cache
def _code_size(work: Gather, config: Config, lanes: int) -> int:
    width = config.vectors_w * lanes * work.columns.down
    runs = column_tiles(work.columns, width=width, stage=config.stage)
    vectors = sum(-(-run.width // (lanes * work.columns.down)) for run in runs)
    reads = work.columns.reads(work.columns.down)
    loads, column_taps = len(reads), sum(map(len, reads.values()))
    loads *= 2 * work.columns.up if config.stage == "none" and work.columns.up > 1 else 1
    if config.unroll == "kw":
        loops = full_source_loops(work.rows, config.tile_h)
        rows_read, products = len(loops), sum(len(loop.meetings) for loop in loops) * column_taps
    else:
        row_reads = work.rows.reads(config.tile_h)
        rows_read, products = len(row_reads), sum(map(len, row_reads.values())) * column_taps
    stored = config.tile_h * work.columns.down
    return vectors * (rows_read * loads + products + 2 * stored) + len(runs) * products
