"""The space of whole planes in shared memory: which configurations there are, which fit, where to start. No TVM."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, DType, Workload
from dwconv.schedules.cuda.gpu.hardware import SYSTEM_SHARED_BYTES, WARP
from dwconv.schedules.cuda.gpu.limits import LEAST_THREADS, MOST_PADDED
from dwconv.schedules.cuda.gpu.limits import RESIDENT_PLANES as MOST_CODE
from dwconv.schedules.cuda.gpu.plane_layout import MOST_TURNS
from dwconv.schedules.cuda.resident_planes.cut import Cut
from dwconv.schedules.cuda.resident_planes.estimate import blocks_at_a_time, code_size, issued, registers_of
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule, Value
from dwconv.schedules.taps import Axis

PLANES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
THREAD_PLANES = (1, 2)
MOST_TILE_H = 16
PREFERRED_THREADS = 128
BLOCKS_PER_SM = 4
"""That shared memory should have room for: while one computes, others load."""
FEW_THREADS = 384
"""Fewer on an SM leave its units waiting for results of their own."""
TURNS_COST = 1.5
"""Where threads meet in the banks of shared memory."""
FEW_BYTES = 50_000
"""Fewer on their way to an SM are less than its share of the bandwidth."""
MOST_ROW_BYTES = 64
"""Longer rows fill most of a line of memory each: strips read them as well from where they are."""


def plane_space(name: str, workload: Workload, target: CudaTarget) -> ConfigSpace:
    """Knobs: planes of a block and of a thread, its rows and columns, the type in shared memory."""
    gather = Gather.of(workload)
    return ConfigSpace(
        name,
        Knob("planes", PLANES),
        Knob("thread_planes", THREAD_PLANES),
        Knob("tile_h", _tiles_h(gather.rows)),
        Knob("tile_w", _tiles_w(gather.columns)),
        Knob("held", _held_types(workload.dtype)),
        rules=_rules(workload, target),
        preferred=lambda: _preferred(workload, target),
    )


def plane_misfit(workload: Workload, target: CudaTarget) -> str | None:
    """Why no configuration fits; None if one does."""
    gather, dtype = Gather.of(workload), workload.dtype
    if gather.multiplier > 1:
        return f"multiplier={gather.multiplier}: a plane of the result would need several of the source, or share one"
    if max(gather.columns.inputs, gather.columns.outputs) * ITEMSIZE[dtype] > MOST_ROW_BYTES:
        return f"rows of more than {MOST_ROW_BYTES} bytes need no shared memory to be read whole"
    tilings = list(_tilings(gather, dtype))
    if any(_fits(at, target) for at in tilings):
        return None
    least = {reason: all(test(at) for at in tilings) for reason, test in _limits(target)}
    return "every tile has " + next((reason for reason, broken in least.items() if broken), "too much of something")


def _periods(axis: Axis) -> int:
    return -(-axis.outputs // axis.down)


def _tiles(axis: Axis, counts: Sequence[int]) -> list[int]:
    """Whole periods of the taps that leave little idle."""
    tiles = sorted({axis.down * min(count, _periods(axis)) for count in counts})
    return [tile for tile in tiles if axis.covered(tile) <= axis.outputs * MOST_PADDED] or tiles[:1]


def _tiles_h(rows: Axis) -> list[int]:
    return _tiles(rows, range(1, MOST_TILE_H + 1))


def _tiles_w(columns: Axis) -> list[int]:
    return _tiles(columns, [-(-_periods(columns) // parts) for parts in (1, 2, 3, 4, 7, 8)])


def _held_types(dtype: DType) -> list[DType]:
    return ["float32"] if dtype == "float32" else [dtype, "float32"]


def _tilings(gather: Gather, dtype: DType) -> Iterator[Cut]:
    """Every tile, with the fewest planes that make a block."""
    tiles_h, tiles_w, held_types = _tiles_h(gather.rows), _tiles_w(gather.columns), _held_types(dtype)
    for tile_h, tile_w, each, held in itertools.product(tiles_h, tiles_w, THREAD_PLANES, held_types):
        for planes in PLANES:
            at = Cut(
                gather=gather, dtype=dtype, planes=planes, thread_planes=each, tile_h=tile_h, tile_w=tile_w, held=held
            )
            if planes % each == 0 and at.threads >= LEAST_THREADS:
                yield at
                break


@cache
def _preferred(workload: Workload, target: CudaTarget) -> dict[str, Value]:
    """The tile that keeps an SM least busy, in blocks of about four warps whose planes are copied in whole vectors and
    whose threads meet in no bank."""

    gather = Gather.of(workload)

    def cost(at: Cut) -> float:
        resident = blocks_at_a_time(at, target) * at.threads
        copied = resident * at.loads_under_way * at.source.copied_lanes * ITEMSIZE[at.dtype]
        in_all = gather.channels * workload.batch * at.plane_threads / at.thread_planes
        starved = max(1.0, FEW_THREADS / resident) * max(1.0, FEW_BYTES / copied)
        starved *= max(1.0, FEW_THREADS * target.sms / in_all) ** 0.5
        return _cycles(at) * starved * (1.0 if at.layout.turns <= MOST_TURNS else TURNS_COST)

    def distance(at: Cut) -> tuple[bool, bool, int, bool, int]:
        crowded = at.shared_bytes > target.shared_bytes_per_sm // BLOCKS_PER_SM - SYSTEM_SHARED_BYTES
        whole = min(at.source.copied_lanes, at.result.copied_lanes)
        met = at.layout.turns > MOST_TURNS
        return not _fits(at, target), met, -whole, crowded, abs(at.threads - PREFERRED_THREADS)

    def block_of(tile: Cut) -> Cut:
        return min((dataclasses.replace(tile, planes=planes) for planes in PLANES), key=distance)

    fitting = (at for at in _tilings(gather, workload.dtype) if _fits(at, target))
    tiles = sorted(fitting, key=cost) or [next(_tilings(gather, workload.dtype))]
    blocks = map(block_of, tiles)
    best = next((at for at in blocks if at.layout.turns <= MOST_TURNS), None) or block_of(tiles[0])
    return {knob: getattr(best, knob) for knob in ("planes", "thread_planes", "tile_h", "tile_w", "held")}


def _limits(target: CudaTarget) -> list[tuple[str, Callable[[Cut], bool]]]:
    """Reasons why a block is illegal, each with its test."""

    def padded(at: Cut) -> bool:
        rows, columns = at.gather.rows, at.gather.columns
        computed = rows.covered(at.tile_h) * columns.covered(at.tile_w)
        return computed > MOST_PADDED * rows.covered(rows.down) * columns.covered(columns.down)

    def starved(at: Cut) -> bool:
        return registers_of(at) > min(target.registers_per_thread, target.registers_per_sm // at.threads)

    shared_bytes = target.shared_bytes_per_block
    return [
        ("threads share planes unevenly", lambda at: at.planes % at.thread_planes != 0),
        (f"fewer than {LEAST_THREADS} threads", lambda at: at.threads < LEAST_THREADS),
        (f"more than {target.threads_per_block} threads", lambda at: at.threads > target.threads_per_block),
        (f"more than {MOST_PADDED}× the outputs wanted", padded),
        (
            f"more than {MOST_CODE} instructions unrolled",
            lambda at: code_size(at) > MOST_CODE,
        ),
        ("more registers than there are", starved),
        (f"more than {shared_bytes} bytes of shared memory", lambda at: at.shared_bytes > shared_bytes),
    ]


def _rules(workload: Workload, target: CudaTarget) -> list[Rule]:
    @lru_cache(maxsize=4)
    def cut(config: Config) -> Cut:
        return Cut.of(workload, config)

    def rule(reason: str, test: Callable[[Cut], bool]) -> Rule:
        return Rule(reason, lambda config: test(cut(config)))

    return [rule(reason, test) for reason, test in _limits(target)]


def _fits(at: Cut, target: CudaTarget) -> bool:
    return not any(test(at) for _, test in _limits(target))


def _cycles(at: Cut) -> float:
    """Cycles of an SM for an output: four warp instructions are issued in one, one turn of shared memory is taken."""
    thread = issued(at)
    taken = thread.bank_turns + thread.lines
    made = at.thread_planes / at.plane_threads * at.gather.rows.outputs * at.gather.columns.outputs
    return (max(thread.instructions / 4, taken) + thread.instructions / 8 + taken / 4) / (WARP * made)
