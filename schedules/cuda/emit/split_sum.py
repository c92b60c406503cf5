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
from collections.abc import Callable, Iterator, Sequence
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


def sums_of_parts(
    name: str, terms: Callable[[Expr, Expr], Sequence[Expr]], *, parts: int, sums: int, results: Expr, lanes: int,
    shares: int, is_whole: bool,
) -> Iterator[tuple[Expr, Expr, Expr, Registers]]:  # fmt: skip
    """A kernel of its own: (the number of a result, whether there is one, whether the thread has the sums of its
    ``terms`` in all parts, these). ``terms`` are of (part, result); ``shares`` threads share the parts of each of
    ``lanes`` neighbouring results. ``is_whole``: whether blocks of so many are known to be all results."""
    for block in blocks("block", ceil_div(results, lanes)):
        for share in threads("share", shares, axis="y"):
            for lane in threads("lane", lanes):
                result = block * lanes + lane
                exists = True if is_whole else result < results
                added = Registers.zeros(name, sums)
                with when(exists):
                    for turn in serial("turn", -(-parts // shares)):
                        part = turn * shares + share
                        with when(True if parts % shares == 0 else part < parts):
                            for number, term in enumerate(terms(part, result)):
                                added[number] = added[number] + term

                def slot(mate: Expr, width: int, lane: Expr = lane) -> Expr:
                    return mate * lanes + lane

                sum_over_threads(added, mate=share, mates=shares, others=lanes, slot=slot)
                yield result, exists, share == 0, added


def add_parts(parts: Any, totals: Sequence[Any], *, count: int, dtype: str) -> None:
    """A kernel of its own: total[i] = Σ parts[part · results + i] over ``count`` parts, where ``totals``, one after the
    other, are the results; all flat."""
    sizes = [size_of(total.shape[0]) for total in totals]
    results = sum(sizes)
    for result, _, is_first, added in sums_of_parts(
        "added", lambda part, result: [parts[part * results + result]], parts=count, sums=1, results=results,
        lanes=ADDING_LANES, shares=adding_shares(count), is_whole=False,
    ):  # fmt: skip
        for number, total in enumerate(totals):
            first = sum(sizes[:number])
            after = [result >= first] if number else []
            with when(tirx.all(is_first, *after, result < first + sizes[number])):
                store(total, added[0].astype(dtype), result - first)
