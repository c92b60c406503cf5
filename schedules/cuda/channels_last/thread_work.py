"""The work of a thread of fprop or dgrad, NHWC: registers, code, instructions, estimated in plain integers.

Good enough to leave out what cannot run and to choose where a search starts; compiled machine code decides afterwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from dwconv.schedules.cuda.channels_last.cut import Cut, ImageCut
from dwconv.schedules.taps import source_loops

ADDRESS_REGISTERS = 16
"""For addresses, counters and loads ahead of their use; in a loop over rows twice as many."""
GUARD_CODE = 5
START_CODE = 50
"""Instructions until a thread knows its place."""
COPY_CODE = 6
"""Instructions of a copy to shared memory; about as many for a weight."""


def registers_of(cut: Cut) -> int:
    """Registers of a thread."""
    columns = len(cut.columns.reads)
    words = columns * cut.source_lanes
    packed = words // 2 if cut.itemsize == 2 else 0
    held = cut.strip_kernels * cut.plane_taps if cut.weights == "registers" else cut.weight_lanes
    held += cut.channels.tile if cut.gather.bias else 0
    others = ADDRESS_REGISTERS * (1 if cut.unroll == "taps" else 2)
    return rows_alive(cut) * cut.columns.tile * cut.channels.tile + words + packed + held + others


def rows_alive(cut: Cut) -> int:
    """Rows of sums that exist at the same time: straight code writes each as soon as it is complete."""
    if cut.unroll != "taps" or not cut.goes_once:
        return cut.rows_summed
    return _rows_alive(cut.rows)


@cache
def _rows_alive(rows: ImageCut) -> int:
    at_row: dict[int, list[int]] = {}
    for at, pairs in rows.reads.items():
        for row, _ in pairs:
            at_row.setdefault(row, []).append(at)
    spans = [(min(ats), max(ats)) for ats in at_row.values()]
    return max((sum(first <= at <= last for first, last in spans) for at in rows.reads), default=1)


def code_size(cut: Cut) -> int:
    """Multiply-adds and loads in the code. A load that may be padding is several instructions."""
    in_loop = cut.unroll == "kw"
    multiplied = cut.rows.tile if in_loop else cut.rows.products
    loaded = len(cut.columns.reads) * (1 if in_loop else len(cut.rows.reads))
    guarded = sum(map(cut.columns.may_be_padding, cut.columns.reads)) if in_loop else _guarded(cut)
    return multiplied * cut.columns.products * cut.weight_lanes + loaded + GUARD_CODE * guarded


def _guarded(cut: Cut) -> int:
    """Vectors of the source in straight code that may be padding."""
    rows, columns = (sum(map(axis.may_be_padding, axis.reads)) for axis in (cut.rows, cut.columns))
    return rows * len(cut.columns.reads) + (len(cut.rows.reads) - rows) * columns


# -- instructions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ThreadWork:
    """Instructions of a thread."""

    fma: float
    loads: float
    """Loads of the source, from global memory or from a patch in shared memory."""
    weight_loads: float
    stores: float
    others: float
    code: int
    """In straight code."""

    @property
    def instructions(self) -> float:
        return self.fma + self.loads + self.weight_loads + self.stores + self.others


def thread_work(cut: Cut) -> ThreadWork:
    rows, pairs = _row_turns(cut)
    halves = cut.itemsize == 2
    strips = cut.columns.vthreads
    columns, lanes = len(cut.columns.reads), cut.source_lanes
    vector = 1 if cut.fan_turns > 1 else cut.vector(lanes, itemsize=cut.itemsize)
    met = cut.gather.depths.live_pairs / cut.gather.depths.outputs  # taps along the depth that meet a plane
    turns = cut.fan_turns * strips * met
    results = cut.rows.tile * cut.columns.tile
    stored = cut.channels.tile // cut.vector(cut.channels.tile, itemsize=cut.itemsize)
    converted = turns * rows * columns * lanes + strips * results * cut.channels.tile / 2 if halves else 0.0
    weight_loads, weight_others = _weight_work(cut, turns=turns, pairs=pairs)
    copies = COPY_CODE * cut.patch.turns_in_all if cut.stage == "shared" else 0
    return ThreadWork(
        fma=turns * pairs * cut.columns.products * cut.weight_lanes,
        loads=turns * rows * columns * lanes / vector,
        weight_loads=weight_loads,
        stores=strips * results * stored,
        others=START_CODE + converted + weight_others + turns * _overhead(cut, rows=rows, pairs=pairs) + copies,
        code=code_size(cut),
    )


def _weight_work(cut: Cut, *, turns: float, pairs: float) -> tuple[float, float]:
    """(loads of weights, other instructions for them), where a strip is gone through ``turns`` times."""
    kernels = cut.weight_lanes
    if cut.weights == "registers":
        runs, elements = cut.weight_runs
        vectors = runs * elements / cut.vector(elements, itemsize=cut.itemsize)
        times = 1 if cut.gather.depths.taps == 1 else turns
        return times * vectors, times * runs * elements * (cut.itemsize == 2)
    uses = turns * pairs * cut.columns.axis.taps
    if cut.weights == "global":
        return uses * kernels, uses * kernels
    vector = 1 if cut.fan_in < cut.gather.fan_in else cut.vector(kernels, itemsize=4)
    return uses * kernels / vector, COPY_CODE * cut.taps * cut.block_kernels / cut.threads


def _overhead(cut: Cut, *, rows: float, pairs: float) -> float:
    """Instructions of a strip that ask whether an input is inside, and whether a row meets a tap."""
    direct = cut.stage == "none"
    if cut.unroll == "taps":
        zeros = math.ceil(cut.source_lanes * cut.itemsize / 4)
        return _guarded(cut) * (1 + zeros) if direct else 0
    unsure = sum(map(cut.columns.may_be_padding, cut.columns.reads)) if direct else 0
    meetings = cut.rows.tile if cut.rows_together and cut.rows.tile > 1 else 0
    return rows * (10 + 2 * unsure + 3 * meetings)


def _row_turns(cut: Cut) -> tuple[float, float]:
    """(source rows that a strip goes through, pairs of such a row and a row of the strip); the mean over strips, since
    loops over rows leave out those that are padding."""
    if cut.unroll == "taps":
        return len(cut.rows.reads), cut.rows.products
    return _rows_in_loops(cut.rows, cut.rows_together)


@cache
def _rows_in_loops(rows: ImageCut, together: bool) -> tuple[float, float]:
    axis = rows.axis
    turns = pairs = 0
    reads = axis.reads(rows.tile)
    for loop in source_loops(axis, rows.tile, together=together):
        for strip in range(rows.strips):
            for turn in range(loop.count):
                at = loop.at + turn * loop.delta
                if 0 <= strip * rows.step + at < axis.inputs:
                    turns += 1
                    met = {row for row, _, _ in loop.meetings}
                    pairs += sum(row in met for row, _ in reads.get(at, ()))
    return turns / rows.strips, pairs / rows.strips
