"""The space of the weight gradient, in either layout: knobs, what is legal, where a search starts. No TVM here."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from functools import lru_cache, partial

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.gpu import hardware
from dwconv.schedules.cuda.gpu.cost import price
from dwconv.schedules.cuda.wgrad.cut import WeightGradientCut
from dwconv.schedules.cuda.wgrad.estimate import (
    block_works,
    instructions_of,
    instructions_of_image,
    instructions_of_sums,
    loads_of,
    products_of,
    read_again,
    registers_of,
)
from dwconv.schedules.space import ConfigSpace, Knob, Limit, Value, divisors, rules_of
from dwconv.schedules.taps import DEPTH, HEIGHT, WIDTH

WIDEST_KERNEL = 96
"""The sums of one kernel row, which a thread keeps in registers."""


def kernel_misfit(workload: Workload, target: CudaTarget) -> str | None:
    if workload.kernel[WIDTH] > WIDEST_KERNEL:
        return f"a kernel row of {workload.kernel[WIDTH]} sums takes more registers than there are; {WIDEST_KERNEL} fit"
    return None


def weight_gradient_space(name: str, workload: Workload, target: CudaTarget) -> ConfigSpace:
    return ConfigSpace(
        name,
        *(Knob(knob, values) for knob, values in knobs_of(workload).items()),
        Knob("edge", edges(workload)),
        rules=rules_of(partial(WeightGradientCut.of, workload), _limits(target)),
        preferred=lambda: preferred(workload, target),
    )


def _limits(target: CudaTarget) -> list[Limit]:
    def starved(cut: WeightGradientCut) -> bool:
        return registers_of(cut) > hardware.registers_left(target, threads=cut.threads, blocks=cut.blocks_per_sm)

    return [
        ("unroll_h does not divide tile_h", lambda cut: cut.tile_h % cut.unroll_h != 0),
        (f"more than {target.threads_per_block} threads", lambda cut: cut.threads > target.threads_per_block),
        (f"fewer than {hardware.LEAST_THREADS} threads", lambda cut: cut.threads < hardware.LEAST_THREADS),
        ("too many threads without work", lambda cut: cut.padded > hardware.MOST_PADDED),
        (
            f"more than {hardware.WEIGHT_GRADIENT_CODE} products unrolled",
            lambda cut: products_of(cut) > hardware.WEIGHT_GRADIENT_CODE,
        ),
        ("more threads than an SM has", lambda cut: cut.threads * cut.blocks_per_sm > target.threads_per_sm),
        ("more registers than there are", starved),
        (
            f"more than {hardware.MOST_WORKSPACE_BYTES >> 20} MiB of partial sums",
            lambda cut: cut.split_n > 1 and cut.workspace_bytes > hardware.MOST_WORKSPACE_BYTES,
        ),
    ]


# -- knobs, and the values that they may take ----------------------------------------------------------------------

MOST_THREADS_KH = 16
"""They are on z, where CUDA allows no more than 64."""
TALL_KERNEL, ZERO_KERNEL = 7, 9
"""From 7 kernel rows on they can be split over threads, and branches around padding can pay; beyond 9 they do."""
WIDEST_TILE = 28

Knobs = dict[str, list[int]]


def knobs_of(workload: Workload) -> Knobs:
    nhwc, tall = workload.layout == "nhwc", workload.kernel[HEIGHT] >= TALL_KERNEL
    out_h, out_w = workload.output_size[HEIGHT], workload.output_size[WIDTH]
    heights = cuts(out_h, [4, 7, 14] if tall else [4, 7, 8, 14, 28])
    return {
        **({"vector_c": channel_vectors(workload)} if nhwc else {}),
        "threads_c": channel_threads(workload),
        "tile_h": heights,
        "unroll_h": sorted({part for height in heights for part in divisors(height)} & {1, 2, 4, 7, 8, 14}),
        "tile_w": cuts(out_w, [2, 4, 7, 14, 28] if nhwc or tall else [2, 4, 8, 14]),
        "group_kh": kernel_groups(workload),
        "threads_kh": kernel_threads(workload),
        "threads_p": [4, 7, 8, 14, 16, 32] if nhwc else [14, 16, 28, 32, 56, 64, 112, 128],
        "split_n": sorted({-(-hardware.MOST_IMAGES // images) for images in (1, 2, 3, 4, 5, 6, 8, 11, 16, 32, 64)}),
        "blocks_per_sm": [1, 2, 3] if tall else [1, 2, 3, 4, 6],
    }


def edges(workload: Workload) -> list[str]:
    tall = workload.kernel[HEIGHT] >= TALL_KERNEL
    return ["zero", "skip"] if tall and any(workload.padding[HEIGHT]) else ["zero"]


def channel_vectors(workload: Workload) -> list[int]:
    """Neighbouring channels that one aligned load brings, of whole input channels or of a part of one."""
    channels, multiplier = workload.out_channels, workload.multiplier
    return [
        lanes
        for lanes in (1, 2, 4, 8)
        if lanes * ITEMSIZE[workload.dtype] <= hardware.VECTOR_BYTES
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
    taps = workload.kernel[HEIGHT]
    parts = {1, 2, 3, taps} if taps >= TALL_KERNEL else {1, taps} if workload.kernel[WIDTH] > 16 else {1}
    groups = {-(-taps // part) for part in parts}
    return sorted(group for group in groups if -(-taps // group) * group <= hardware.MOST_PADDED * taps)


def kernel_threads(workload: Workload) -> list[int]:
    """Groups side by side. Of tall kernels one, or those of a quarter, a half or all of the rows; of others one tap
    along the depth, or all, which read the same dy."""
    taps, depths = workload.kernel[HEIGHT], workload.kernel[DEPTH] if workload.axes == 3 else 1
    counts = {1, *(-(-taps // part) for part in (1, 2, 4))} if taps >= TALL_KERNEL else {1, depths}
    return sorted(count for count in counts if count <= MOST_THREADS_KH)


def cuts(size: int, sizes: list[int]) -> list[int]:
    """Ways to cut ``size``: those of ``sizes``, halves and thirds, where the last piece leaves little idle."""
    some = {cut for cut in (*sizes, size, -(-size // 2), -(-size // 3)) if cut <= min(size, WIDEST_TILE)}
    return sorted({1, *(cut for cut in some if -(-size // cut) * cut <= hardware.MOST_PADDED * size)})


# -- where a search starts -----------------------------------------------------------------------------------------

BLOCK_THREADS, USUAL_MATES = 256, 16
"""A usual block, and how many of its threads have sums in common."""
THREADS_TRIED = 3
"""For which blocks are weighed; of tall kernels one, as instructions alone decide there."""
ENOUGH_THREADS, MOST_HELD = 320, 1280
"""On an SM: to hide the latency of memory, as each has many loads on their way; and what is not needed beyond."""
OVERLAP_LOST = 0.3
"""Share of the shorter of two times that overlap that is lost all the same."""
SPARE_REGISTERS, SPARE_REGISTERS_OF_TALL = 27, 64
"""Beyond what a thread needs at least: for loads on their way, more of them where it sums up many kernel rows."""
MOST_LOADS = 132
"""In straight code. ptxas moves loads ahead as long as there are registers, and of too many it spills a few."""
FREE_PRODUCTS = 25
"""For an output, in the time that memory takes for it."""


@lru_cache(maxsize=256)
def preferred(workload: Workload, target: CudaTarget) -> dict[str, Value]:
    """The threads that need the fewest instructions, if an SM holds enough of them; of these the blocks and shares of
    the images that are estimated to take the least time."""
    knobs = knobs_of(workload)
    tried = 1 if workload.kernel[HEIGHT] >= TALL_KERNEL else THREADS_TRIED
    threads = sorted(_threads_alone(workload, target, knobs), key=lambda cut: _slowness(cut, target))[:tried]
    if not threads:
        return {}
    found = []
    for alone in threads:
        cut = min(_blocks_of(alone, target, knobs), key=lambda cut: _microseconds(cut, target), default=alone)
        found.append(max(_held(cut, target, knobs["blocks_per_sm"]), key=lambda cut: cut.blocks_per_sm, default=cut))
    cut = min(found, key=lambda cut: sum(price(each, target).microseconds for each in block_works(cut, target)))
    return {knob: getattr(cut, knob) for knob in (*knobs, "edge")}


def _threads_alone(workload: Workload, target: CudaTarget, knobs: Knobs) -> Iterator[WeightGradientCut]:
    edge = "skip" if "skip" in edges(workload) and workload.kernel[HEIGHT] > ZERO_KERNEL else "zero"
    for vector_c, tile_h, unroll_h, tile_w, group_kh in itertools.product(
        knobs.get("vector_c", [1]), knobs["tile_h"], knobs["unroll_h"], knobs["tile_w"], knobs["group_kh"]
    ):
        cut = WeightGradientCut(
            workload=workload, vector_c=vector_c, tile_h=tile_h, unroll_h=unroll_h, tile_w=tile_w, group_kh=group_kh,
            threads_c=target.warp, threads_p=USUAL_MATES, edge=edge,
        )  # fmt: skip
        # Where a loop over straight code is not needed, it costs registers.
        straight = unroll_h == tile_h or (cut.groups > 1 and tile_h % unroll_h == 0)
        fits = _needed(cut) <= target.registers_per_thread
        if straight and fits and products_of(cut) <= hardware.WEIGHT_GRADIENT_CODE and loads_of(cut) <= MOST_LOADS:
            yield cut


def _slowness(cut: WeightGradientCut, target: CudaTarget) -> float:
    """Instructions for an output; more where an SM holds too few threads to hide the latency of memory, where rows are
    read again, and where tiles stand out over the edge."""
    held = target.registers_per_sm // (target.warp * _needed(cut)) * target.warp
    tiles = cut.tiles_h * cut.tiles_w
    there_are = min(cut.planes, hardware.MOST_IMAGES) * tiles * cut.vectors * cut.groups / target.sms
    # Where products take longer than memory, fewer threads keep them busy, and reading again costs less.
    memory = min(1.0, FREE_PRODUCTS / (cut.rows.taps * cut.columns.taps))
    late = max(1.0, ENOUGH_THREADS * memory / min(held, there_are)) ** 0.5
    ragged = tiles * cut.tile_h * cut.tile_w / (cut.rows.outputs * cut.columns.outputs)
    images = max(1.0, there_are / ENOUGH_THREADS)
    once = instructions_of_sums(cut) / (images * cut.tile_h * cut.tile_w * cut.vector_c)
    return (instructions_of(cut) + once) * late * ragged * read_again(cut) ** (memory**2 / 2)


def _blocks_of(alone: WeightGradientCut, target: CudaTarget, knobs: Knobs) -> Iterator[WeightGradientCut]:
    for threads_c, threads_kh, threads_p, split_n in itertools.product(
        knobs["threads_c"], knobs["threads_kh"], knobs["threads_p"], knobs["split_n"]
    ):
        cut = dataclasses.replace(
            alone, threads_c=threads_c, threads_kh=threads_kh, threads_p=threads_p, split_n=split_n
        )
        fits = cut.threads <= target.threads_per_block and cut.padded <= hardware.MOST_PADDED
        enough = split_n == 1 or (split_n <= cut.planes and cut.workspace_bytes <= hardware.MOST_WORKSPACE_BYTES)
        if (
            fits
            and enough
            and _needed(cut) <= hardware.registers_left(target, threads=cut.threads, blocks=cut.blocks_per_sm)
        ):
            yield cut


def _microseconds(cut: WeightGradientCut, target: CudaTarget) -> float:
    """The time of memory or of the issue slots, whichever is longer, and a little of the other."""
    blocks, warps = math.prod(cut.blocks), -(-cut.threads // target.warp)
    images = -(-min(cut.planes, hardware.MOST_IMAGES) // cut.split_n)
    instructions = warps * (images * cut.planes_met * instructions_of_image(cut) + instructions_of_sums(cut))
    # The SM with the most blocks is the last to finish.
    issue = -(-blocks // target.sms) * instructions / target.issue_slots / (target.clock_ghz * 1e3)

    line = cut.threads_c * cut.vector_c * ITEMSIZE[cut.workload.dtype]
    ragged = max(1.0, hardware.LINE_BYTES / line) if cut.channel_last and cut.threads_c < cut.vectors else 1.0
    held = max((count for count in range(1, 33) if _holds(cut, target, count)), default=1) * cut.threads
    late = max(1.0, ENOUGH_THREADS / min(held, blocks * cut.threads / target.sms)) ** 0.5
    moved = cut.workload.bytes * ragged * late / min(1.0, blocks / target.sms) + 4 * cut.workspace_bytes
    memory = moved / (target.limits.memory_gb_per_s * 1e3)

    size = abs(math.log2(cut.threads / BLOCK_THREADS))
    apart = cut.blocks[2] / 50  # groups of kernel rows in different blocks, which read the same
    return (max(issue, memory) + OVERLAP_LOST * min(issue, memory)) * (1 + size / 50) * (1 + apart)


def _held(cut: WeightGradientCut, target: CudaTarget, counts: list[int]) -> Iterator[WeightGradientCut]:
    """``cut`` with each number of blocks on an SM that leaves a thread the registers it needs, and some more."""
    for count in counts:
        if _holds(cut, target, count) and cut.threads * count <= MOST_HELD:
            yield dataclasses.replace(cut, blocks_per_sm=count)


def _needed(cut: WeightGradientCut) -> int:
    """Registers of a thread that is not to wait for every load; wide loads take several, side by side."""
    words = max(1, cut.vector_c * ITEMSIZE[cut.workload.dtype] // 4)
    wide = 4 * (words - 1) * cut.rows.up * cut.columns.up  # with a stride there are more loads for a product
    spare = SPARE_REGISTERS_OF_TALL if cut.group_kh >= TALL_KERNEL else SPARE_REGISTERS + wide
    return registers_of(cut) + spare


def _holds(cut: WeightGradientCut, target: CudaTarget, count: int) -> bool:
    threads = cut.threads * count
    left = hardware.registers_left(target, threads=cut.threads, blocks=count)
    return threads <= target.threads_per_sm and _needed(cut) <= left
