"""The knobs of a block on CUDA, the rules that make a configuration illegal, and where a search starts. No TVM here."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from functools import lru_cache, partial

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.block_nhwc.cut import AHEAD, BlockCut, TileAxis, axes_of
from dwconv.schedules.cuda.block_nhwc.estimate import block_works, code_size, registers_of
from dwconv.schedules.cuda.gpu import hardware
from dwconv.schedules.cuda.gpu.cost import total_us
from dwconv.schedules.space import ConfigSpace, Knob, Limit, Value, divisors, rules_of
from dwconv.schedules.taps import Axis

LANES = (1, 2, 4, 8)
TILES = (1, 2, 3, 4, 7, 8)
THREADS = (1, 2, 4, 7, 8, 14, 16, 28)
PARTS = (16, 32, 64, 128, 256, 512, 1024)
Knobs = dict[str, list[int]]


def why_unfit(workload: Workload, target: CudaTarget) -> str | None:
    if workload.multiplier > 1:
        return "blocks have no channel multiplier"
    if workload.block and workload.block.layer_norm:
        return "it is for BatchNorms"
    if workload.block and any(norm.statistics != "batch" for norm in workload.block.batch_norms):
        return "it is for norms with the statistics of the batch"
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
    limits = _limits(workload, target)

    def is_legal(cut: BlockCut) -> bool:
        return not any(broken(cut) for _, broken in limits)

    return ConfigSpace(
        name,
        *(Knob(knob, values) for knob, values in knobs.items()),
        rules=rules_of(partial(BlockCut.of, workload), limits),
        preferred=lambda: preferred(workload, target, knobs, is_legal),
    )


def knobs_of(workload: Workload) -> Knobs:
    axes = axes_of(workload)
    most = hardware.VECTOR_BYTES // ITEMSIZE[workload.dtype]
    lanes = [count for count in LANES if count <= most and workload.channels % count == 0]
    return {
        "vector_c": lanes,
        "threads_c": _channel_threads(workload.channels, lanes),
        "threads_p": [1, 2, 4, 8, 16, 32],
        "parts": list(PARTS),
        "tile_h": _tiles(axes.rows),
        "tile_w": _tiles(axes.columns),
        "threads_h": _threads(axes.rows),
        "threads_w": _threads(axes.columns),
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
    phases = -(-axis.outputs // axis.down)
    return [count * axis.down for count in TILES if count <= phases]


def _threads(axis: Axis) -> list[int]:
    phases = -(-axis.outputs // axis.down)
    snug = {-(-phases // part) for part in (1, 2, 3, 4)}
    return sorted({count for count in {*THREADS, *snug} if count <= min(phases, 32)})


def _least(workload: Workload) -> BlockCut:
    axes = axes_of(workload)
    return BlockCut(
        workload=workload, vector_c=1, threads_c=min(8, workload.channels), threads_p=1, parts=PARTS[0],
        tile_h=axes.rows.down, tile_w=axes.columns.down, threads_h=1, threads_w=1, split=8, blocks_per_sm=1,
    )  # fmt: skip


# -- what cannot run, or cannot be fast ----------------------------------------------------------------------------


def _limits(workload: Workload, target: CudaTarget) -> list[Limit]:
    axes = axes_of(workload)
    wanted = [-(-axis.outputs // axis.down) * axis.down for axis in (axes.rows, axes.columns)]
    least_threads = min(hardware.LEAST_THREADS, -(-math.prod(wanted) * workload.channels // 64))
    most = target.threads_per_block

    def computed(cut: BlockCut) -> float:
        covered = [axis.tiles * axis.block for axis in (cut.rows, cut.columns)]
        return math.prod(covered) / math.prod(wanted) * (cut.channel_blocks * cut.threads_c / cut.vectors)

    def starved(cut: BlockCut) -> bool:
        return registers_of(cut) > hardware.registers_left(target, threads=cut.tile_threads, blocks=cut.blocks_per_sm)

    return [
        (f"more than {most} threads", lambda cut: max(cut.tile_threads, cut.pixel_threads) > most),
        (f"fewer than {least_threads} threads", lambda cut: cut.tile_threads < least_threads),
        (f"more than {hardware.MOST_PADDED}× the results wanted", lambda cut: computed(cut) > hardware.MOST_PADDED),
        hardware.limit_of_shared(target),
        (
            f"more than {hardware.STATIC_SHARED_BYTES} bytes of shared memory besides the patch",
            lambda cut: cut.static_bytes > hardware.STATIC_SHARED_BYTES,
        ),
        (
            f"more than {hardware.CHANNELS_LAST_CODE} instructions unrolled",
            lambda cut: code_size(cut) > hardware.CHANNELS_LAST_CODE,
        ),
        ("more threads than an SM has", lambda cut: cut.tile_threads * cut.blocks_per_sm > target.threads_per_sm),
        ("more registers than there are", starved),
        (
            f"more than {hardware.MOST_WORKSPACE_BYTES >> 20} MiB of partial sums",
            lambda cut: 4 * cut.partial_words > hardware.MOST_WORKSPACE_BYTES,
        ),
    ]


# -- where a search starts -----------------------------------------------------------------------------------------

BLOCK_SIZES = range(64, 385)
"""Threads of the convolution's block."""
PATCH_BYTES = 40 << 10
"""Of float32: several blocks fit on an SM, so that some compute while others wait for memory. As many pixels, if they
have 16 bits."""
MOST_OWN = 16
"""Results of a thread in a channel."""
PIXEL_THREADS = 256
SPARE_REGISTERS = 8
"""Beyond what a thread needs at least; with 16 bits twice as many, since that is less."""
LONELY = 0.2
"""Longer by so much where a block is alone on an SM. A guess."""
WAVES = 2
"""Blocks of threads over those that run at a time: the more there are, the more evenly they end, and the more partial
sums there are."""
TRIED = 48
"""Tiles for each vector of channels, those that read the fewest pixels again."""


def preferred(
    workload: Workload, target: CudaTarget, knobs: Knobs, is_legal: Callable[[BlockCut], bool]
) -> dict[str, Value]:
    itemsize = ITEMSIZE[workload.dtype]
    found = [
        cut
        for vector_c, threads_c in itertools.product(knobs["vector_c"], knobs["threads_c"])
        if itemsize * vector_c * threads_c >= min(hardware.LINE_BYTES, itemsize * workload.channels)
        for rows, columns in _tiles_of_block(workload, knobs, vector_c=vector_c, threads_c=threads_c)
        if (cut := _with_parts(workload, target, knobs, vector_c, threads_c, rows, columns)) and is_legal(cut)
    ]
    best = min(found, key=lambda cut: _microseconds(cut, target), default=None)
    return {} if best is None else {knob: getattr(best, knob) for knob in knobs}


def _microseconds(cut: BlockCut, target: CudaTarget) -> float:
    """The estimated time; more where few blocks share an SM: while one waits for its patch, others have to compute."""
    return total_us(block_works(cut, target), target) * (1 + LONELY / cut.blocks_per_sm)


def _tiles_of_block(
    workload: Workload, knobs: Knobs, *, vector_c: int, threads_c: int
) -> list[tuple[TileAxis, TileAxis]]:
    """Tiles of a block of threads of usual size: those that have little to read and to compute again."""
    axes = axes_of(workload)
    cuts = {}
    for name, axis in (("h", axes.rows), ("w", axes.columns)):
        every = itertools.product(knobs[f"tile_{name}"], knobs[f"threads_{name}"])
        both = [TileAxis(axis=axis, tile=tile, threads=threads) for tile, threads in every]
        cuts[name] = [(_again(cut), cut) for cut in both]
    found = []
    for (again_h, rows), (again_w, columns) in itertools.product(cuts["h"], cuts["w"]):
        threads = threads_c * rows.threads * columns.threads
        patch = 4 * rows.spanned[1] * columns.spanned[1] * vector_c * threads_c
        if threads in BLOCK_SIZES and patch <= PATCH_BYTES and rows.tile * columns.tile <= MOST_OWN:
            found.append((again_h * again_w**2, rows, columns))  # rows that are read again are in the cache
    found.sort(key=lambda each: each[0])
    return [(rows, columns) for _, rows, columns in found[:TRIED]]


def _again(cut: TileAxis) -> float:
    """Inputs read over those that there are, and results computed over those wanted."""
    return cut.tiles * (cut.spanned[1] / cut.axis.inputs + cut.block / cut.axis.outputs)


def _with_parts(
    workload: Workload,
    target: CudaTarget,
    knobs: Knobs,
    vector_c: int,
    threads_c: int,
    rows: TileAxis,
    columns: TileAxis,
) -> BlockCut | None:
    """As many blocks on an SM as fit, and parts for all SMs; None if none fits."""
    cut = BlockCut(
        workload=workload, vector_c=vector_c, threads_c=threads_c, tile_h=rows.tile, threads_h=rows.threads,
        tile_w=columns.tile, threads_w=columns.threads, parts=1, split=1, blocks_per_sm=1,
        threads_p=_nearest(knobs["threads_p"], PIXEL_THREADS / threads_c),
    )  # fmt: skip
    held = next((count for count in reversed(knobs["blocks_per_sm"]) if _holds(cut, target, count)), None)
    if held is None:
        return None
    pixel_blocks = target.sms * (target.threads_per_sm // 2 // cut.pixel_threads)
    # Where there is little, every part has something to do.
    batches = workload.batch * math.prod(workload.output_size) / (cut.threads_p * AHEAD)
    parts = min(WAVES * pixel_blocks / cut.channel_blocks, batches)
    split = WAVES * target.sms * held / (cut.channel_blocks * cut.columns.tiles)
    return dataclasses.replace(
        cut,
        blocks_per_sm=held,
        parts=_nearest(knobs["parts"], parts),
        split=_nearest(knobs["split"], min(split, workload.batch * rows.tiles)),
    )


def _holds(cut: BlockCut, target: CudaTarget, blocks: int) -> bool:
    shared = blocks * (cut.shared_bytes + hardware.SYSTEM_SHARED_BYTES) <= target.shared_bytes_per_sm
    fits = blocks * cut.tile_threads <= target.threads_per_sm and blocks <= target.blocks_per_sm
    if not (shared and fits):
        return False
    left = hardware.registers_left(target, threads=cut.tile_threads, blocks=blocks)
    return registers_of(cut) + SPARE_REGISTERS * 4 // cut.itemsize <= left


def _nearest(values: list[int], wanted: float) -> int:
    return min(values, key=lambda value: abs(math.log2(value / max(wanted, 1e-9))))
