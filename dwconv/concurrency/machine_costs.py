"""What this machine costs a schedule, measured once: handing over, changing thread counts, second hardware threads."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import torch

from dwconv.concurrency.engine import Worker
from dwconv.concurrency.schedule import ExtraSlots, Machine
from dwconv.concurrency.task_timer import Budget
from dwconv.measure.clock.contention import allowed_cores
from dwconv.measure.clock.timing import Call

STREAMS = 2
"""Tasks of a GPU at a time, unless set in the options. To the strategies a stream is a core."""


_measured: dict[int, Machine] = {}


def this_machine(cores: int, *, budget: Budget | None = None) -> Machine:
    """This machine with that many threads, measured once in this process. Raises OutOfTime."""
    if cores not in _measured:
        bounded: Callable[[Call], Call] = budget.bounded if budget else lambda call: call
        machine = Machine(
            cores=cores, handover_us=handover_us(bounded), change_us=change_cost_us(cores=cores, bounded=bounded)
        )
        slots = measured_slots(sibling_pairs()) if cores > 1 else ExtraSlots()
        _measured[cores] = replace(machine, slots=slots)
    return _measured[cores]


def gpu() -> Machine:
    """A GPU with some streams, and one more for small tasks. What it costs to hand over is in the times of steps."""
    return Machine(cores=STREAMS, slots=ExtraSlots(count=1))


_HANDOVER_ROUNDS = 5
_HANDOVERS = 100


def handover_us(bounded: Callable[[Call], Call] = lambda call: call) -> float:
    """Microseconds from the end of a task until one that waits for it begins on another worker: half of a signal to a
    waiting thread and back. ``bounded``: of a budget."""
    there: SimpleQueue[bool] = SimpleQueue()
    back: SimpleQueue[bool] = SimpleQueue()

    def answer() -> None:
        while there.get():
            back.put(True)

    def there_and_back() -> None:
        there.put(True)
        back.get()

    ask = bounded(there_and_back)
    worker = Worker("dwconv-hand-over")
    worker.start(answer)
    rounds = []
    try:
        for _ in range(_HANDOVER_ROUNDS):
            started = time.perf_counter()
            for _ in range(_HANDOVERS):
                ask()
            rounds.append((time.perf_counter() - started) / _HANDOVERS)
    finally:
        there.put(False)
        worker.end()
    return statistics.median(rounds) / 2 * 1e6


_CHANGE_ROUNDS = 41
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
    return statistics.median([_us(call) for _ in range(_CHANGE_ROUNDS)])


def _in_turns_us(call: Callable[[], object], counts: tuple[int, int]) -> list[float]:
    taken: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(_CHANGE_ROUNDS):
        for count in counts:
            taken[count].append(_us(call, threads=count))
    return [statistics.median(us) for us in taken.values()]


def _us(call: Callable[[], object], *, threads: int | None = None) -> float:
    started = time.perf_counter()
    if threads is not None:
        torch.set_num_threads(threads)
    call()
    return (time.perf_counter() - started) * 1e6


# -- second hardware threads of the cores ------------------------------------------------------------------------------


_TOPOLOGY = Path("/sys/devices/system/cpu")
_SIZE = 192
"""Rows of the matrices that are multiplied: some hundred microseconds, in the caches of one core."""
_RUN_S = 0.1


def sibling_pairs(*, topology: Path = _TOPOLOGY) -> list[tuple[int, int]]:
    """Pairs of logical processors that share a core, among those that this process may use; none if there are no
    second hardware threads, or the system does not list them."""
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
