"""What the configuration spaces of wgrad share, in either layout: knobs, rules, and what is preferred. No TVM here."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from functools import lru_cache

from dwconv.schedules.cuda.correlation import VECTOR_BYTES, Correlation, registers_of
from dwconv.schedules.cuda.correlation_estimate import microseconds
from dwconv.schedules.space import ConfigSpace, Knob, Rule, Value, divisors
from dwconv.target import CudaTarget, Target
from dwconv.workload import ITEMSIZE, Workload

MOST_PRODUCTS = 1600
"""Multiply-adds in straight code. Beyond it compiling takes more than a second."""
MOST_PADDED = 1.3
"""Work done over work wanted: pixels, channels, kernel rows."""
MOST_WORKSPACE_BYTES = 64 << 20
LEAST_THREADS = 32
MOST_THREADS_KH = 16
"""They are on z, where CUDA allows no more than 64."""
WIDEST_KERNEL = 96
"""The sums of one kernel row, which a thread keeps in registers."""
TALL_KERNEL, ZERO_KERNEL = 7, 9
"""From 7 kernel rows on they can be split over threads, and branches around padding can pay; beyond 9 they do."""
WIDEST_TILE = 28
MOST_IMAGES = 64
"""Shares of images that there can be."""

Knobs = dict[str, list[int]]


def misfit(workload: Workload, target: Target) -> str | None:
    """Why the templates cannot run a workload; None if they can."""
    if workload.kernel[1] > WIDEST_KERNEL:
        return f"a kernel row of {workload.kernel[1]} sums takes more registers than there are; {WIDEST_KERNEL} fit"
    return None


def correlation_space(name: str, workload: Workload, target: Target) -> ConfigSpace:
    assert isinstance(target, CudaTarget)
    return ConfigSpace(
        name,
        *(Knob(knob, values) for knob, values in knobs_of(workload).items()),
        Knob("edge", edges(workload)),
        rules=rules(workload, target),
        preferred=preferred(workload, target),
    )


def knobs_of(workload: Workload) -> Knobs:
    """All but ``edge``."""
    nhwc, tall = workload.layout == "nhwc", workload.kernel[0] >= TALL_KERNEL
    out_h, out_w = workload.output_size
    heights = cuts(out_h, [4, 7, 14] if tall else [4, 7, 8, 14, 28])
    return {
        **({"vector_c": channel_vectors(workload)} if nhwc else {}),
        "threads_c": channel_threads(workload),
        "tile_h": heights,
        "unroll_h": sorted({part for height in heights for part in divisors(height)} & {1, 2, 4, 7, 8, 14}),
        "tile_w": cuts(out_w, [2, 4, 7, 14, 28] if nhwc or tall else [2, 4, 8, 14]),
        "group_kh": kernel_groups(workload),
        "threads_kh": kernel_threads(workload.kernel[0]) if tall else [1],
        "threads_p": [4, 7, 8, 14, 16, 32] if nhwc else [14, 16, 28, 32, 56, 64, 112, 128],
        "split_n": sorted({-(-MOST_IMAGES // images) for images in (1, 2, 3, 4, 5, 6, 8, 11, 16, 32, 64)}),
        "blocks_per_sm": [1, 2, 3] if tall else [1, 2, 3, 4, 6],
    }


def edges(workload: Workload) -> list[str]:
    tall = workload.kernel[0] >= TALL_KERNEL
    return ["zero", "skip"] if tall and any(workload.padding[0]) else ["zero"]


def channel_vectors(workload: Workload) -> list[int]:
    """Neighbouring channels that one aligned load brings, of whole input channels or of a part of one."""
    channels, multiplier = workload.out_channels, workload.multiplier
    return [
        lanes
        for lanes in (1, 2, 4, 8)
        if lanes * ITEMSIZE[workload.dtype] <= VECTOR_BYTES
        and channels % lanes == 0
        and (lanes % multiplier == 0 or multiplier % lanes == 0)
    ]


def channel_threads(workload: Workload) -> list[int]:
    """Where channels are innermost, half a warp of vectors or more, best an equal part of them."""
    channels = workload.out_channels
    if workload.layout == "nchw":
        return [count for count in (1, 2, 4, 8, 16) if count == 1 or count <= channels]
    vectors = [channels // lanes for lanes in channel_vectors(workload)]
    even = {count // part for count in vectors for part in (1, 2, 3, 4, 5, 6, 8) if count % part == 0}
    snug = {count for count in even if 16 <= count <= 48} | {count for count in vectors if count < 16}
    return sorted({*snug, 16, 32} if channels >= 16 else snug)


def kernel_groups(workload: Workload) -> list[int]:
    """Kernel rows of a thread: all; where they are many or wide, equal parts of them."""
    taps = workload.kernel[0]
    parts = {1, 2, 3, taps} if taps >= TALL_KERNEL else {1, taps} if workload.kernel[1] > 16 else {1}
    groups = {-(-taps // part) for part in parts}
    return sorted(group for group in groups if -(-taps // group) * group <= MOST_PADDED * taps)


def kernel_threads(taps: int) -> list[int]:
    """Groups side by side: one, or those of a quarter, a half or all of the kernel rows."""
    counts = {1, *(-(-taps // part) for part in (1, 2, 4))}
    return sorted(count for count in counts if count <= MOST_THREADS_KH)


def cuts(size: int, sizes: list[int]) -> list[int]:
    """Ways to cut ``size``: those of ``sizes``, halves and thirds, where the last piece leaves little idle."""
    some = {cut for cut in (*sizes, size, -(-size // 2), -(-size // 3)) if cut <= min(size, WIDEST_TILE)}
    return sorted({1, *(cut for cut in some if -(-size // cut) * cut <= MOST_PADDED * size)})


# -- what cannot run, or cannot be fast ----------------------------------------------------------------------------


def rules(workload: Workload, target: CudaTarget) -> list[Rule]:
    def rule(reason: str, broken: Callable[[Correlation], bool]) -> Rule:
        return Rule(reason, lambda config: broken(Correlation.of(workload, config)))

    return [
        Rule("unroll_h does not divide tile_h", lambda config: config.tile_h % config.unroll_h != 0),
        rule(f"more than {target.threads_per_block} threads", lambda work: work.threads > target.threads_per_block),
        rule(f"fewer than {LEAST_THREADS} threads", lambda work: work.threads < LEAST_THREADS),
        rule("too many threads without work", lambda work: work.padded > MOST_PADDED),
        rule(f"more than {MOST_PRODUCTS} products unrolled", lambda work: work.products > MOST_PRODUCTS),
        rule("more threads than an SM has", lambda work: work.threads * work.blocks_per_sm > target.threads_per_sm),
        rule("more registers than there are", lambda work: work.registers > room(work, target)),
        rule(
            f"more than {MOST_WORKSPACE_BYTES >> 20} MiB of partial sums",
            lambda work: work.split_n > 1 and work.workspace_bytes > MOST_WORKSPACE_BYTES,
        ),
    ]


def room(work: Correlation, target: CudaTarget) -> int:
    """Registers of a thread."""
    return registers_of(target, threads=work.threads, blocks=work.blocks_per_sm)


# -- what is preferred ---------------------------------------------------------------------------------------------

BLOCK_THREADS, USUAL_MATES = 256, 16
"""A usual block, and how many of its threads have sums in common."""
THREADS_TRIED = 3
"""For which blocks are weighed; of tall kernels one, as instructions alone decide there."""
ENOUGH_THREADS, MOST_HELD = 320, 1280
"""On an SM: to hide the latency of memory, as each has many loads on their way; and what is not asked for beyond."""
NOT_HIDDEN = 0.3
"""Of the shorter of two times that overlap."""
SPARE_REGISTERS, SPARE_REGISTERS_OF_TALL = 27, 64
"""Beyond what a thread needs at least: for loads on their way, more of them where it sums up many kernel rows."""
MOST_LOADS = 132
"""In straight code. ptxas moves loads ahead as long as there are registers, and of too many it spills a few."""
FREE_PRODUCTS = 25
"""For an output, in the time that memory takes for it."""
LINE_BYTES = 128


@lru_cache(maxsize=256)
def preferred(workload: Workload, target: CudaTarget) -> dict[str, Value]:
    """Of the threads that need the fewest instructions, if an SM holds enough of them, the blocks and the shares of the
    images that are estimated to take the least time."""
    knobs = knobs_of(workload)
    tried = 1 if workload.kernel[0] >= TALL_KERNEL else THREADS_TRIED
    threads = sorted(_threads_alone(workload, target, knobs), key=lambda work: _slowness(work, target))[:tried]
    if not threads:
        return {}
    found = []
    for alone in threads:
        work = min(_blocks_of(alone, target, knobs), key=lambda work: _microseconds(work, target), default=alone)
        found.append(
            max(_held(work, target, knobs["blocks_per_sm"]), key=lambda work: work.blocks_per_sm, default=work)
        )
    work = min(found, key=lambda work: microseconds(work, target))
    return {knob: getattr(work, knob) for knob in (*knobs, "edge")}


def _threads_alone(workload: Workload, target: CudaTarget, knobs: Knobs) -> Iterator[Correlation]:
    """What one thread may own."""
    edge = "skip" if "skip" in edges(workload) and workload.kernel[0] > ZERO_KERNEL else "zero"
    for vector_c, tile_h, unroll_h, tile_w, group_kh in itertools.product(
        knobs.get("vector_c", [1]), knobs["tile_h"], knobs["unroll_h"], knobs["tile_w"], knobs["group_kh"]
    ):
        work = Correlation(
            workload=workload, vector_c=vector_c, tile_h=tile_h, unroll_h=unroll_h, tile_w=tile_w, group_kh=group_kh,
            threads_c=target.warp, threads_p=USUAL_MATES, edge=edge,
        )  # fmt: skip
        # Where a loop over straight code is not needed, it costs registers.
        straight = unroll_h == tile_h or (work.groups > 1 and tile_h % unroll_h == 0)
        fits = _needed(work) <= target.registers_per_thread
        if straight and fits and work.products <= MOST_PRODUCTS and work.loads <= MOST_LOADS:
            yield work


def _slowness(work: Correlation, target: CudaTarget) -> float:
    """Instructions for an output; more where an SM holds too few threads to hide the latency of memory, where rows are
    read again, and where tiles stand out over the edge."""
    held = target.registers_per_sm // (target.warp * _needed(work)) * target.warp
    tiles = work.tiles_h * work.tiles_w
    there_are = min(work.workload.batch, MOST_IMAGES) * tiles * work.vectors * work.groups / target.sms
    # Where products take longer than memory, fewer threads keep them busy, and reading again costs less.
    memory = min(1.0, FREE_PRODUCTS / (work.rows.taps * work.columns.taps))
    late = max(1.0, ENOUGH_THREADS * memory / min(held, there_are)) ** 0.5
    ragged = tiles * work.tile_h * work.tile_w / (work.rows.outputs * work.columns.outputs)
    images = max(1.0, there_are / ENOUGH_THREADS)
    once = work.instructions_of_sums / (images * work.tile_h * work.tile_w * work.vector_c)
    return (work.instructions + once) * late * ragged * work.read_again ** (memory**2 / 2)


def _blocks_of(alone: Correlation, target: CudaTarget, knobs: Knobs) -> Iterator[Correlation]:
    """Blocks of such threads, with each number of shares."""
    for threads_c, threads_kh, threads_p, split_n in itertools.product(
        knobs["threads_c"], knobs["threads_kh"], knobs["threads_p"], knobs["split_n"]
    ):
        work = dataclasses.replace(
            alone, threads_c=threads_c, threads_kh=threads_kh, threads_p=threads_p, split_n=split_n
        )
        fits = work.threads <= target.threads_per_block and work.padded <= MOST_PADDED
        enough = split_n == 1 or (split_n <= work.workload.batch and work.workspace_bytes <= MOST_WORKSPACE_BYTES)
        if fits and enough and _needed(work) <= room(work, target):
            yield work


def _microseconds(work: Correlation, target: CudaTarget) -> float:
    """Of memory and of issue slots, whichever takes longer, and a little of the other."""
    blocks, warps = math.prod(work.blocks), -(-work.threads // target.warp)
    images = -(-min(work.workload.batch, MOST_IMAGES) // work.split_n)
    instructions = warps * (images * work.instructions_of_image + work.instructions_of_sums)
    # The SM with the most blocks is the last to finish.
    issue = -(-blocks // target.sms) * instructions / target.issue_slots / (target.clock_ghz * 1e3)

    line = work.threads_c * work.vector_c * ITEMSIZE[work.workload.dtype]
    ragged = max(1.0, LINE_BYTES / line) if work.channel_last and work.threads_c < work.vectors else 1.0
    held = max((count for count in range(1, 33) if _holds(work, target, count)), default=1) * work.threads
    late = max(1.0, ENOUGH_THREADS / min(held, blocks * work.threads / target.sms)) ** 0.5
    moved = work.workload.bytes * ragged * late / min(1.0, blocks / target.sms) + 4 * work.workspace_bytes
    memory = moved / (target.limits.memory_gb_per_s * 1e3)

    size = abs(math.log2(work.threads / BLOCK_THREADS))
    apart = work.blocks[2] / 50  # groups of kernel rows in different blocks, which read the same
    return (max(issue, memory) + NOT_HIDDEN * min(issue, memory)) * (1 + size / 50) * (1 + apart)


def _held(work: Correlation, target: CudaTarget, counts: list[int]) -> Iterator[Correlation]:
    """The same with each number of blocks on an SM that leaves a thread the registers it needs, and some more."""
    for count in counts:
        if _holds(work, target, count) and work.threads * count <= MOST_HELD:
            yield dataclasses.replace(work, blocks_per_sm=count)


def _needed(work: Correlation) -> int:
    """Registers of a thread that is not to wait for every load; wide loads take several, side by side."""
    words = max(1, work.vector_c * ITEMSIZE[work.workload.dtype] // 4)
    wide = 4 * (words - 1) * work.rows.up * work.columns.up  # with a stride there are more loads for a product
    spare = SPARE_REGISTERS_OF_TALL if work.group_kh >= TALL_KERNEL else SPARE_REGISTERS + wide
    return work.registers + spare


def _holds(work: Correlation, target: CudaTarget, count: int) -> bool:
    threads = work.threads * count
    left = registers_of(target, threads=work.threads, blocks=count)
    return threads <= target.threads_per_sm and _needed(work) <= left
