"""Second hardware threads of the cores: which there are, and how much two tasks on one core slow each other down."""

from __future__ import annotations

import os
import statistics
import threading
import time
from pathlib import Path

import torch

from dwconv.concurrency.scheduling.machine import ExtraSlots
from dwconv.measure.clock.contention import allowed_cores

_TOPOLOGY = Path("/sys/devices/system/cpu")
_SIZE = 192
"""Rows of the matrices that are multiplied: some hundred microseconds, in the caches of one core."""
_RUN_S = 0.1


def sibling_pairs(*, topology: Path = _TOPOLOGY) -> list[tuple[int, int]]:
    """Pairs of logical processors that share a core, among those that this process may use; none if there are no
    second hardware threads, or the system does not say."""
    allowed = allowed_cores()
    pairs: set[tuple[int, int]] = set()
    for listed in topology.glob("cpu[0-9]*/topology/thread_siblings_list"):
        try:
            shared = _numbers(listed.read_text())
        except (OSError, ValueError):
            continue
        mine = [number for number in shared if allowed is None or number in allowed]
        if len(mine) > 1:
            pairs.add((mine[0], mine[1]))
    return sorted(pairs)


def measured_slots(pairs: list[tuple[int, int]]) -> ExtraSlots:
    """An extra slot for each pair, with the slowdown of equal work on both of the first one: of a task on the second
    thread, and of its neighbour. Without pairs there are no slots."""
    if not pairs:
        return ExtraSlots()
    first, second = pairs[0]
    alone = _runs_per_second([first])[0]
    neighbour, beside = _runs_per_second([first, second])
    return ExtraSlots(
        count=len(pairs), slowdown=max(1.0, alone / beside), neighbour_slowdown=max(1.0, alone / neighbour)
    )


def _runs_per_second(processors: list[int]) -> list[float]:
    """How often the work is done on each, all at once: the median of three times."""
    return [statistics.median(rates) for rates in zip(*(_once(processors) for _ in range(3)), strict=True)]


def _once(processors: list[int]) -> list[float]:
    begin = threading.Barrier(len(processors))
    rates = [0.0] * len(processors)

    def work(place: int) -> None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {processors[place]})  # of this thread alone
        torch.set_num_threads(1)  # of this thread alone
        matrix = torch.ones(_SIZE, _SIZE)
        result = matrix @ matrix
        begin.wait()
        runs, started = 0, time.perf_counter()
        while time.perf_counter() - started < _RUN_S:
            torch.mm(matrix, matrix, out=result)
            runs += 1
        rates[place] = runs / (time.perf_counter() - started)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(processors))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return rates


def _numbers(listed: str) -> list[int]:
    """``0-1,4`` as numbers."""
    numbers: list[int] = []
    for part in listed.strip().split(","):
        low, _, high = part.partition("-")
        numbers += range(int(low), int(high or low) + 1)
    return numbers
