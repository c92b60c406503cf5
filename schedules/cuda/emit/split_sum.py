"""Sums over the threads of a block, and over the blocks of a grid: always in the same order, so the same bits.

registers of          a block's threads             workspace, a part each         second kernel
each thread           halve until one is left       that blocks wrote              a thread for every result
┌─ m0 ─┬─ m1 ─┬─ m2 ─┬─ m3 ─┐    ┌─ m0 ─┬─ m1 ─┐    ┌─ part 0 ─┐
│ sums │ sums │ sums │ sums │ ─► │ sums │ sums │ ─► ├─ part 1 ─┤  ───────────────►  dw = part 0 + part 1 + …
└──────┴──────┴──▲───┴──▲───┘    └──────┴──▲───┘    └─ …      ─┘
                 shared memory ────────────┘
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

from dwconv.schedules.cuda.emit.words import Registers, barrier, blocks, shared, threads
from dwconv.schedules.cuda.gpu.cost import ADDING_LANES, SHARED_WORDS, adding_shares, first_half, halvings
from dwconv.schedules.emit import Expr, bind, ceil_div, int32, serial, size_of, store, when


def sum_over_threads(
    sums: Registers, *, mate: Expr, mates: int, others: int, slot: Callable[[Expr, int], Expr]
) -> None:
    """Afterwards the thread with ``mate`` = 0 has the sums over its ``mates`` threads; all of a block take part.

    ``others``: how many such groups of mates a block has. ``slot(m, width)`` is the place of a thread's word among
    those of all groups, where m < width takes the place of the thread's own number among its mates.
    """
    if mates == 1:
        return
    width = first_half(mates)
    places = width * others
    positions = list(itertools.product(*map(range, sums.sizes)))
    at_a_time = min(len(positions), max(1, SHARED_WORDS // places))
    passed = shared("passed", at_a_time * places)
    for halving in serial("halving", halvings(mates)):
        left = bind("left", tirx.shift_right(int32(mates - 1), int32(halving)) + 1)
        width_left = bind("width_left", tirx.shift_right(int32(mates - 1), int32(halving) + 1) + 1)
        for first in range(0, len(positions), at_a_time):
            turn = positions[first : first + at_a_time]
            with when(tirx.all(mate >= width_left, mate < left)):
                for number, position in enumerate(turn):
                    store(passed, sums[position], number * places + slot(mate - width_left, width))
            barrier()
            with when(mate + width_left < left):
                for number, position in enumerate(turn):
                    sums[position] = sums[position] + passed[number * places + slot(mate, width)]
            barrier()


def add_parts(parts: Any, totals: Sequence[Any], *, count: int, dtype: str) -> None:
    """A kernel of its own: total[i] = Σ parts[part · results + i] over ``count`` parts, where ``totals``, one after the
    other, are the results; all flat."""
    sizes = [size_of(total.shape[0]) for total in totals]
    results = sum(sizes)
    shares = adding_shares(count)
    for block in blocks("block", ceil_div(results, ADDING_LANES)):
        for share in threads("share", shares, axis="y"):
            for lane in threads("lane", ADDING_LANES):
                result = block * ADDING_LANES + lane
                added = Registers.zeros("added", 1)
                with when(result < results):
                    for turn in serial("turn", -(-count // shares)):
                        part = turn * shares + share
                        with when(True if count % shares == 0 else part < count):
                            added[0] = added[0] + parts[part * results + result]
                sum_over_threads(
                    added,
                    mate=share,
                    mates=shares,
                    others=ADDING_LANES,
                    slot=lambda mate, width, lane=lane: mate * ADDING_LANES + lane,
                )
                for number, total in enumerate(totals):
                    first = sum(sizes[:number])
                    after = [result >= first] if number else []
                    with when(tirx.all(share == 0, *after, result < first + sizes[number])):
                        store(total, added[0].astype(dtype), result - first)
