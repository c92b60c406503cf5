"""The knobs of a block, the rules that make a configuration illegal, and where a search starts. No TVM here."""

from __future__ import annotations

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cpu.block_nhwc.cut import Cut
from dwconv.schedules.cpu.shared.blocks import block_heights, preferred_block, tile_sizes
from dwconv.schedules.cpu.shared.registers import channel_lanes, sum_registers, vector_count
from dwconv.schedules.cpu.shared.rules import code_within_limit, sums_in_registers
from dwconv.schedules.cpu.shared.threads import thread_knobs
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule, divisors
from dwconv.schedules.taps import Axes

TILE_WIDTHS = (1, 2, 3, 4, 6, 7, 8)
MOST_RING_BYTES = 1 << 22
PREFERRED_RING_BYTES = 1 << 18
"""It stays in the second-level cache of most cores."""


def why_unfit(workload: Workload, target: CpuTarget) -> str | None:
    if workload.dtype != "float32":
        return f"blocks are float32, the workload is {workload.dtype}"
    return "blocks have no channel multiplier" if workload.multiplier > 1 else None


def block_space(name: str, workload: Workload, target: CpuTarget) -> ConfigSpace:
    axes = Axes.of_convolution(workload) if workload.pass_ == "forward" else Axes.of_input_gradient(workload)
    rows, columns = axes.rows, axes.columns

    def cut(config: Config) -> Cut:
        return Cut(workload, config, target)

    block_c = channel_blocks(workload.channels, target)
    block_h = preferred_block(rows.outputs, batch=workload.batch, threads=target.threads)
    if workload.batch >= 2 * target.threads:
        block_h = rows.outputs
    width = max(1, sum_registers(target) // (1 if workload.pass_ == "forward" else 3) // 2 * 2)
    return ConfigSpace(
        name,
        Knob("block_h", block_heights(rows.outputs, multiple=rows.down)),
        Knob("block_c", block_c),
        Knob("tile_w", tile_sizes(TILE_WIDTHS, columns)),
        Knob("order", ["wc", "cw"]),
        Knob("prefetch", ["none", "next_row"]),
        *thread_knobs(workload, target),
        rules=[
            sums_in_registers(
                lambda config: cut(config).sums,
                registers=sum_registers(target) + 2,
                smallest_tile=cut_of_least(workload, target),
            ),
            Rule("the ring of rows is too large", lambda config: cut(config).ring_bytes > MOST_RING_BYTES),
            code_within_limit(lambda config: cut(config).code_size),
        ],
        preferred={
            "threads": target.threads,
            "block_h": block_h,
            "block_c": workload.channels,
            "tile_w": min(width, 6),
            "order": "wc",
            "prefetch": "next_row",
        },
    )


def cut_of_least(workload: Workload, target: CpuTarget) -> int:
    """What the narrowest tile holds."""
    columns = (Axes.of_convolution if workload.pass_ == "forward" else Axes.of_input_gradient)(workload).columns
    return columns.down if workload.pass_ == "forward" else 2 * columns.down + columns.taps


def channel_blocks(channels: int, target: CpuTarget) -> list[int]:
    """Channels of a task: all, or an equal part of the vectors; the last may overlap the one before."""
    lanes = channel_lanes(channels, target)
    vectors = vector_count(channels, lanes)
    parts = [part for part in divisors(vectors) if part > 1 and vectors // part >= 1]
    return sorted({vectors // part * lanes for part in parts if vectors // part * lanes <= channels} | {channels})
