"""The knobs of a block, the rules that make a configuration illegal, and where a search starts. No TVM here."""

from __future__ import annotations

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cpu.block_nhwc.cut import FusedBlockCut, axes_of, tile_sums
from dwconv.schedules.cpu.shared.limits import (
    channel_lanes,
    code_within_limit,
    sum_registers,
    sums_in_registers,
    thread_knobs,
    vector_count,
)
from dwconv.schedules.cpu.shared.row_blocks import block_heights, channel_blocks, preferred_block, tile_sizes
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule

TILE_WIDTHS = (1, 2, 3, 4, 6, 7, 8)
MOST_RING_BYTES = 1 << 22
PREFERRED_RING_BYTES = 1 << 19


def why_unfit(workload: Workload, target: CpuTarget) -> str | None:
    if workload.block and workload.block.layer_norm:
        return "it is for BatchNorms"
    if workload.multiplier > 1:
        return "blocks have no channel multiplier"
    if workload.pass_ == "inference" and workload.block and workload.block.is_of_images:
        return "the statistics of images are not given"
    block, (reach, *_), (before, after) = workload.block, reaches(workload), workload.padding[0]
    is_frozen = workload.pass_ == "backward" and block and block.batch_norm2 and block.batch_norm2.is_frozen
    if is_frozen and max(before, after) > reach:
        return "rows of y over padding alone have no part in the sums of a frozen norm"
    return None


def reaches(workload: Workload) -> tuple[int, ...]:
    """Along each axis, from the first tap of a kernel to its last."""
    return tuple(dilation * (taps - 1) for dilation, taps in zip(workload.dilation, workload.kernel, strict=True))


def block_space(name: str, workload: Workload, target: CpuTarget) -> ConfigSpace:
    axes, is_forward = axes_of(workload), workload.pass_ != "backward"
    rows, columns = axes.depths if axes.is_3d else axes.rows, axes.columns

    blocks_c, lanes = (
        channel_blocks(workload.channels, target, most_parts=None),
        channel_lanes(workload.channels, target),
    )

    def cut(config: Config) -> FusedBlockCut:
        return FusedBlockCut(workload, config, target)

    block_h = preferred_block(rows.outputs, batch=workload.batch, threads=target.threads)
    of_images = workload.block is not None and workload.block.is_of_images
    takes_images = of_images and workload.batch >= target.threads
    if workload.batch >= 2 * target.threads or takes_images:
        block_h = rows.outputs
    elif of_images:
        block_h = preferred_block(rows.outputs, batch=1, threads=target.threads)
    block_c = workload.channels
    if axes.is_3d:  # the planes of a ring stay in the cache
        of_vector = FusedBlockCut(workload, Config.of("", block_c=1, tile_w=1), target).ring_bytes
        fit = [each for each in blocks_c if vector_count(each, lanes) * of_vector <= PREFERRED_RING_BYTES]
        block_c = max(fit, default=min(blocks_c))
    width = max(1, sum_registers(target) // (1 if is_forward else 3) // 2 * 2)
    return ConfigSpace(
        name,
        Knob("block_h", block_heights(rows.outputs, multiple=rows.down)),
        Knob("block_c", blocks_c),
        Knob("tile_w", tile_sizes(TILE_WIDTHS, columns)),
        Knob("order", ["wc", "cw"]),
        Knob("parallel", ["images", "tasks"] if of_images else [], absent="tasks"),
        Knob("prefetch", ["none", "next_row"]),
        *thread_knobs(workload, target),
        rules=[
            sums_in_registers(
                lambda config: cut(config).sums,
                registers=sum_registers(target) + 2,
                smallest_tile=tile_sums(axes, columns.down, is_forward=is_forward),
            ),
            Rule("the ring of rows is too large", lambda config: cut(config).ring_bytes > MOST_RING_BYTES),
            code_within_limit(lambda config: cut(config).code_size),
        ],
        preferred={
            "threads": target.threads,
            "block_h": block_h,
            "block_c": block_c,
            "tile_w": min(width, 6),
            "order": "wc",
            "parallel": "images" if takes_images else "tasks",
            "prefetch": "next_row",
        },
    )
