"""The space of whole planes in shared memory: which configurations there are, which fit, where to start. No TVM."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from dwconv.schedules.cuda.plane_layout import MOST_TURNS
from dwconv.schedules.cuda.plane_tile import Planes, live_reads, whole_vectors
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import ConfigSpace, Knob, Rule, Value
from dwconv.schedules.taps import Axis
from dwconv.target import CudaTarget
from dwconv.workload import ITEMSIZE, DType, Workload

PLANES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
THREAD_PLANES = (1, 2)
MOST_PADDED = 1.3
"""Outputs computed over outputs wanted."""
MOST_CODE = 2400
"""Unrolled instructions. Beyond it compiling takes more than a second."""
MOST_TILE_H = 16
OTHER_REGISTERS = 24
"""For addresses, tests and vectors under way."""
LEAST_THREADS = 32
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
"""Of longer rows each fills most of a line of memory by itself: strips read them as well from where they are."""
START = 40
"""Instructions with which a thread finds its place, and copies."""
WARP = 32
SYSTEM_SHARED_BYTES = 1024
"""What the system takes of every block's."""


def plane_space(name: str, work: Gather, workload: Workload, target: CudaTarget) -> ConfigSpace:
    """Knobs: planes of a block and of a thread, its rows and columns, the type in shared memory."""
    return ConfigSpace(
        name,
        Knob("planes", PLANES),
        Knob("thread_planes", THREAD_PLANES),
        Knob("tile_h", _tiles_h(work.rows)),
        Knob("tile_w", _tiles_w(work.columns)),
        Knob("held", _held_types(workload.dtype)),
        rules=_rules(work, workload.dtype, target),
        preferred=_preferred(work, workload, target),
    )


def plane_misfit(work: Gather, dtype: DType, target: CudaTarget) -> str | None:
    """Why no configuration fits; None if one does."""
    if work.multiplier > 1:
        return f"multiplier={work.multiplier}: a plane of the result would need several of the source, or share one"
    if max(work.columns.inputs, work.columns.outputs) * ITEMSIZE[dtype] > MOST_ROW_BYTES:
        return f"rows of more than {MOST_ROW_BYTES} bytes need no shared memory to be read whole"
    tilings = list(_tilings(work, dtype))
    if any(_fits(at, target) for at in tilings):
        return None
    least = {reason: all(test(at) for at in tilings) for reason, test in _limits(target)}
    return "every tile has " + next((reason for reason, broken in least.items() if broken), "too much of something")


def _periods(axis: Axis) -> int:
    return -(-axis.outputs // axis.down)


def _tiles(axis: Axis, counts: Sequence[int]) -> list[int]:
    """Whole periods of the taps that leave little idle."""
    tiles = sorted({axis.down * min(count, _periods(axis)) for count in counts})
    return [tile for tile in tiles if _covered(axis, tile) <= axis.outputs * MOST_PADDED] or tiles[:1]


def _tiles_h(rows: Axis) -> list[int]:
    return _tiles(rows, range(1, MOST_TILE_H + 1))


def _tiles_w(columns: Axis) -> list[int]:
    return _tiles(columns, [-(-_periods(columns) // parts) for parts in (1, 2, 3, 4, 7, 8)])


def _held_types(dtype: DType) -> list[DType]:
    return ["float32"] if dtype == "float32" else [dtype, "float32"]


def _covered(axis: Axis, part: int) -> int:
    return -(-axis.outputs // part) * part


def _tilings(work: Gather, dtype: DType) -> Iterator[Planes]:
    """Every tile, with the fewest planes that make a block."""
    tiles_h, tiles_w, held_types = _tiles_h(work.rows), _tiles_w(work.columns), _held_types(dtype)
    for tile_h, tile_w, each, held in itertools.product(tiles_h, tiles_w, THREAD_PLANES, held_types):
        for planes in PLANES:
            at = Planes(
                work=work, dtype=dtype, planes=planes, thread_planes=each, tile_h=tile_h, tile_w=tile_w, held=held
            )
            if planes % each == 0 and at.threads >= LEAST_THREADS:
                yield at
                break


@cache
def _preferred(work: Gather, workload: Workload, target: CudaTarget) -> dict[str, Value]:
    """The tile that keeps an SM least busy, in blocks of about four warps whose planes are copied in whole vectors and
    whose threads meet in no bank."""

    def cost(at: Planes) -> float:
        resident = blocks_at_a_time(at, target) * at.threads
        copied = resident * at.loads_under_way * at.source.copied_lanes * ITEMSIZE[at.dtype]
        in_all = work.channels * workload.batch * at.plane_threads / at.thread_planes
        starved = max(1.0, FEW_THREADS / resident) * max(1.0, FEW_BYTES / copied)
        starved *= max(1.0, FEW_THREADS * target.sms / in_all) ** 0.5
        return _cycles(at) * starved * (1.0 if at.layout.turns <= MOST_TURNS else TURNS_COST)

    def distance(at: Planes) -> tuple[bool, bool, int, bool, int]:
        crowded = at.shared_bytes > target.shared_bytes_per_sm // BLOCKS_PER_SM - 1024
        whole = min(at.source.copied_lanes, at.result.copied_lanes)
        met = at.layout.turns > MOST_TURNS
        return not _fits(at, target), met, -whole, crowded, abs(at.threads - PREFERRED_THREADS)

    def block_of(tile: Planes) -> Planes:
        return min((dataclasses.replace(tile, planes=planes) for planes in PLANES), key=distance)

    fitting = (at for at in _tilings(work, workload.dtype) if _fits(at, target))
    tiles = sorted(fitting, key=cost) or [next(_tilings(work, workload.dtype))]
    blocks = map(block_of, tiles)
    best = next((at for at in blocks if at.layout.turns <= MOST_TURNS), None) or block_of(tiles[0])
    return {knob: getattr(best, knob) for knob in ("planes", "thread_planes", "tile_h", "tile_w", "held")}


def blocks_at_a_time(at: Planes, target: CudaTarget) -> int:
    """Blocks on an SM by its threads, its shared memory, and the registers that a thread should need."""
    warps = -(-at.threads // WARP)
    by_shared = target.shared_bytes_per_sm // (at.shared_bytes + SYSTEM_SHARED_BYTES)
    # Each issue slot has its own registers, for whole warps.
    warps_of_a_slot = target.registers_per_sm // target.issue_slots // (WARP * -(-_registers(at) // 8) * 8)
    by_registers = warps_of_a_slot * target.issue_slots // warps
    return max(1, min(by_shared, by_registers, target.threads_per_sm // (warps * WARP), target.blocks_per_sm))


def _limits(target: CudaTarget) -> list[tuple[str, Callable[[Planes], bool]]]:
    """What a block may not be: (reason, test)."""

    def padded(at: Planes) -> bool:
        rows, columns = at.work.rows, at.work.columns
        computed = _covered(rows, at.tile_h) * _covered(columns, at.tile_w)
        return computed > MOST_PADDED * _covered(rows, rows.down) * _covered(columns, columns.down)

    def starved(at: Planes) -> bool:
        return _registers(at) > min(target.registers_per_thread, target.registers_per_sm // at.threads)

    shared_bytes = target.shared_bytes_per_block
    return [
        ("threads share planes unevenly", lambda at: at.planes % at.thread_planes != 0),
        (f"fewer than {LEAST_THREADS} threads", lambda at: at.threads < LEAST_THREADS),
        (f"more than {target.threads_per_block} threads", lambda at: at.threads > target.threads_per_block),
        (f"more than {MOST_PADDED}× the outputs wanted", padded),
        (f"more than {MOST_CODE} instructions unrolled", lambda at: _code(at) > MOST_CODE),
        ("more registers than there are", starved),
        (f"more than {shared_bytes} bytes of shared memory", lambda at: at.shared_bytes > shared_bytes),
    ]


def _rules(work: Gather, dtype: DType, target: CudaTarget) -> list[Rule]:
    def rule(reason: str, test: Callable[[Planes], bool]) -> Rule:
        return Rule(reason, lambda config: test(Planes.of(work, config, dtype)))

    return [rule(reason, test) for reason, test in _limits(target)]


def _fits(at: Planes, target: CudaTarget) -> bool:
    return not any(test(at) for _, test in _limits(target))


# -- what a thread does --------------------------------------------------------------------------------------------


@cache
def _products(at: Planes) -> tuple[int, int, int]:
    """(multiply-adds, elements read, reads) of a thread for one plane."""
    rows = live_reads(at.work.rows, at.tile_h, tiles=at.tiles_h)
    columns = live_reads(at.work.columns, at.tile_w, tiles=at.tiles_w)
    products = sum(map(len, rows.values())) * sum(map(len, columns.values()))
    lanes, pitch = at.source.lanes, at.work.columns.inputs
    reads = sum(len(whole_vectors([row * pitch + column for column in columns], lanes)) for row in rows)
    return products, len(rows) * len(columns), reads


@cache
def _code(at: Planes) -> int:
    """About how many instructions a thread has, none of them in a loop."""
    products, elements, reads = _products(at)
    converted = elements if at.held != "float32" else 0
    return at.thread_planes * (products + converted + reads + 2 * at.tile_h * at.tile_w + at.kernel_words)


@cache
def _registers(at: Planes) -> int:
    """About how many a thread needs: weights, two source rows, sums, and what it keeps while the others finish: its
    results, or what it has read, whichever is less."""
    _, elements, _ = _products(at)
    columns = live_reads(at.work.columns, at.tile_w, tiles=at.tiles_w)
    words = ITEMSIZE[at.held] / 4
    kept = at.thread_planes * min(int(at.tile_h * at.tile_w * words), elements)
    under_way = at.tile_w * -(-at.work.rows.taps // at.work.rows.up) if at.held != "float32" else 0
    return at.kernel_words + kept + under_way + 2 * len(columns) + OTHER_REGISTERS


def _cycles(at: Planes) -> float:
    """Cycles of an SM for an output: four warp instructions are issued in one, one turn of shared memory is taken."""
    products, elements, reads = _products(at)
    rows, columns, itemsize = at.work.rows, at.work.columns, ITEMSIZE[at.held]
    outputs = at.tile_h * at.tile_w
    writes = len(at.result_pieces(0))

    def turns(width: int, conflicts: float) -> float:
        return max(1.0, width * itemsize / 4) * conflicts

    source, result = at.source.turns, at.result.turns
    share = at.thread_planes / at.plane_threads  # planes a thread stands for
    copied = share * (at.source.elements + at.result.elements)
    converted = (elements if at.held != "float32" else 0) * at.thread_planes
    if at.held != at.dtype:
        converted += int(copied)
    elif at.held != "float32":
        converted += at.thread_planes * outputs // 2
    vectors = copied / at.source.copied_lanes * (1 + itemsize / ITEMSIZE[at.dtype])
    issued = at.thread_planes * (products + reads + writes + at.kernel_words) + converted + vectors + START
    taken = at.thread_planes * (
        reads * turns(at.source.lanes, source)
        + writes * turns(at.result.lanes, result) * outputs / max(1, writes * at.result.lanes)
        + at.kernel_words
    ) + copied * itemsize / 4 + copied * ITEMSIZE[at.dtype] / 128 * WARP / WARP  # fmt: skip
    made = share * rows.outputs * columns.outputs
    return (max(issued / 4, taken) + issued / 8 + taken / 4) / (WARP * made)
