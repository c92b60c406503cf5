"""The configuration space of fprop and dgrad, NHWC, CUDA: knobs, what is illegal, and where to start. No TVM here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from dwconv.schedules.cuda.gather_nhwc_cost import code_size, registers
from dwconv.schedules.cuda.gather_nhwc_cut import MOST_FAN_IN, AxisCut, Cut
from dwconv.schedules.cuda.gather_nhwc_estimate import LINE_BYTES, estimate
from dwconv.schedules.cuda.gather_nhwc_patch import LEAST_COPY_BYTES, VECTOR_BYTES
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
FEW_ROWS = 5
START_CODE = 3200
START_REGISTERS, LOOP_REGISTERS = 168, 220
"""Of a thread to start from: those that wait for memory need more threads beside them than those that multiply."""
BLOCK_THREADS = 128
"""Of the block to start from: small ones fill an SM better where threads need many registers."""
BLOCK_SIZES = range(48, 513)
STRIPS_TRIED = 4
"""With all blocks; others with one that suits."""
MOST_RESULTS = 256
"""Of a strip."""
LEAN = 0.1
"""Of a microsecond for each that the issue slots are busy, even if nobody waits for them."""
DOUBTED = 1.05
"""Times longer for bank conflicts, or few loads on their way, even if no resource shows them."""
MOST_CONFLICTS, ENOUGH_IN_FLIGHT = 1.05, 60_000
"""Bytes an SM: some more than are needed, since the compiler may load fewer ahead."""


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
        Knob("vthread_w", [1, 2, 4]),
        Knob("stage", ["none", "shared"]),
        Knob("weights", weights(work, target)),
        Knob("unroll", ["taps", "kw"] if work.rows.taps > 1 else ["taps"]),
    ]
    rules = gather_rules(work, dtype, target)
    space = ConfigSpace(name, *knobs, rules=rules)
    preferred = dict((Starts(space, work, workload, target).best() or space.default).values)
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
            "a block's channels cannot be copied in vectors",
            lambda c: c.stage == "shared" and not can_be_staged(cut(c)),
        ),
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


def can_be_staged(cut: Cut) -> bool:
    """Whether the source channels of a block are a whole number of vectors, one for each thread at most, and read."""
    whole = cut.channels.threads * cut.channels.tile * cut.work.fan_in % cut.work.fan_out == 0
    lanes = min(VECTOR_BYTES // cut.itemsize, math.gcd(cut.block_channels, cut.work.source_channels, VECTOR_BYTES))
    fits = lanes * cut.itemsize >= LEAST_COPY_BYTES and cut.block_channels // lanes <= cut.threads
    return whole and fits and bool(cut.rows.reads) and bool(cut.columns.reads)


# -- where to start ------------------------------------------------------------------------------------------------


class Starts:
    """Looks for the configuration of least estimated time: strips first, each with a block that suits it, then for the
    best of them all blocks."""

    def __init__(self, space: ConfigSpace, work: Gather, workload: Workload, target: CudaTarget) -> None:
        self._space, self._work, self._workload, self._target = space, work, workload, target
        self._values: dict[str, tuple[Any, ...]] = {knob.name: knob.values for knob in space.knobs}

    def best(self) -> Config | None:
        """None if nothing suits."""
        strips = self._ranked(self._with_block(strip) for strip in self._strips())
        few = [next((c for c in strips if c.stage == stage), None) for stage in self._values["stage"]]
        for config in dict.fromkeys([*strips[:STRIPS_TRIED], *(c for c in few if c)]):
            strips += self._ranked(self._with_any_block(config))
        return next(iter(self._ranked(strips)), None)

    def _ranked(self, configs: Iterable[Config]) -> list[Config]:
        """Those that are legal and suit, the quickest first."""
        found = []
        for config in dict.fromkeys(configs):
            cut = Cut.of(self._work, config, self._workload.dtype)
            if _suits(cut) and self._space.why_illegal(config) is None:
                found.append((self._price(cut), config))
        return [config for _, config in sorted(found, key=lambda each: each[0])]

    def _price(self, cut: Cut) -> float:
        """Of those that take equally long, the lean one, with enough loads on their way, and without bank conflicts."""
        found = estimate(cut, self._workload, self._target)
        price = found.microseconds + LEAN * found.issue_us
        price *= 1.0 if found.conflicts <= MOST_CONFLICTS else DOUBTED
        return price * (1.0 if found.bytes_in_flight_per_sm >= ENOUGH_IN_FLIGHT else DOUBTED)

    def _strips(self) -> Iterator[dict[str, Any]]:
        names = ("vector_c", "tile_h", "tile_w", "stage", "weights", "unroll")
        lanes = self._values["vector_c"]
        for chosen in itertools.product(lanes[1:] or lanes, *(self._values[name] for name in names[1:])):
            if math.prod(chosen[:3]) <= MOST_RESULTS:
                yield {**dict(zip(names, chosen, strict=True)), "vthread_w": 1}

    def _with_block(self, strip: dict[str, Any]) -> Config:
        """First threads along channels, where neighbours read neighbours: a line of memory; then columns, rows."""
        lanes, itemsize = strip["vector_c"], ITEMSIZE[self._workload.dtype]
        work = self._work
        c = self._threads("threads_c", size=work.channels, tile=lanes, most=LINE_BYTES // (lanes * itemsize))
        w = self._threads("threads_w", size=work.columns.outputs, tile=strip["tile_w"], most=BLOCK_THREADS // c)
        h = self._threads("threads_h", size=work.rows.outputs, tile=strip["tile_h"], most=BLOCK_THREADS // (c * w))
        return self._config({**strip, "threads_c": c, "threads_w": w, "threads_h": h})

    def _threads(self, name: str, *, size: int, tile: int, most: int) -> int:
        """As many as there may be, unless too many were idle."""
        counts = [count for count in self._values[name] if count <= max(most, 1)]
        return min(counts, key=lambda n: AxisCut(size=size, tile=tile, threads=n).computed * (1 + 4 / n))

    def _with_any_block(self, config: Config) -> Iterator[Config]:
        names = ("threads_c", "threads_w", "threads_h", "vthread_w")
        for chosen in itertools.product(*(self._values[name] for name in names)):
            if math.prod(chosen[:3]) in BLOCK_SIZES and (config.stage == "shared" or chosen[3] == 1):
                yield self._config({**dict(config.values), **dict(zip(names, chosen, strict=True))})

    def _config(self, values: dict[str, Any]) -> Config:
        return Config(self._space.template, tuple((name, values[name]) for name in self._values))


def _suits(cut: Cut) -> bool:
    """For small kernels, straight code from memory, with enough threads on an SM; for others loops and staging, too."""
    if cut.rows.axis.taps <= FEW_ROWS and (cut.unroll == "kw" or cut.stage == "shared"):
        return False
    most = LOOP_REGISTERS if cut.unroll == "kw" else START_REGISTERS
    return registers(cut) <= most and code_size(cut) <= START_CODE
