"""What the configuration spaces of fprop and dgrad share: orders, blocks of channels, rules. No TVM here."""

from __future__ import annotations

from dwconv.schedules.cpu import sizes
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, Knob, Rule, Value, divisors
from dwconv.target import CpuTarget
from dwconv.workload import Workload

ORDERS = ["hwc", "hcw", "chw", "cwh", "wch"]
"""Loops over tiles from the outermost in: rows, columns, groups of channels."""
TILE_WIDTHS = (1, 2, 3, 4, 6, 7, 8, 12, 14, 16)


def channel_blocks(channels: int, target: CpuTarget) -> list[int]:
    """Channels of a task: all, or an equal part of the vectors; the last may overlap the one before."""
    lanes, vectors = sizes.vector_lanes(channels, target), sizes.vector_count(channels, target)
    return sorted({vectors // part * lanes for part in divisors(vectors, most=8) if part > 1} | {channels})


def preferred_channels(work: Gather, block_h: int, *, batch: int, threads: int) -> int:
    """Channels of a task: all, unless images and blocks of rows alone leave threads without work."""
    tasks = batch * -(-work.rows.outputs // block_h)
    return work.channels if tasks >= 2 * threads else max(1, work.channels * tasks // (2 * threads))


def preferred_tile(work: Gather, target: CpuTarget) -> dict[str, Value]:
    """A wide tile of one row, with a loop over kernel rows: it has the sums that multiply-adds in flight need, reads
    few columns twice and keeps the weights of a kernel row in registers. As few tiles as possible, about equally wide.
    The rows below follow, while the lines that they share are in the cache. Narrow images make up for it by vectors
    or, if kernels are small and rows shared, by rows. So do channels that fill no whole vectors: most loads then lie
    across two cache lines, and tiles of several rows load least. Taps in a column share nothing else."""
    down = work.columns.down
    if work.columns.taps == 1 and work.rows.taps > 1 and work.rows.up == work.rows.down == 1:
        return {"tile_h": 4, "tile_w": 3, "vectors_c": 2, "order": "wch", "unroll": "taps"}
    if work.channels % sizes.vector_lanes(work.channels, target) and max(work.rows.taps, work.columns.taps) <= 3:
        return {"tile_h": 3, "tile_w": 7, "vectors_c": 1, "order": "hwc", "unroll": "taps"}
    widths = [size for size in sizes.tiles(TILE_WIDTHS, work.columns) if size <= sizes.sum_registers(target)]
    width = min(widths or [down], key=lambda size: (-(-work.columns.outputs // size), size))
    tile: dict[str, Value] = {"tile_h": work.rows.down, "tile_w": width, "vectors_c": 1 if width > 8 else 2}
    order = {"order": "wch" if work.columns.taps < 7 else "chw"}
    if width <= 8 and work.rows.taps <= 3 and work.rows.up == 1:
        return {**tile, **order, "tile_h": 2, "vectors_c": 1, "unroll": "taps"}
    return {**tile, **order, "unroll": "kw"}


def unrolling(work: Gather) -> list[str]:
    """Which taps are unrolled: all, those of a kernel row, none. Of a single kernel row the first two are the same."""
    choices = ["taps", "kw"] if work.rows.taps > 1 else ["taps"]
    return [*choices, "none"] if work.columns.taps >= sizes.WIDE_KERNEL or work.multiplier > 1 else choices


def store_knob(work: Gather, workload: Workload, target: CpuTarget) -> Knob:
    """Whether the result goes past the caches: only where it is too large to be found there, if its pixels are whole
    vectors, and on x86."""
    is_x86 = target.vector_bytes >= 32
    fits = workload.batch <= sizes.streamed_above(workload, target)
    streams = is_x86 and not fits and work.channels % target.lanes() == 0
    return Knob("store", ["cached", "streamed"] if streams else [], absent="cached")


def is_streamed(config: Config) -> bool:
    return config.to_dict().get("store") == "streamed"


def gather_rules(work: Gather, target: CpuTarget) -> list[Rule]:
    registers = sizes.sum_registers(target)
    return [
        Rule(
            "a tile is higher than its block",
            lambda config: config.tile_h > config.block_h,
        ),
        Rule(
            "a tile holds more vectors than a block has",
            lambda config: config.vectors_c > sizes.vector_count(config.block_c, target),
        ),
        Rule(
            "kernel rows in a loop share nothing between the rows of a tile",
            lambda config: config.unroll != "taps" and config.tile_h > work.rows.down,
        ),
        Rule(
            f"more sums in a tile than {registers} registers",
            lambda config: sums(config) > max(registers, work.columns.down),
        ),
        Rule(
            "too much code: it takes long to compile",
            lambda config: code_size(work, config, target) > sizes.MOST_CODE,
        ),
    ]


def sums(config: Config) -> int:
    """Vectors that are summed at the same time."""
    return (config.tile_h if config.unroll == "taps" else 1) * config.tile_w * config.vectors_c


def code_size(work: Gather, config: Config, target: CpuTarget) -> int:
    """About how many vector instructions there are in the code of all tiles."""
    whole, left = divmod(sizes.vector_count(config.block_c, target), config.vectors_c)
    vectors = config.vectors_c * (whole > 0) + left
    load = sizes.load_cost(work.multiplier)
    if config.unroll == "none":
        return config.tile_h * (config.tile_w + 4 * work.columns.down) * vectors * (1 + load)
    tiles, reads, products = sizes.row_code(work.columns, config.tile_w)
    if config.unroll == "kw":
        return config.tile_h * vectors * (load * reads + products)
    rows_read = work.rows.reads(config.tile_h)
    taps = sum(map(len, rows_read.values()))
    return vectors * (len(rows_read) * load * reads + taps * products) + len(rows_read) * tiles * sums(config)
