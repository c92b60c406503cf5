"""Where a search of a block on CUDA starts: the least estimated time of usual blocks of threads. No TVM here."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.block_nhwc.cut import AHEAD, Cut, TileAxis, axes_of
from dwconv.schedules.cuda.block_nhwc.estimate import block_works
from dwconv.schedules.cuda.block_nhwc.thread_work import registers_of
from dwconv.schedules.cuda.gpu.cost import total_us
from dwconv.schedules.cuda.gpu.hardware import LINE_BYTES, SYSTEM_SHARED_BYTES
from dwconv.schedules.cuda.gpu.occupancy import registers_left
from dwconv.schedules.space import Value

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
    workload: Workload, target: CudaTarget, knobs: Mapping[str, Sequence[Value]], is_legal: Callable[[Cut], bool]
) -> dict[str, Value]:
    """Empty if no usual block is legal."""
    itemsize = ITEMSIZE[workload.dtype]
    found = [
        cut
        for vector_c, threads_c in itertools.product(_numbers(knobs["vector_c"]), _numbers(knobs["threads_c"]))
        if itemsize * vector_c * threads_c >= min(LINE_BYTES, itemsize * workload.channels)
        for rows, columns in _tiles(workload, knobs, vector_c=vector_c, threads_c=threads_c)
        if (cut := _with_parts(workload, target, knobs, vector_c, threads_c, rows, columns)) and is_legal(cut)
    ]
    best = min(found, key=lambda cut: _microseconds(cut, target), default=None)
    return {} if best is None else {knob: getattr(best, knob) for knob in knobs}


def _microseconds(cut: Cut, target: CudaTarget) -> float:
    """The estimated time; more where few blocks share an SM: while one waits for its patch, others have to compute."""
    return total_us(block_works(cut, target), target) * (1 + LONELY / cut.blocks_per_sm)


def _tiles(
    workload: Workload, knobs: Mapping[str, Sequence[Value]], *, vector_c: int, threads_c: int
) -> list[tuple[TileAxis, TileAxis]]:
    """Tiles of a block of threads of usual size: those that have little to read and to compute again."""
    axes = axes_of(workload)
    cuts = {}
    for name, axis in (("h", axes.rows), ("w", axes.columns)):
        every = itertools.product(_numbers(knobs[f"tile_{name}"]), _numbers(knobs[f"threads_{name}"]))
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
    knobs: Mapping[str, Sequence[Value]],
    vector_c: int,
    threads_c: int,
    rows: TileAxis,
    columns: TileAxis,
) -> Cut | None:
    """As many blocks on an SM as fit, and parts for all SMs; None if none fits."""
    cut = Cut(
        workload=workload, vector_c=vector_c, threads_c=threads_c, tile_h=rows.tile, threads_h=rows.threads,
        tile_w=columns.tile, threads_w=columns.threads, parts=1, split=1, blocks_per_sm=1,
        threads_p=_nearest(knobs["threads_p"], PIXEL_THREADS / threads_c),
    )  # fmt: skip
    held = next((count for count in reversed(_numbers(knobs["blocks_per_sm"])) if _holds(cut, target, count)), None)
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


def _holds(cut: Cut, target: CudaTarget, blocks: int) -> bool:
    shared = blocks * (cut.shared_bytes + SYSTEM_SHARED_BYTES) <= target.shared_bytes_per_sm
    fits = blocks * cut.tile_threads <= target.threads_per_sm and blocks <= target.blocks_per_sm
    if not (shared and fits):
        return False
    left = registers_left(target, threads=cut.tile_threads, blocks=blocks)
    return registers_of(cut) + SPARE_REGISTERS * 4 // cut.itemsize <= left


def _nearest(values: Sequence[Value], wanted: float) -> int:
    """In proportion."""
    return min(_numbers(values), key=lambda value: abs(math.log2(value / max(wanted, 1e-9))))


def _numbers(values: Sequence[Value]) -> list[int]:
    return [int(value) for value in values]
