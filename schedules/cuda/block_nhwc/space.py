"""The knobs of a block on CUDA, the rules that make a configuration illegal, and where a search starts. No TVM here."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.block_nhwc.cut import Cut, axes_of
from dwconv.schedules.cuda.block_nhwc.start import preferred
from dwconv.schedules.cuda.block_nhwc.thread_work import code_size, registers_of
from dwconv.schedules.cuda.gpu.bounds import LEAST_THREADS, MOST_PADDED, MOST_WORKSPACE_BYTES
from dwconv.schedules.cuda.gpu.code_limits import CHANNELS_LAST as MOST_CODE
from dwconv.schedules.cuda.gpu.hardware import STATIC_SHARED_BYTES, VECTOR_BYTES
from dwconv.schedules.cuda.gpu.occupancy import registers_left
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule, Value, divisors
from dwconv.schedules.taps import Axis

LANES = (1, 2, 4, 8)
TILES = (1, 2, 3, 4, 7, 8)
THREADS = (1, 2, 4, 7, 8, 14, 16, 28)
PARTS = (16, 32, 64, 128, 256, 512, 1024)


def why_unfit(workload: Workload, target: CudaTarget) -> str | None:
    """Why the templates cannot run a workload; None if they can."""
    if workload.multiplier > 1:
        return "blocks have no channel multiplier"
    if workload.block and workload.block.layer_norm:
        return "it is for BatchNorms"
    least = _least(workload)
    if (registers := registers_of(least)) > target.registers_per_thread:
        kernel = "×".join(map(str, workload.kernel))
        return f"sums of a {kernel} kernel take {registers} registers, a thread has {target.registers_per_thread}"
    if least.shared_bytes > target.shared_bytes_per_block:
        return f"a patch takes {least.shared_bytes} bytes, more than the {target.shared_bytes_per_block} shared ones"
    return None


@lru_cache(maxsize=64)
def block_space(name: str, workload: Workload, target: CudaTarget) -> ConfigSpace:
    knobs = knobs_of(workload)
    rules = _rules(workload, target)

    def is_legal(cut: Cut) -> bool:
        return not any(broken(cut) for _, broken in rules)

    @lru_cache(maxsize=4)
    def cut(config: Config) -> Cut:
        return Cut.of(workload, config)

    return ConfigSpace(
        name,
        *(Knob(knob, values) for knob, values in knobs.items()),
        rules=[
            Rule(reason, lambda config, broken=broken: broken(cut(config)))  # type: ignore[misc]
            for reason, broken in rules
        ],
        preferred=lambda: preferred(workload, target, knobs, is_legal),
    )


def knobs_of(workload: Workload) -> dict[str, list[Value]]:
    axes = axes_of(workload)
    most = VECTOR_BYTES // ITEMSIZE[workload.dtype]
    lanes = [count for count in LANES if count <= most and workload.channels % count == 0]
    return {
        "vector_c": list(lanes),
        "threads_c": list(_channel_threads(workload.channels, lanes)),
        "threads_p": [1, 2, 4, 8, 16, 32],
        "parts": list(PARTS),
        "tile_h": list(_tiles(axes.rows)),
        "tile_w": list(_tiles(axes.columns)),
        "threads_h": list(_threads(axes.rows)),
        "threads_w": list(_threads(axes.columns)),
        "split": [8, *PARTS],
        "blocks_per_sm": [1, 2, 3, 4, 5, 6, 8, 12, 16],
    }


def _channel_threads(channels: int, lanes: list[int]) -> list[int]:
    """Vectors of channels in a block: powers of two, and ways to share them out evenly; all, where they are few."""
    vectors = [channels // count for count in lanes]
    even = {part for count in vectors for part in divisors(count, most=min(48, count)) if part >= 6}
    few = {count for count in vectors if count < 8}
    return sorted({count for count in (8, 16, 32) if count <= channels} | even | few)


def _tiles(axis: Axis) -> list[int]:
    """Rows or columns of a thread, multiples of ``axis.down``: then their taps do not depend on where they are."""
    phases = -(-axis.outputs // axis.down)
    return [count * axis.down for count in TILES if count <= phases]


def _threads(axis: Axis) -> list[int]:
    phases = -(-axis.outputs // axis.down)
    snug = {-(-phases // part) for part in (1, 2, 3, 4)}
    return sorted({count for count in {*THREADS, *snug} if count <= min(phases, 32)})


def _least(workload: Workload) -> Cut:
    """The configuration whose threads need the least."""
    axes = axes_of(workload)
    return Cut(
        workload=workload, vector_c=1, threads_c=min(8, workload.channels), threads_p=1, parts=PARTS[0],
        tile_h=axes.rows.down, tile_w=axes.columns.down, threads_h=1, threads_w=1, split=8, blocks_per_sm=1,
    )  # fmt: skip


# -- what cannot run, or cannot be fast ----------------------------------------------------------------------------


def _rules(workload: Workload, target: CudaTarget) -> list[tuple[str, Callable[[Cut], bool]]]:
    axes = axes_of(workload)
    wanted = [-(-axis.outputs // axis.down) * axis.down for axis in (axes.rows, axes.columns)]
    least_threads = min(LEAST_THREADS, -(-math.prod(wanted) * workload.channels // 64))
    most = target.threads_per_block

    def computed(cut: Cut) -> float:
        covered = [axis.tiles * axis.block for axis in (cut.rows, cut.columns)]
        return math.prod(covered) / math.prod(wanted) * (cut.channel_blocks * cut.threads_c / cut.vectors)

    def starved(cut: Cut) -> bool:
        return registers_of(cut) > registers_left(target, threads=cut.tile_threads, blocks=cut.blocks_per_sm)

    return [
        (f"more than {most} threads", lambda cut: max(cut.tile_threads, cut.pixel_threads) > most),
        (f"fewer than {least_threads} threads", lambda cut: cut.tile_threads < least_threads),
        (f"more than {MOST_PADDED}× the results wanted", lambda cut: computed(cut) > MOST_PADDED),
        (
            f"more than {target.shared_bytes_per_block} bytes of shared memory",
            lambda cut: cut.shared_bytes > target.shared_bytes_per_block,
        ),
        (
            f"more than {STATIC_SHARED_BYTES} bytes of shared memory besides the patch",
            lambda cut: cut.static_bytes > STATIC_SHARED_BYTES,
        ),
        (f"more than {MOST_CODE} instructions unrolled", lambda cut: code_size(cut) > MOST_CODE),
        ("more threads than an SM has", lambda cut: cut.tile_threads * cut.blocks_per_sm > target.threads_per_sm),
        ("more registers than there are", starved),
        (
            f"more than {MOST_WORKSPACE_BYTES >> 20} MiB of partial sums",
            lambda cut: 4 * cut.partial_words > MOST_WORKSPACE_BYTES,
        ),
    ]
