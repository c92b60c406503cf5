"""The configuration space of fprop and dgrad, NHWC, CUDA: knobs, what is illegal, and where to start. No TVM here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from dwconv.schedules.cuda.gather_nhwc_cost import code_size, cost, registers
from dwconv.schedules.cuda.gather_nhwc_cut import MOST_FAN_IN, VECTOR_BYTES, AxisCut, Cut
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule, divisors
from dwconv.schedules.taps import Axis
from dwconv.target import CudaTarget
from dwconv.workload import ITEMSIZE, DType, Workload

MOST_CODE = 3600
"""Instructions in straight code. NVRTC needs 0.2 ms for each, and their 58 KB fill half of an instruction cache."""
MOST_PADDED = 1.3
"""Results computed over results wanted."""
LEAST_THREADS = 32
MOST_STRIDE = 128
"""A thread of dgrad owns as many columns as the stride, or more."""
TILES = (1, 2, 4, 7, 8, 14, 28)
WIDEST = 32
"""Up to so many rows or columns of an image may be one strip, whatever their number."""
FEW_TAPS, FEW_ROWS = 9, 5
START_CODE = 3200
START_REGISTERS, LOOP_REGISTERS = 168, 232
"""Of a thread to start from: those that wait for memory need more threads beside them than those that multiply."""
BLOCK_THREADS = 128
"""Of the block to start from: small ones fill an SM better where threads need many registers."""
BLOCK_CHANNEL_THREADS = 32
BLOCK_SHARED_BYTES = 80 * 1024
"""The same: two fit on an SM."""


def misfit(work: Gather) -> str | None:
    """Why the templates cannot run a pass; None if they can."""
    stride = max(work.rows.down, work.columns.down)
    return f"the stride {stride} is more than {MOST_STRIDE}" if stride > MOST_STRIDE else None


@lru_cache(maxsize=64)
def gather_space(name: str, work: Gather, workload: Workload, target: CudaTarget) -> ConfigSpace:
    dtype = workload.dtype
    knobs = [
        Knob("vector_c", vector_lanes(work, dtype)),
        Knob("threads_c", channel_threads(work, dtype)),
        Knob("threads_w", [count for count in (1, 2, 4, 7, 8, 14) if count <= work.columns.outputs]),
        Knob("threads_h", [count for count in (1, 2, 4, 7, 14, 28) if count <= work.rows.outputs]),
        Knob("tile_h", tiles(work.rows)),
        Knob("tile_w", tiles(work.columns)),
        Knob("weights", weights(work, target)),
        Knob("unroll", ["taps", "kw"] if work.rows.taps > 1 else ["taps"]),
    ]
    rules = gather_rules(work, dtype, target)
    space = ConfigSpace(name, *knobs, rules=rules)
    starts = (config for config in _starts(space, work, workload, target) if space.why_illegal(config) is None)
    preferred = dict((next(starts, None) or space.default).values)
    return ConfigSpace(name, *knobs, rules=rules, preferred=preferred)


# -- knobs ---------------------------------------------------------------------------------------------------------


def vector_lanes(work: Gather, dtype: DType) -> list[int]:
    """Channels of a vector, at most 16 bytes: all of one source channel, or all there are of several."""
    lanes = [1, 2, 4, 8][: (VECTOR_BYTES // ITEMSIZE[dtype]).bit_length()]
    whole = [count for count in lanes if work.channels % count == 0]
    return [count for count in whole if work.fan_out % count == 0 or count % work.fan_out == 0]


def channel_threads(work: Gather, dtype: DType) -> list[int]:
    """Vectors of channels in a block: powers of two, and the largest ways to share them out evenly."""
    even = {
        part for lanes in vector_lanes(work, dtype)
        for part in divisors(work.channels // lanes, most=min(48, work.channels // lanes))[-2:]
    }  # fmt: skip
    powers = {count for count in (1, 2, 4, 8, 16, 32) if count <= work.channels}
    return sorted(even | powers)


def tiles(axis: Axis) -> list[int]:
    """Rows or columns of a strip, multiples of ``axis.down``; all of them where they are few."""
    phases = -(-axis.outputs // axis.down)
    sizes = {size for size in TILES if size % axis.down == 0} | {axis.down, 2 * axis.down, 4 * axis.down}
    whole = {phases * axis.down} if axis.outputs <= WIDEST else set()
    return sorted({size for size in sizes if size <= phases * axis.down} | whole)


def weights(work: Gather, target: CudaTarget) -> list[str]:
    """Where the weights are. Left in global memory only if shared memory cannot hold those of a single channel."""
    taps = work.rows.taps * work.columns.taps
    fits = 4 * taps * (work.fan_in + 8) <= target.shared_bytes_per_block
    kept = ["registers"] if work.fan_in <= MOST_FAN_IN else []
    return [*kept, "shared" if fits else "global"]


# -- rules ---------------------------------------------------------------------------------------------------------


def gather_rules(work: Gather, dtype: DType, target: CudaTarget) -> list[Rule]:
    @lru_cache(maxsize=4)
    def cut(config: Config) -> Cut:
        return Cut.of(work, config, dtype)

    rows, columns = (-(-axis.outputs // axis.down) for axis in (work.rows, work.columns))
    wanted = rows * work.rows.down * columns * work.columns.down * work.channels
    least_threads = min(LEAST_THREADS, -(-rows * columns * work.channels // 64))

    def computed(config: Config) -> int:
        return math.prod(axis.computed for axis in cut(config).axes)

    return [
        Rule(f"more than {target.threads_per_block} threads", lambda c: cut(c).threads > target.threads_per_block),
        Rule(f"fewer than {least_threads} threads", lambda c: cut(c).threads < least_threads),
        Rule(
            "registers cannot be indexed by a loop over kernel rows",
            lambda c: c.weights == "registers" and c.unroll == "kw",
        ),
        Rule(
            "kernel rows in loops share nothing between the rows of a strip",
            lambda c: c.unroll == "kw" and c.tile_h > work.rows.down and not cut(c).rows_together,
        ),
        Rule(f"more than {MOST_PADDED}× the results wanted", lambda c: computed(c) > MOST_PADDED * wanted),
        Rule(f"more than {MOST_CODE} instructions unrolled", lambda c: code_size(cut(c)) > MOST_CODE),
        Rule(
            f"more than {target.shared_bytes_per_block} bytes of shared memory",
            lambda c: cut(c).shared_bytes > target.shared_bytes_per_block,
        ),
        Rule(
            "more registers than there are",
            lambda c: registers(cut(c)) > min(target.registers_per_thread, target.registers_per_sm // cut(c).threads),
        ),
    ]


# -- where to start ------------------------------------------------------------------------------------------------


def _starts(space: ConfigSpace, work: Gather, workload: Workload, target: CudaTarget) -> Iterator[Config]:
    """Configurations, the strip of least computed cost first, each with a block that suits it."""
    values: dict[str, tuple[Any, ...]] = {knob.name: knob.values for knob in space.knobs}
    lanes = max(lanes for lanes in values["vector_c"] if lanes <= _start_lanes(work, workload.dtype))
    names = ("vector_c", "tile_h", "tile_w", "weights", "unroll")
    found = []
    for chosen in itertools.product((lanes,), *(values[name] for name in names[1:])):
        strip: dict[str, Any] = dict(zip(names, chosen, strict=True))
        block = _block(strip, values, work, workload.dtype)
        config = Config(space.template, tuple((knob.name, {**strip, **block}[knob.name]) for knob in space.knobs))
        cut = Cut.of(work, config, workload.dtype)
        if _suits(cut):
            found.append((cost(cut, workload, target), config))
    yield from (config for _, config in sorted(found, key=lambda each: each[0]))


def _suits(cut: Cut) -> bool:
    """Straight code, with enough threads on an SM, for small kernels; for others, loops too, as large as they fit."""
    small = cut.rows.axis.taps <= FEW_ROWS
    if cut.unroll == "kw":
        return not small and registers(cut) <= LOOP_REGISTERS and code_size(cut) <= START_CODE
    return registers(cut) <= START_REGISTERS and code_size(cut) <= START_CODE


def _start_lanes(work: Gather, dtype: DType) -> int:
    """Channels of a vector. Where weights are few, 16 bytes of float32; else, and with more sums in as many bytes, a
    thread does better with fewer channels and more columns."""
    return 4 if dtype == "float32" and work.rows.taps * work.columns.taps <= FEW_TAPS else 2


def _block(strip: dict[str, Any], values: dict[str, tuple[Any, ...]], work: Gather, dtype: DType) -> dict[str, int]:
    """Threads on each axis for a strip: first along channels, where neighbours read neighbours, then columns, rows."""

    def threads(name: str, *, size: int, tile: int, most: int) -> int:
        """As many as there may be, unless too many were idle."""
        counts = [count for count in values[name] if count <= max(most, 1)]
        return min(counts, key=lambda n: AxisCut(size=size, tile=tile, threads=n).computed * (1 + 4 / n))

    most_c = BLOCK_CHANNEL_THREADS
    if strip["weights"] == "shared":
        kernel_bytes = 4 * work.rows.taps * work.columns.taps * work.fan_in
        most_c = min(most_c, BLOCK_SHARED_BYTES // (kernel_bytes * strip["vector_c"]))
    c = threads("threads_c", size=work.channels, tile=strip["vector_c"], most=most_c)
    w = threads("threads_w", size=work.columns.outputs, tile=strip["tile_w"], most=BLOCK_THREADS // c)
    h = threads("threads_h", size=work.rows.outputs, tile=strip["tile_h"], most=BLOCK_THREADS // (c * w))
    return {"threads_c": c, "threads_w": w, "threads_h": h}
