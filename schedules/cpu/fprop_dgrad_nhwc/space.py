"""The knobs of the NHWC gather, the rules that make a configuration illegal, and where a search starts. No TVM here."""

from __future__ import annotations

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cpu.fprop_dgrad_nhwc.cut import GatherNhwcCut, step_knob, store_knob
from dwconv.schedules.cpu.shared.limits import (
    TILE_WITHIN_BLOCK,
    WIDE_KERNEL,
    channel_lanes,
    code_within_limit,
    fills_cache_lines,
    sum_registers,
    sums_beside,
    sums_in_flight,
    sums_in_registers,
    thread_knobs,
)
from dwconv.schedules.cpu.shared.row_blocks import (
    LONG_WIDTH,
    block_heights,
    channel_blocks,
    preferred_block,
    preferred_width,
    tile_sizes,
    width_knob,
)
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule, Value

ORDERS = ["hwc", "hcw", "chw", "cwh", "wch"]
"""Loops over tiles from the outermost in: rows, columns, vectors of channels."""
TILE_WIDTHS = (1, 2, 3, 4, 6, 7, 8, 12, 14, 16)


def gather_space(name: str, workload: Workload, target: CpuTarget) -> ConfigSpace:
    work = Gather.of(workload)
    rows, planes = work.rows, workload.batch * work.depths.outputs
    block_h = preferred_block(rows.outputs, batch=planes, threads=target.threads)
    return ConfigSpace(
        name,
        Knob("block_h", block_heights(rows.outputs, multiple=rows.down)),
        width_knob(work.axes),
        Knob("tile_h", tile_sizes((1, 2, 3, 4), rows)),
        Knob("tile_w", tile_sizes(TILE_WIDTHS, work.columns)),
        Knob("vectors_c", [1, 2, 3, 4]),
        Knob("order", ORDERS),
        Knob("block_c", channel_blocks(work.channels, target)),
        Knob("unroll", unrolling(work)),
        *thread_knobs(workload, target),
        store_knob(work, workload, target),
        step_knob(work, workload),
        rules=gather_rules(work, target),
        preferred={
            "threads": target.threads,
            "store": "streamed",
            "block_h": block_h,
            "block_c": preferred_channels(work, block_h, batch=planes, threads=target.threads),
            **preferred_tile(work, target),
            **(preferred_tile_apart(work) if step_knob(work, workload).values else {}),
            **(preferred_row(work, target, batch=planes) if work.axes.is_row else {}),
        },
    )


def unrolling(work: Gather) -> list[str]:
    """Which taps are unrolled: all, those of a kernel row, none. Of a single kernel row the first two are the same."""
    choices = ["taps", "kw"] if work.rows.taps > 1 else ["taps"]
    return [*choices, "none"] if work.columns.taps >= WIDE_KERNEL or work.multiplier > 1 else choices


def gather_rules(work: Gather, target: CpuTarget) -> list[Rule]:
    def cut(config: Config) -> GatherNhwcCut:
        return GatherNhwcCut(work, config, target)

    return [
        TILE_WITHIN_BLOCK,
        Rule("a tile holds more vectors than a block has", lambda config: config.vectors_c > cut(config).block_vectors),
        Rule(
            "kernel rows in a loop share nothing between the rows of a tile",
            lambda config: config.unroll != "taps" and config.tile_h > work.rows.down,
        ),
        Rule("a tile is larger than what lies a step apart", lambda config: _is_too_large(cut(config))),
        Rule(
            "taps in a loop are next to each other",
            lambda config: config.unroll == "none" and cut(config).tile_step > 1,
        ),
        sums_in_registers(
            lambda config: cut(config).sums, registers=sum_registers(target), smallest_tile=work.columns.down
        ),
        code_within_limit(lambda config: cut(config).code_size),
    ]


def _is_too_large(cut: GatherNhwcCut) -> bool:
    config = cut.config
    return cut.tile_step > 1 and (config.tile_w > cut.columns.outputs or config.tile_h > cut.row_axis.outputs)


def preferred_tile_apart(work: Gather) -> dict[str, Value]:
    """A small tile of rows and columns a dilation apart; of a large kernel, columns next to each other, to start with.

    Measured with AVX-512, two threads, 2048×33² k3 d6 of one image: 236 µs, of two vectors in a single row 290; the
    best tile of neighbours 530, oneDNN 710."""
    if max(work.rows.taps, work.columns.taps) > 3:
        return {}
    step, tile_w = abs(work.columns.step), min(3, -(-work.columns.outputs // abs(work.columns.step)))
    return {"tile_step": step, "tile_h": 2, "tile_w": tile_w, "vectors_c": 2, "order": "hwc", "unroll": "taps"}


def preferred_channels(work: Gather, block_h: int, *, batch: int, threads: int) -> int:
    """Channels of a task: all, unless images and blocks of rows alone leave threads without work."""
    tasks = batch * -(-work.rows.outputs // block_h)
    return work.channels if tasks >= 2 * threads else max(1, work.channels * tasks // (2 * threads))


def preferred_row(work: Gather, target: CpuTarget, *, batch: int) -> dict[str, Value]:
    """Where images are single rows: blocks of columns with all channels. A small kernel reads pixel by pixel, as they
    lie; a wider one goes down a strip of channels that stays in the first-level cache.

    Measured with AVX2, one thread. 1536×2048 k4: 4 × 2 against 8 × 1 vectors 1360 and 1480 µs. 512×800 k31: unrolled,
    4 × 2 400 µs and 8 × 1 560, in loops 6 × 2 430. 768×2048 k128 in loops: 6 × 2 6500 µs, 12 × 1 6800, 3 × 4 7200."""
    taps = work.columns.taps
    width = preferred_width(work.axes, tasks=batch, threads=target.threads, most=512 if taps >= 8 else LONG_WIDTH)
    tile_w, unroll = sums_in_flight(target) // 2, "taps"
    if taps >= 64:
        tile_w, unroll = sum_registers(target) // 2, "none"
    order = "hwc" if taps < 8 else "chw"
    tile: dict[str, Value] = {"tile_h": 1, "tile_w": tile_w, "vectors_c": 2, "order": order, "unroll": unroll}
    return {"block_w": width, "block_c": work.channels, **tile}


def preferred_tile(work: Gather, target: CpuTarget) -> dict[str, Value]:
    """A wide tile of one row, with a loop over kernel rows: it has the sums that multiply-adds in flight need, reads
    few columns twice and keeps the weights of a kernel row in registers. As few tiles as possible, about equally wide.
    The rows below follow, while the lines that they share are in the cache. Narrow images make up for it by vectors
    or, if kernels are small and rows shared, by rows. So do channels that fill no whole vectors: most loads then lie
    across two cache lines, and tiles of several rows load least. Taps in a column share nothing else.

    With vectors of half a cache line a small kernel takes four of them, and few columns. Measured with AVX2, one
    thread, 2 × 4 against tiles of 12 × 1 or 7 × 1: 192×28² k3 400 and 870 µs, 576×14² k3 300 and 350, stride 2 170 and
    470. Larger kernels: 7 × 1, which leaves registers for weights, against 6 × 2: 672×14² k5 680 and 860."""
    rows, columns = work.rows, work.columns
    if columns.taps == 1 and rows.taps > 1 and rows.up == rows.down == 1:
        return {"tile_h": 4, "tile_w": 3, "vectors_c": 2, "order": "wch", "unroll": "taps"}
    if work.channels % channel_lanes(work.channels, target) and max(rows.taps, columns.taps) <= 3:
        return {"tile_h": 3, "tile_w": 7, "vectors_c": 1, "order": "hwc", "unroll": "taps"}
    taps_met = -(-columns.taps // columns.down)  # by a result, in a row
    if taps_met <= 3 and not fills_cache_lines(target):
        width = max(columns.down, sums_in_flight(target) // 4 // columns.down * columns.down)
        return {"tile_h": rows.down, "tile_w": width, "vectors_c": 4, "order": "wch", "unroll": "kw"}
    widths = [size for size in tile_sizes(TILE_WIDTHS, columns) if size <= sums_beside(columns.taps, target)]
    width = min(widths or [columns.down], key=lambda size: (-(-columns.outputs // size), size))
    is_wide = width > 8 or 2 * width > sums_beside(2 * columns.taps, target)
    tile: dict[str, Value] = {"tile_h": rows.down, "tile_w": width, "vectors_c": 1 if is_wide else 2}
    order = {"order": "wch" if columns.taps < 7 else "chw"}
    shares_rows = 2 * width <= sums_beside(rows.taps * columns.taps, target)
    if width <= 8 and rows.taps <= 3 and rows.up == 1 and shares_rows:
        return {**tile, **order, "tile_h": 2, "vectors_c": 1, "unroll": "taps"}
    return {**tile, **order, "unroll": "kw"}
