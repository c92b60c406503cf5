"""The space of weight gradients by whole planes: which configurations there are, which fit, what they may cost, where
to start. No TVM here."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from dwconv.schedules.cuda.correlation import registers_of
from dwconv.schedules.cuda.correlation_plane import PlaneCorrelation
from dwconv.schedules.cuda.correlation_space import (
    LEAST_THREADS,
    MOST_IMAGES,
    MOST_PADDED,
    MOST_WORKSPACE_BYTES,
)
from dwconv.schedules.cuda.plane_layout import LEAST_COPIED_BYTES, MOST_TURNS
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule, Value
from dwconv.target import CudaTarget, Target
from dwconv.workload import ITEMSIZE, Workload

PLANES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
THREAD_PLANES = (1, 2)
IMAGES = (1, 2, 4, 8, 16, 32, 64)
SPLIT_N = (1, 2, 4, 8, 16, 32)
PIPELINE = (1, 2, 3, 4)
TILES_H = (2, 4, 5, 7, 8, 14)
MOST_CODE = 2600
"""Unrolled instructions. Beyond it compiling takes more than a second."""
MOST_COPIES = 32
"""Of each tensor that a thread has under way for one image."""
MOST_COLUMNS = 32
"""Pieces of longer rows nearly fill the lines of memory: threads read them as well from where they are."""
TILES_TRIED = 8
"""Tiles for which blocks are weighed, to find where to start."""

LATENCY_CYCLES = 800
BYTES_IN_FLIGHT_PER_SM = 50_000
"""What an SM must have asked for at any time to draw its share of the bandwidth."""
LAUNCH_US = 2.0
NOT_HIDDEN = 0.15
"""Of resources that are not the slowest, as nothing overlaps wholly."""
MOST_ISSUE, CROWDED_COST = 0.5, 3.0
"""Share of the memory's time that instructions may take, and what more of it costs: they would hold up the loads."""
SYSTEM_SHARED_BYTES = 1024
"""What the system takes of every block's."""
LINE_BYTES, BANK_BYTES = 128, 4
HALVES_COST = 1.05
"""Where planes begin within words, so that elements are read one by one."""


def misfit(workload: Workload, target: Target) -> str | None:
    """Why no configuration fits; None if one does."""
    assert isinstance(target, CudaTarget)
    itemsize = ITEMSIZE[workload.dtype]
    if workload.multiplier > 1:
        return f"multiplier={workload.multiplier}: a plane of x would need several of dy"
    if max(size[1] for size in _sizes(workload)) > MOST_COLUMNS:
        return f"rows of more than {MOST_COLUMNS} pixels need no shared memory to be read whole"
    if any(workload.channels * math.prod(size) * itemsize % LEAST_COPIED_BYTES for size in _sizes(workload)):
        return f"images that are no multiple of {LEAST_COPIED_BYTES} bytes, the least that is copied"
    if next(_tiles(workload, target), None) is None:
        return "every tile has more sums or more straight code than a thread can have"
    return None


def plane_correlation_space(name: str, workload: Workload, target: CudaTarget) -> ConfigSpace:
    """Knobs: channels and images of a block, the tile of a thread, blocks that share the images, turns ahead."""
    return ConfigSpace(
        name,
        Knob("planes", PLANES),
        Knob("images", IMAGES),
        Knob("thread_planes", THREAD_PLANES),
        Knob("tile_h", _cuts(workload.output_size[0], TILES_H)),
        Knob("tile_w", _cuts(workload.output_size[1], ())),
        Knob("split_n", SPLIT_N),
        Knob("pipeline", PIPELINE),
        rules=_rules(workload, target),
        preferred=_preferred(workload, target),
    )


def estimate(workload: Workload, config: Config, target: CudaTarget) -> float:
    return _microseconds(PlaneCorrelation.of(workload, config), target)


def blocks_at_a_time(work: PlaneCorrelation, target: CudaTarget) -> int:
    """On an SM, by its threads, its shared memory, and the registers that a thread should need."""
    most = min(
        target.shared_bytes_per_sm // (work.shared_bytes + SYSTEM_SHARED_BYTES),
        target.threads_per_sm // (-(-work.threads // target.warp) * target.warp),
        target.blocks_per_sm,
    )
    held = (count for count in range(most, 0, -1) if _holds(work, target, count))
    return next(held, 1)


def _holds(work: PlaneCorrelation, target: CudaTarget, count: int) -> bool:
    return registers_of(target, threads=work.threads, blocks=count) >= min(work.registers, target.registers_per_thread)


def _sizes(workload: Workload) -> tuple[tuple[int, int], tuple[int, int]]:
    return workload.input_size, workload.output_size


def _cuts(size: int, some: Sequence[int]) -> list[int]:
    """Ways to cut ``size``: ``some``, and into up to four parts, where the last one leaves little idle."""
    found = {cut for cut in (*some, *(-(-size // parts) for parts in (1, 2, 3, 4))) if cut <= size}
    return sorted(cut for cut in found if -(-size // cut) * cut <= MOST_PADDED * size)


# -- what cannot run, or cannot be fast ----------------------------------------------------------------------------

Test = Callable[[PlaneCorrelation], bool]


def _limits(target: CudaTarget) -> list[tuple[str, Test]]:
    """What a block may not be: (reason, test)."""
    shared_bytes = target.shared_bytes_per_block
    return [
        ("threads share planes unevenly", lambda work: work.planes % work.thread_planes != 0),
        (f"fewer than {LEAST_THREADS} threads", lambda work: work.threads < LEAST_THREADS),
        (f"more than {target.threads_per_block} threads", lambda work: work.threads > target.threads_per_block),
        (f"more than {MOST_IMAGES} images at a time", lambda work: work.images * work.split_n > MOST_IMAGES),
        *_limits_of_threads(target),
        ("copies of too few bytes", lambda work: work.copied_bytes < LEAST_COPIED_BYTES),
        (
            f"more than {MOST_COPIES} copies of a thread at a time",
            lambda work: max(work.copies(work.x), work.copies(work.dy)) > MOST_COPIES,
        ),
        (
            f"more than {MOST_WORKSPACE_BYTES >> 20} MiB of partial sums",
            lambda work: work.split_n > 1 and 4 * work.split_n * work.results > MOST_WORKSPACE_BYTES,
        ),
        (f"more than {shared_bytes} bytes of shared memory", lambda work: work.shared_bytes > shared_bytes),
        ("more registers than there are", lambda work: not _holds(work, target, 1)),
    ]


def _limits_of_threads(target: CudaTarget) -> list[tuple[str, Test]]:
    """Those that do not depend on the block."""
    return [
        (f"more than {MOST_PADDED}× the outputs wanted", lambda work: work.padded > MOST_PADDED),
        (f"more than {MOST_CODE} instructions unrolled", lambda work: work.instructions_of_image > MOST_CODE),
        ("more registers than a thread can have", lambda work: work.registers > target.registers_per_thread),
    ]


def _rules(workload: Workload, target: CudaTarget) -> list[Rule]:
    def rule(reason: str, test: Test) -> Rule:
        return Rule(reason, lambda config: test(PlaneCorrelation.of(workload, config)))

    return [rule(reason, test) for reason, test in _limits(target)]


def _fits(work: PlaneCorrelation, target: CudaTarget) -> bool:
    return not any(test(work) for _, test in _limits(target))


# -- what is preferred ---------------------------------------------------------------------------------------------


def _tiles(workload: Workload, target: CudaTarget) -> Iterator[PlaneCorrelation]:
    """Every tile of a thread, in the smallest block that fits."""
    heights, widths = _cuts(workload.output_size[0], TILES_H), _cuts(workload.output_size[1], ())
    for each, tile_h, tile_w in itertools.product(THREAD_PLANES, heights, widths):
        alone = PlaneCorrelation(
            workload=workload, planes=each, images=1, thread_planes=each, tile_h=tile_h, tile_w=tile_w,
            split_n=1, pipeline=1,
        )  # fmt: skip
        if any(test(alone) for _, test in _limits_of_threads(target)):
            continue
        blocks = (
            dataclasses.replace(alone, planes=planes, images=images)
            for images, planes in itertools.product(IMAGES, reversed(PLANES))
        )
        work = next((work for work in blocks if _fits(work, target)), None)
        if work is not None:
            yield work


@lru_cache(maxsize=256)
def _preferred(workload: Workload, target: CudaTarget) -> dict[str, Value]:
    """Of the tiles that take a thread the fewest instructions, the block that is estimated to take the least time, of
    those whose threads meet in no bank."""

    def slowness(work: PlaneCorrelation) -> float:
        outputs = work.tile_h * work.tile_w * work.thread_planes
        return work.instructions_of_image / outputs * work.padded

    tiles = sorted(_tiles(workload, target), key=slowness)[:TILES_TRIED]
    found = (work for tile in tiles for work in _blocks_of(tile, target))

    def cost(work: PlaneCorrelation) -> tuple[bool, float]:
        halves = HALVES_COST if work.layout.neighbours == "even planes" else 1.0
        return work.layout.turns > MOST_TURNS, _microseconds(work, target) * halves

    best = min(found, key=cost, default=None)
    if best is None:
        return {}
    return {field.name: getattr(best, field.name) for field in dataclasses.fields(best) if field.name != "workload"}


def _blocks_of(tile: PlaneCorrelation, target: CudaTarget) -> Iterator[PlaneCorrelation]:
    images = max(1, tile.workload.batch)
    for planes, at_a_time, split_n, pipeline in itertools.product(PLANES, IMAGES, SPLIT_N, PIPELINE):
        useful = split_n * at_a_time <= images or at_a_time == split_n == 1
        if useful and pipeline <= -(-images // (at_a_time * split_n)) and planes <= tile.workload.channels:
            work = dataclasses.replace(tile, planes=planes, images=at_a_time, split_n=split_n, pipeline=pipeline)
            if _fits(work, target):
                yield work


def _microseconds(work: PlaneCorrelation, target: CudaTarget) -> float:
    """Of the slowest resource, of what is summed when nothing is on its way any more, and of the second kernel."""
    held, blocks = blocks_at_a_time(work, target), work.channel_blocks * work.split_n
    warps = -(-work.threads // target.warp)
    workload, itemsize = work.workload, ITEMSIZE[work.workload.dtype]
    in_turn, cycles_per_us = math.ceil(blocks / target.sms), target.clock_ghz * 1e3
    instructions = work.turns * work.instructions_of_image + work.instructions_of_sums
    issue = in_turn * warps * instructions / target.issue_slots
    width = min(work.x.lanes, work.dy.lanes) * itemsize
    read = warps * work.loads * max(1.0, width / BANK_BYTES) * work.layout.turns
    piece = work.images * work.planes * (work.x.elements + work.dy.elements) * itemsize
    load_store = in_turn * (work.turns * (read + 2 * piece / LINE_BYTES) + work.instructions_of_sums * warps / 4)
    resident = min(held, in_turn)
    # As many turns as have room ask for their planes at once.
    late = math.ceil(work.turns / work.pipeline) * LATENCY_CYCLES
    alone = (late + instructions * max(1.0, resident * warps / target.issue_slots)) * (in_turn / resident)
    # A block's last planes are summed when no more of its own are on their way.
    last = work.instructions_of_image * max(1.0, warps / target.issue_slots) + work.instructions_of_sums
    in_flight = resident * min(work.pipeline, work.turns) * piece
    drawn = min(1.0, in_flight / BYTES_IN_FLIGHT_PER_SM) * min(1.0, blocks / target.sms)
    parts = 4 * (2 * work.split_n + 1) * work.results if work.split_n > 1 else 0
    memory = workload.bytes / (target.limits.memory_gb_per_s * drawn) / 1e3
    memory += parts / target.limits.cache_gb_per_s / 1e3
    shared_out = memory, issue / cycles_per_us, load_store / cycles_per_us
    slowest = max(*shared_out, alone / cycles_per_us)
    spread = issue / cycles_per_us * blocks / (in_turn * target.sms)
    crowded = max(0.0, spread - MOST_ISSUE * workload.bytes / target.limits.memory_gb_per_s / 1e3)
    own = (1 - NOT_HIDDEN) * slowest + NOT_HIDDEN * sum(shared_out) + last / cycles_per_us
    return own + CROWDED_COST * crowded + (LAUNCH_US if work.split_n > 1 else 0.0)
