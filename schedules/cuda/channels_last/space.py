"""The configuration space of fprop and dgrad, NHWC, CUDA: knobs, what is illegal, and where to start. No TVM here."""

from __future__ import annotations

import math
from functools import lru_cache, partial

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, DType, Workload
from dwconv.schedules.cuda.channels_last.cut import MOST_FAN_IN, Cut
from dwconv.schedules.cuda.channels_last.start import Starts
from dwconv.schedules.cuda.channels_last.thread_work import code_size, registers_of
from dwconv.schedules.cuda.gpu.hardware import CHANNELS_LAST as MOST_CODE
from dwconv.schedules.cuda.gpu.hardware import (
    LEAST_COPY_BYTES,
    LEAST_THREADS,
    MOST_PADDED,
    VECTOR_BYTES,
    grid_misfit,
    limit_of_shared,
)
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import ConfigSpace, Knob, Limit, Rule, Value, divisors, rules_of
from dwconv.schedules.taps import Axis

MOST_STRIDE = 128
"""A thread of dgrad owns as many columns as the stride, or more."""
TILES = (1, 2, 4, 7, 8, 14, 28)
WIDEST = 32
"""Up to so many rows or columns of an image may be one strip, whatever their number."""


def strip_misfit(workload: Workload, target: CudaTarget) -> str | None:
    """Why the templates cannot run a pass; None if they can."""
    gather = Gather.of(workload)
    stride = max(gather.rows.down, gather.columns.down)
    if reason := grid_misfit(workload, gather):
        return reason
    return f"the stride {stride} is more than {MOST_STRIDE}" if stride > MOST_STRIDE else None


@lru_cache(maxsize=64)
def strip_space(name: str, workload: Workload, target: CudaTarget) -> ConfigSpace:
    gather, dtype = Gather.of(workload), workload.dtype
    has_one_plane = gather.depths.one_to_one and not (workload.any_size and workload.axes == 3)
    knobs = [
        Knob("vector_c", _vector_lanes(gather, dtype)),
        Knob("threads_c", _channel_threads(gather, dtype)),
        Knob("threads_w", [count for count in (1, 2, 4, 7, 8, 14) if count <= gather.columns.outputs]),
        Knob("threads_h", [count for count in (1, 2, 4, 7, 14, 28) if count <= gather.rows.outputs]),
        Knob("tile_h", _tiles(gather.rows)),
        Knob("tile_w", _tiles(gather.columns)),
        Knob("vthread_w", [1, 2, 4]),
        # Of several planes, each would have to wait for the one before to leave its room.
        Knob("stage", ["none", "shared"] if has_one_plane else ["none"]),
        Knob("weights", _weights(gather, target)),
        Knob("unroll", ["taps", "kw"] if gather.rows.taps > 1 else ["taps"]),
    ]
    rules = _rules(workload, target)

    def preferred() -> dict[str, Value]:
        space = ConfigSpace(name, *knobs, rules=rules)
        return dict((Starts(space, workload, target).best() or space.default).values)

    return ConfigSpace(name, *knobs, rules=rules, preferred=preferred)


# -- knobs ---------------------------------------------------------------------------------------------------------


def _vector_lanes(gather: Gather, dtype: DType) -> list[int]:
    """Channels of a vector, at most 16 bytes: all of one source channel, or all there are of several."""
    lanes = [1, 2, 4, 8][: (VECTOR_BYTES // ITEMSIZE[dtype]).bit_length()]
    whole = [count for count in lanes if gather.channels % count == 0]
    return [count for count in whole if gather.fan_out % count == 0 or count % gather.fan_out == 0]


def _channel_threads(gather: Gather, dtype: DType) -> list[int]:
    """Vectors of channels in a block: powers of two, and the largest ways to share them out evenly."""
    even = {
        part for lanes in _vector_lanes(gather, dtype)
        for part in divisors(gather.channels // lanes, most=min(48, gather.channels // lanes))[-2:]
    }  # fmt: skip
    powers = {count for count in (1, 2, 4, 8, 16, 32) if count <= gather.channels}
    return sorted(even | powers)


def _tiles(axis: Axis) -> list[int]:
    """Rows or columns of a strip, multiples of ``axis.down``; all of them where they are few."""
    phases = -(-axis.outputs // axis.down)
    sizes = {size for size in TILES if size % axis.down == 0} | {axis.down, 2 * axis.down, 4 * axis.down}
    whole = {phases * axis.down} if axis.outputs <= WIDEST else set()
    return sorted({size for size in sizes if size <= phases * axis.down} | whole)


def _weights(gather: Gather, target: CudaTarget) -> list[str]:
    """Where the weights are. Left in global memory only if shared memory cannot hold those of a single channel."""
    taps = math.prod(gather.axes.taps)
    fits = 4 * taps * (gather.fan_in + 8) <= target.shared_bytes_per_block
    kept = ["registers"] if gather.fan_in <= MOST_FAN_IN else []
    return [*kept, "shared" if fits else "global"]


# -- rules ---------------------------------------------------------------------------------------------------------


def _rules(workload: Workload, target: CudaTarget) -> list[Rule]:
    gather = Gather.of(workload)

    rows, columns = (-(-axis.outputs // axis.down) for axis in (gather.rows, gather.columns))
    wanted = rows * gather.rows.down * columns * gather.columns.down * gather.channels
    least_threads = min(LEAST_THREADS, -(-rows * columns * gather.channels // 64))

    def computed(cut: Cut) -> int:
        return math.prod(axis.computed for axis in cut.axes)

    def most_registers(cut: Cut) -> int:
        return min(target.registers_per_thread, target.registers_per_sm // cut.threads)

    limits: list[Limit] = [
        (f"more than {target.threads_per_block} threads", lambda cut: cut.threads > target.threads_per_block),
        (f"fewer than {least_threads} threads", lambda cut: cut.threads < least_threads),
        (
            "a block's channels cannot be copied in vectors",
            lambda cut: cut.stage == "shared" and not _can_be_staged(cut),
        ),
        (
            "registers cannot be indexed by a loop over kernel rows",
            lambda cut: cut.weights == "registers" and cut.unroll == "kw",
        ),
        (
            "kernel rows in loops share nothing between the rows of a strip",
            lambda cut: cut.unroll == "kw" and cut.rows.tile > gather.rows.down and not cut.rows_together,
        ),
        (f"more than {MOST_PADDED}× the results wanted", lambda cut: computed(cut) > MOST_PADDED * wanted),
        (f"more than {MOST_CODE} instructions unrolled", lambda cut: code_size(cut) > MOST_CODE),
        limit_of_shared(target),
        ("more registers than there are", lambda cut: registers_of(cut) > most_registers(cut)),
    ]
    return rules_of(partial(Cut.of, workload), limits)


def _can_be_staged(cut: Cut) -> bool:
    """Whether the source channels of a block are a whole number of vectors, one for each thread at most, and read."""
    whole = cut.channels.threads * cut.channels.tile * cut.gather.fan_in % cut.gather.fan_out == 0
    lanes = cut.copied_lanes
    fits = lanes * cut.itemsize >= LEAST_COPY_BYTES and cut.block_channels // lanes <= cut.threads
    return whole and fits and bool(cut.rows.reads) and bool(cut.columns.reads)
