"""Where a search of a block on CUDA starts: the least estimated time of usual blocks of threads. No TVM here."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.block_nhwc.cut import Cut
from dwconv.schedules.cuda.block_nhwc.estimate import block_works
from dwconv.schedules.cuda.block_nhwc.thread_work import instructions_of_tile, registers_of
from dwconv.schedules.cuda.gpu.cost import total_us
from dwconv.schedules.cuda.gpu.hardware import LINE_BYTES, SYSTEM_SHARED_BYTES
from dwconv.schedules.cuda.gpu.occupancy import registers_left
from dwconv.schedules.space import Value

BLOCK_SIZES = range(64, 385)
"""Threads of the convolution's block."""
PIXEL_THREADS = 256
SPARE_REGISTERS = 12
"""Beyond what a thread needs at least."""
WAVES = 2
"""Blocks of threads over those that run at a time: the more there are, the more evenly they end, and the more partial
sums there are."""
TRIED = 200


def preferred(
    workload: Workload, target: CudaTarget, knobs: Mapping[str, Sequence[Value]], is_legal: Callable[[Cut], bool]
) -> dict[str, Value]:
    """Empty if no usual block is legal."""
    found = sorted(_blocks(workload, target, knobs), key=_instructions)[:TRIED]
    legal = [cut for cut in found if is_legal(cut)]
    best = min(legal, key=lambda cut: total_us(block_works(cut, target), target), default=None)
    return {} if best is None else {knob: getattr(best, knob) for knob in knobs}


def _instructions(cut: Cut) -> float:
    """Of the convolution, for each result wanted."""
    tiles = cut.rows.tiles * cut.columns.tiles * cut.strips * cut.channel_blocks * cut.threads_c
    wanted = cut.rows.axis.outputs * cut.columns.axis.outputs * cut.workload.channels
    return instructions_of_tile(cut) * tiles / wanted


def _blocks(workload: Workload, target: CudaTarget, knobs: Mapping[str, Sequence[Value]]) -> Iterator[Cut]:
    """Usual blocks of threads, each with as many of them on an SM as fit, and parts for all SMs."""
    names = ("vector_c", "threads_c", "tile_h", "tile_w", "threads_h", "threads_w")
    line = min(LINE_BYTES, 4 * workload.channels)
    for chosen in itertools.product(*(knobs[name] for name in names)):
        values = dict(zip(names, chosen, strict=True))
        threads = values["threads_c"] * values["threads_h"] * values["threads_w"]
        if threads not in BLOCK_SIZES or 4 * values["threads_c"] * values["vector_c"] < line:
            continue
        threads_p = _nearest(knobs["threads_p"], PIXEL_THREADS / values["threads_c"])
        cut = Cut(workload=workload, threads_p=threads_p, parts=1, split=1, blocks_per_sm=1, **values)
        held = [count for count in knobs["blocks_per_sm"] if _holds(cut, target, int(count))]
        if not held:
            continue
        per_sm = max(held)
        resident = target.sms * per_sm
        pixel_blocks = target.sms * (target.threads_per_sm // 2 // cut.pixel_threads)
        yield dataclasses.replace(
            cut,
            blocks_per_sm=per_sm,
            parts=_nearest(knobs["parts"], WAVES * pixel_blocks / cut.channel_blocks),
            split=_nearest(knobs["split"], WAVES * resident / (cut.channel_blocks * cut.columns.tiles)),
        )


def _holds(cut: Cut, target: CudaTarget, blocks: int) -> bool:
    shared = blocks * (cut.shared_bytes + SYSTEM_SHARED_BYTES) <= target.shared_bytes_per_sm
    registers = registers_left(target, threads=cut.tile_threads, blocks=blocks)
    fits = blocks * cut.tile_threads <= target.threads_per_sm and blocks <= target.blocks_per_sm
    return shared and fits and registers_of(cut) + SPARE_REGISTERS <= registers


def _nearest(values: Sequence[Value], wanted: float) -> int:
    """In proportion."""
    return min((int(value) for value in values), key=lambda value: abs(math.log2(value / max(wanted, 1e-9))))
