"""The cost of a kernel on a CPU: how long the arithmetic of the busiest thread takes, and how long what it moves.

    work of all tasks                     what a core has                microseconds
    multiply-adds, loads, stores ──────►  slots, two a cycle ──┐
    all of them, loops, tasks ─────────►  instructions ────────┼─►  the longer of the two, and a share of the other;
    bytes, and what a core touches        levels of caches, ───┘    what one thread does alone; parallel regions
    until it needs them again ─────────►  memory

A family's ``estimate.py`` fills ``CpuWork`` from plain integers, before anything is built. The estimate ranks
configurations; it is not a measurement. Its unit of time inside a core is the slot: half a cycle, in which a core
multiplies and adds one vector, or loads one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

from dwconv.problems.target import CacheLevel, CpuTarget
from dwconv.problems.workload import DType
from dwconv.schedules.cpu.shared.limits import CACHE_LINE_BYTES, MOST_AT_ONCE, shuffles_each
from dwconv.schedules.taps import Axis, column_runs, rolled_column_runs
from dwconv.system.cpu_facts import KiB, MiB

# What a core does in its slots. Constants without a source were fitted, then rounded: least squares, in logarithms,
# over some 1700 measured configurations of half the layers of many networks, on two cores with AVX-512; the other half
# judged them: the least estimate chose kernels that took 1.11 times as long as the best of some 14, the defaults 1.30.
STORE_SLOTS = 2.0
"""One vector is stored in a cycle."""
INSTRUCTIONS_PER_SLOT = 1.6
TURN_SLOTS = 0.6
"""Of a turn of a loop or a test; they are foreseen, and run beside the arithmetic."""
WIDENED = {"float32": 0.0, "float16": 1.0, "bfloat16": 1.0}
"""Instructions that make a vector float32, besides its load; the next, those that round one before it is stored."""
ROUNDED = {"float32": 0.0, "float16": 1.0, "bfloat16": 5.0}
ACTIVATED = {"none": 0.0, "silu": 32.0, "silu_gradient": 36.0}
"""Those of an epilogue, for each vector that is stored: counted in the machine code, a division as eight."""
TASK_SLOTS = 26.0
SCRATCH_SLOTS = 300.0
"""To get scratch memory, and to give it back."""
FILL_SLOTS = 180.0
"""To wait, each time that it is filled, until what was just stored can be loaded across its vectors."""
SPILLED_LOAD = 1.2
"""A load of what registers do not hold takes so many slots: some of them are stored first."""
CROWDED = 0.6
"""Arithmetic takes so much longer, times the share of registers in use beyond half: values are moved about."""
LATENCY_SLOTS = 8.0
"""From a multiply-add to one that adds to the same sum. Source: published latencies of x86 and Arm, four cycles."""
WINDOW = 512
"""Instructions that a core has in flight: so far it looks ahead to other sums. Source: as for the latency."""
# What moving bytes takes.
NOT_HIDDEN = 0.3
"""Share of the shorter of arithmetic and traffic that adds to the longer."""
ALONE = 1.1
"""Lines that are fetched without their neighbours, none of them foreseen, take so many times longer."""
ALONE_BYTES = 90.0
"""Runs of so many bytes take half of that longer."""
ALONE_NEAR = 0.45
"""The share of it that is left where neighbours that the hardware fetched ahead are in the cache when their turn
comes."""
ALONE_ASKED = 0.35
"""The share of it that is left where the kernel prefetches its lines."""
FILLED = 0.4
"""From this share of a cache on, some of what is used again is gone; at twice as much as it holds less this, all."""
COPIED_GB_PER_S = 4.0
"""A thread that copies images to another layout."""
# Typical figures of a core, where they were not measured.
LEVELS = (48 * KiB, 2 * MiB)
LEVEL_BYTES_PER_SLOT = 30.0
"""From the second level. The first is part of the slots of a load."""
CLOCK_GHZ = 3.0
LAST_LEVEL_GB_PER_S = 25.0
"""Of one thread; so is the next."""
MEMORY_GB_PER_S = 10.0
REGION_US = 2.5


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Bytes that all tasks together move between the registers and wherever they are found."""

    bytes: float
    held_bytes: float
    """What a core touches before it needs the same bytes again: they come from the first level that holds as much."""
    run_bytes: float = 4096.0
    """Neighbours that are moved at a time."""
    neighbour_bytes: float = 0.0
    """What a core touches before the turn of the neighbours comes."""


@dataclass(frozen=True, kw_only=True)
class CpuWork:
    """What the tasks of a kernel do, all of them together; vectors, unless it says otherwise."""

    tasks: int
    threads: int
    share: float
    """Part of the work that the busiest thread has."""
    tiles: float
    """Register tiles."""
    multiply_adds: float
    loads: float
    """Those across two cache lines count twice."""
    stores: float
    spilled_loads: float = 0.0
    """Of weights or gradients for which there are no registers."""
    others: float = 0.0
    """Other instructions: clearing, shuffling, masking, prefetching."""
    turns: float = 0.0
    """Turns of loops, and tests."""
    live: float = 0.0
    """Registers that a tile has use for, over those that there are."""
    chain: float = 1.0
    """Multiply-adds of a tile that wait for each other."""
    traffic: tuple[Traffic, ...]
    scratches: int = 0
    """Times that scratch memory is allocated; the next, that it is filled."""
    fills: int = 0
    alone_slots: float = 0.0
    """Before or after the tasks, packing weights or adding partial sums: of the busiest thread."""
    regions: int = 1
    """Parallel regions."""
    copied_bytes: float = 0.0
    """Of images that are copied from and to another layout."""
    asks_ahead: bool = False
    """Whether lines are prefetched by instructions."""


def price(work: CpuWork, target: CpuTarget) -> float:
    """Microseconds that ``target`` takes."""
    core = _core(target, work.threads)
    arithmetic_us = work.share * _slots(work) / core.slots_per_us
    traffic_us = work.share * sum(core.traffic_us(traffic, asks_ahead=work.asks_ahead) for traffic in work.traffic)
    regions_us = core.region_us * work.regions if work.threads > 1 else 0.0
    copies_us = work.copied_bytes / (1e3 * COPIED_GB_PER_S * work.threads)
    overlapped_us = max(arithmetic_us, traffic_us) + NOT_HIDDEN * min(arithmetic_us, traffic_us)
    return overlapped_us + work.alone_slots / core.slots_per_us + regions_us + copies_us


def largest_share(tasks: int, threads: int) -> float:
    """Part of equal tasks that the busiest thread has."""
    return -(-tasks // threads) / tasks


def conversions(dtype: DType, *, loaded: float, stored: float) -> float:
    """Instructions that widen the vectors that are loaded from images of ``dtype`` and round those that are stored."""
    return WIDENED[dtype] * loaded + ROUNDED[dtype] * stored


def folded(pitch_bytes: int, run_bytes: float) -> float:
    """How many times as much cache runs take that are ``pitch_bytes`` apart: a pitch of many lines, if it is divisible
    by a power of two, puts all of them into few of the cache's sets."""
    lines, beyond = divmod(pitch_bytes, CACHE_LINE_BYTES)
    return 1.0 if beyond else max(1.0, math.gcd(lines, 64) * CACHE_LINE_BYTES / max(run_bytes, CACHE_LINE_BYTES))


def _slots(work: CpuWork) -> float:
    loads = work.loads + SPILLED_LOAD * work.spilled_loads
    instructions = work.multiply_adds + work.loads + work.stores + work.others
    busy = max(work.multiply_adds, loads, STORE_SLOTS * work.stores, instructions / INSTRUCTIONS_PER_SLOT)
    ahead = min(1.0, (instructions + work.spilled_loads) / max(1.0, work.tiles) / WINDOW)
    waiting = LATENCY_SLOTS * work.chain * work.tiles * ahead
    crowded = 1 + CROWDED * min(0.5, max(0.0, work.live - 0.5))
    around = (
        TURN_SLOTS * work.turns + TASK_SLOTS * work.tasks + SCRATCH_SLOTS * work.scratches + FILL_SLOTS * work.fills
    )
    return max(crowded * busy, waiting) + around


@dataclass(frozen=True, kw_only=True)
class _Core:
    """What one of the threads that run a kernel has."""

    slots_per_us: float
    levels: tuple[CacheLevel, ...]
    """The nearest first, with the rates of one thread."""
    memory_gb_per_s: float
    region_us: float

    def traffic_us(self, traffic: Traffic, *, asks_ahead: bool) -> float:
        missed = [_missed(traffic.held_bytes, level.bytes) for level in self.levels]
        rates = [level.gb_per_s for level in self.levels[1:]] + [self.memory_gb_per_s]
        us = 0.0
        for depth, rate in enumerate(rates):
            deeper = missed[depth + 1] if depth + 1 < len(missed) else 0.0
            found = traffic.bytes * max(0.0, missed[depth] - deeper)
            # The second level takes single lines as they come; from further away they are waited for.
            if not found:
                continue
            us += found / (1e3 * rate) * (1.0 if depth == 0 else self._alone(traffic, asks_ahead=asks_ahead))
        return us

    def _alone(self, traffic: Traffic, *, asks_ahead: bool) -> float:
        gone = _missed(traffic.neighbour_bytes, self.levels[min(1, len(self.levels) - 1)].bytes)
        rarely = ALONE_ASKED if asks_ahead else 1.0
        return 1 + ALONE * rarely * ALONE_BYTES / (ALONE_BYTES + traffic.run_bytes) * (
            ALONE_NEAR + (1 - ALONE_NEAR) * gone
        )


def _missed(held_bytes: float, level_bytes: int) -> float:
    """Share of what is used again that a cache has lost meanwhile."""
    return min(1.0, max(0.0, (held_bytes / level_bytes - FILLED) / (2 - 2 * FILLED)))


@cache
def _core(target: CpuTarget, threads: int) -> _Core:
    limits = target.limits
    if limits is None:
        slots_per_us, memory, last = 2e3 * CLOCK_GHZ, MEMORY_GB_PER_S, LAST_LEVEL_GB_PER_S
    else:
        slots_per_us = 1e3 * limits.peak_gflop_per_s / (2 * target.lanes() * target.threads)
        memory, last = limits.memory_gb_per_s / threads, limits.cache_gb_per_s / target.threads
    shared = CacheLevel(bytes=target.cache_bytes // threads, gb_per_s=max(last, memory))
    first, second = (
        CacheLevel(bytes=size, gb_per_s=max(last, LEVEL_BYTES_PER_SLOT * slots_per_us / 1e3)) for size in LEVELS
    )
    levels = limits.levels if limits and limits.levels else (first, second, shared)
    region_us = limits.region_us if limits and limits.region_us else REGION_US
    return _Core(slots_per_us=slots_per_us, levels=levels, memory_gb_per_s=memory, region_us=region_us)


# -- tiles side by side along an axis ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AxisWork:
    """Tiles side by side along an axis; padding is neither read nor multiplied."""

    tiles: int
    reads: int
    """Inputs that tiles read, each as often as there are tiles that read it."""
    products: int
    """Pairs of an output and a tap that meet an input."""
    span: int
    """Inputs from the first to the last that one tile reads."""
    edges: int
    """Tiles that have code of their own, since their inputs are partly padding, or fewer."""

    def times(self, count: int) -> AxisWork:
        """Of so many axes, whose tiles have the same code."""
        return replace(self, tiles=count * self.tiles, reads=count * self.reads, products=count * self.products)


@cache
def row_tiles(axis: Axis, size: int) -> AxisWork:
    """Tiles of ``size`` rows in a loop. The last computes rows beyond the end, too, as far as there are inputs."""
    tiles = -(-axis.outputs // size)
    reads = products = 0
    for at, pairs in axis.reads(size).items():
        live = axis.live_tiles(at, width=size)
        reads += live
        products += live * len(pairs)
    return AxisWork(tiles=tiles, reads=reads, products=products, span=axis.spanned(size)[1], edges=0)


@cache
def column_tiles(axis: Axis, size: int, *, rolled: bool = False) -> AxisWork:
    """Tiles of ``size`` columns, written out at the edges; ``rolled``: where taps are loops, and edges therefore
    narrow."""
    runs = rolled_column_runs(axis, size) if rolled else column_runs(axis, size)
    met = [(run.tiles, axis.reads_of(run)) for run in runs]
    return AxisWork(
        tiles=sum(tiles for tiles, _ in met),
        reads=sum(tiles * len(reads) for tiles, reads in met),
        products=sum(tiles * sum(len(pairs) for _, pairs in reads) for tiles, reads in met),
        span=axis.spanned(size)[1],
        edges=sum(run.tiles for run in runs if not run.interior),
    )


# -- vectors of columns, and rows that are copied to scratch memory first ------------------------------------------


def lines_of_columns(lanes: int) -> float:
    """Cache lines of a vector of columns, on average: it begins at any column."""
    return 1 + 4 * (lanes - 1) / CACHE_LINE_BYTES


def read_work(columns: Axis, *, lanes: int, stage: str) -> tuple[float, float]:
    """Instructions that read a vector of columns once, on average: (loads, shuffles). With a stride, read in place, all
    columns in between are loaded, and split by phase."""
    if stage == "none" and columns.up > 1:
        return 1.5 * lines_of_columns(lanes), 2.0 if columns.up <= MOST_AT_ONCE else float(shuffles_each(columns.up))
    return lines_of_columns(lanes), 0.0


@dataclass(frozen=True, kw_only=True)
class ScratchWork:
    """What copying rows to scratch memory takes, in vectors."""

    scratches: int = 0
    """Times that scratch memory is allocated; the next, that it is filled."""
    fills: int = 0
    copied: float = 0.0
    cleared: float = 0.0
    phases: int = 1

    @classmethod
    def of(
        cls, columns: Axis, *, lanes: int, scratches: int, fills: int, rows_filled: int, rows_held: int
    ) -> ScratchWork:
        """``rows_filled``: those that are copied each time. ``rows_held``: those that scratch memory has room for, and
        that are cleared at each allocation."""
        pitch = columns.inputs / lanes + 2
        return cls(
            scratches=scratches,
            fills=fills,
            copied=fills * rows_filled * columns.inputs / lanes,
            cleared=scratches * rows_held * pitch,
            phases=columns.up,
        )

    @property
    def loads(self) -> float:
        return self.copied * min(2, self.phases)

    @property
    def stores(self) -> float:
        return self.copied + self.cleared

    @property
    def shuffles(self) -> float:
        each = min(1, self.phases - 1) if self.phases <= MOST_AT_ONCE else shuffles_each(self.phases)
        return self.copied * each

    @property
    def turns(self) -> float:
        return self.copied + self.cleared / 2

    def traffic(self, *, lanes: int, held_bytes: float) -> Traffic:
        """Stored, and loaded again."""
        return Traffic(bytes=2 * 4.0 * lanes * self.copied, held_bytes=held_bytes)
