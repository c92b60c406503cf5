"""The space of whole planes in shared memory: which configurations there are, which fit, where to start. No TVM."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, DType, Workload
from dwconv.schedules.cuda.fprop_dgrad_nchw_plane.cut import PlanesCut
from dwconv.schedules.cuda.fprop_dgrad_nchw_plane.estimate import issued, plane_code, plane_registers
from dwconv.schedules.cuda.gpu import hardware
from dwconv.schedules.cuda.gpu.plane_layout import MOST_TURNS
from dwconv.schedules.cuda.gpu.plane_tiles import plane_limits, snug
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import ConfigSpace, Knob, Limit, Value, rules_of

PLANES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
THREAD_PLANES = (1, 2)
MOST_TILE_H = 16
THREADS = 128
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
    gather = Gather.of(workload)
    return ConfigSpace(
        name,
        Knob("planes", PLANES),
        *(Knob(knob, values) for knob, values in _tiles(gather, workload.dtype).items()),
        rules=rules_of(partial(PlanesCut.of, workload), _limits(gather, target)),
        preferred=lambda: _preferred(workload, target),
    )


def plane_misfit(workload: Workload, target: CudaTarget) -> str | None:
    gather, dtype = Gather.of(workload), workload.dtype
    if gather.multiplier > 1:
        return f"multiplier={gather.multiplier}: a plane of the result would need several of the source, or share one"
    if max(gather.columns.inputs, gather.columns.outputs) * ITEMSIZE[dtype] > MOST_ROW_BYTES:
        return f"rows of more than {MOST_ROW_BYTES} bytes need no shared memory to be read whole"
    tilings = list(_tilings(gather, dtype))
    if any(_fits(at, target) for at in tilings):
        return None
    least = {reason: all(test(at) for at in tilings) for reason, test in _limits(gather, target)}
    return "every tile has " + next((reason for reason, broken in least.items() if broken), "too much of something")


def _tiles(gather: Gather, dtype: DType) -> dict[str, Sequence[Value]]:
    """What a thread may have: whole periods of the taps that leave little idle."""
    (rows, down), (columns, across) = ((axis, -(-axis.outputs // axis.down)) for axis in (gather.rows, gather.columns))
    counts = {min(count, down) for count in range(1, MOST_TILE_H + 1)}
    return {
        "thread_planes": THREAD_PLANES,
        "tile_h": snug(rows, {rows.down * count for count in counts}),
        "tile_w": snug(columns, {columns.down * -(-across // parts) for parts in (1, 2, 3, 4, 7, 8)}),
        "held": ["float32"] if dtype == "float32" else [dtype, "float32"],
    }


def _tilings(gather: Gather, dtype: DType) -> Iterator[PlanesCut]:
    """Every tile, with the fewest planes that make a block."""
    knobs, names = _tiles(gather, dtype), ("tile_h", "tile_w", "thread_planes", "held")
    for values in itertools.product(*(knobs[name] for name in names)):
        tile: dict[str, Any] = dict(zip(names, values, strict=True))
        for planes in PLANES:
            at = PlanesCut(gather=gather, dtype=dtype, planes=planes, **tile)
            if planes % at.thread_planes == 0 and at.threads >= hardware.LEAST_THREADS:
                yield at
                break


@cache
def _preferred(workload: Workload, target: CudaTarget) -> dict[str, Value]:
    """The tile that keeps an SM least busy, in blocks of about four warps whose planes are copied in whole vectors and
    whose threads meet in no bank."""

    gather = Gather.of(workload)

    def cost(at: PlanesCut) -> float:
        resident = hardware.blocks_at_a_time(at, plane_registers(at), target) * at.threads
        copied = resident * at.loads_under_way * at.source.copied_lanes * ITEMSIZE[at.dtype]
        in_all = gather.channels * workload.batch * at.tiling.plane_threads / at.thread_planes
        starved = max(1.0, FEW_THREADS / resident) * max(1.0, FEW_BYTES / copied)
        starved *= max(1.0, FEW_THREADS * target.sms / in_all) ** 0.5
        return _cycles(at) * starved * (1.0 if at.layout.turns <= MOST_TURNS else TURNS_COST)

    def distance(at: PlanesCut) -> tuple[bool, bool, int, bool, int]:
        crowded = at.shared_bytes > target.shared_bytes_per_sm // BLOCKS_PER_SM - hardware.SYSTEM_SHARED_BYTES
        whole = min(at.source.copied_lanes, at.result.copied_lanes)
        met = at.layout.turns > MOST_TURNS
        return not _fits(at, target), met, -whole, crowded, abs(at.threads - THREADS)

    def block_of(tile: PlanesCut) -> PlanesCut:
        return min((dataclasses.replace(tile, planes=planes) for planes in PLANES), key=distance)

    fitting = (at for at in _tilings(gather, workload.dtype) if _fits(at, target))
    tiles = sorted(fitting, key=cost) or [next(_tilings(gather, workload.dtype))]
    blocks = map(block_of, tiles)
    best = next((at for at in blocks if at.layout.turns <= MOST_TURNS), None) or block_of(tiles[0])
    return {knob: getattr(best, knob) for knob in ("planes", "thread_planes", "tile_h", "tile_w", "held")}


def _limits(gather: Gather, target: CudaTarget) -> list[Limit]:
    return [
        ("threads share planes unevenly", lambda cut: cut.planes % cut.thread_planes != 0),
        *plane_limits(
            gather,
            target,
            threads=lambda cut: cut.threads,
            tiles=lambda cut: (cut.tile_h, cut.tile_w),
            code=plane_code,
            most_code=hardware.RESIDENT_PLANES_CODE,
            registers=plane_registers,
        ),
        hardware.limit_of_shared(target),
    ]


def _fits(at: PlanesCut, target: CudaTarget) -> bool:
    return not any(test(at) for _, test in _limits(at.gather, target))


def _cycles(at: PlanesCut) -> float:
    """Cycles of an SM for an output: four warp instructions are issued in one, one turn of shared memory is taken."""
    thread = issued(at)
    taken = thread.bank_turns + thread.lines
    made = at.thread_planes / at.tiling.plane_threads * at.gather.rows.outputs * at.gather.columns.outputs
    return (max(thread.instructions / 4, taken) + thread.instructions / 8 + taken / 4) / (hardware.WARP * made)
