"""What it costs to change the number of threads from one operator to the next, measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from dwconv.measure.clock.timing import Call

_ROUNDS = 41
_ELEMENTS = 1 << 17
"""Enough for PyTorch to use its threads, little enough to take microseconds."""


def change_cost_us(
    *, cores: int, operator: Callable[[], object] | None = None, bounded: Callable[[Call], Call] = lambda call: call
) -> float:
    """Microseconds by which an operator takes longer if the one before ran with another number of threads: 1 and
    ``cores`` in turns, against the mean of each kept for a while. 0 with one core, and never less.

    Threads of the pool may be ended and started by a change; the caches are cold for those that join. ``bounded``: of a
    budget."""
    if cores < 2:
        return 0.0
    values = torch.ones(_ELEMENTS)
    result = torch.empty_like(values)
    call = bounded(operator or (lambda: torch.add(values, 1.0, out=result)))
    before = torch.get_num_threads()
    try:
        kept_us = [_kept_us(call, count) for count in (1, cores)]
        return max(0.0, statistics.mean(_in_turns_us(call, (1, cores))) - statistics.mean(kept_us))
    finally:
        torch.set_num_threads(before)


def _kept_us(call: Callable[[], object], threads: int) -> float:
    torch.set_num_threads(threads)
    return statistics.median([_us(call) for _ in range(_ROUNDS)])


def _in_turns_us(call: Callable[[], object], counts: tuple[int, int]) -> list[float]:
    taken: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(_ROUNDS):
        for count in counts:
            taken[count].append(_us(call, threads=count))
    return [statistics.median(us) for us in taken.values()]


def _us(call: Callable[[], object], *, threads: int | None = None) -> float:
    started = time.perf_counter()
    if threads is not None:
        torch.set_num_threads(threads)
    call()
    return (time.perf_counter() - started) * 1e6
