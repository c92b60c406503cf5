"""What it costs to hand over: from one thread to another, and from one number of threads to another. Measured once in
a process, on this machine; the strategies reckon with it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from queue import SimpleQueue

import torch

from dwconv.concurrency.workers import Worker

_ROUNDS = 5
_TIMES = 100
_ELEMENTS = 1 << 16
"""Large enough that PyTorch runs it on all threads, small enough that a new team of threads shows."""


@dataclass(frozen=True, kw_only=True)
class HandOver:
    """Both costs, in microseconds."""

    us: float
    """From the end of a task until one that waits for it begins on another worker."""
    change_us: float
    """By how much a task takes longer if its worker had another number of threads before."""


@cache
def measured(cores: int) -> HandOver:
    """The costs here, for counts up to ``cores``."""
    return HandOver(us=_between_threads_us(), change_us=_between_counts_us(cores) if cores > 1 else 0.0)


def _between_threads_us() -> float:
    """Half of a signal to a waiting thread and back."""
    there: SimpleQueue[bool] = SimpleQueue()
    back: SimpleQueue[bool] = SimpleQueue()

    def answer() -> None:
        while there.get():
            back.put(True)

    worker = Worker("dwconv-hand-over")
    worker.start(answer)
    try:

        def turn() -> None:
            there.put(True)
            back.get()

        return _median_us(turn) / 2
    finally:
        there.put(False)
        worker.end()


def _between_counts_us(cores: int) -> float:
    """What changing the count from call to call adds to a call."""
    usual = torch.get_num_threads()
    data = torch.zeros(_ELEMENTS)
    counts = (cores, 1)

    def steady() -> None:
        for count in counts:
            torch.set_num_threads(count)
            for _ in counts:
                torch.neg(data)

    def changing() -> None:
        for _ in counts:
            for count in counts:
                torch.set_num_threads(count)
                torch.neg(data)

    try:
        with torch.no_grad():
            # Both make four calls, two with each count; one changes the count twice, the other four times.
            return max(0.0, (_median_us(changing) - _median_us(steady)) / len(counts))
    finally:
        torch.set_num_threads(usual)


def _median_us(call: Callable[[], None]) -> float:
    call()
    rounds = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        for _ in range(_TIMES):
            call()
        rounds.append((time.perf_counter() - started) / _TIMES)
    return statistics.median(rounds) * 1e6
