"""What this machine costs a schedule, measured once: handing over, changing thread counts, second hardware threads."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from queue import SimpleQueue

import torch

from dwconv.concurrency import compiled_graph
from dwconv.concurrency.engine import Worker
from dwconv.concurrency.second_threads import idle_pairs, measured_slots
from dwconv.concurrency.task_graph import ExtraSlots, Machine
from dwconv.concurrency.task_timer import TimeLeft
from dwconv.measure.clock.timing import Call

GPU = Machine(cores=2, slots=ExtraSlots(count=1))
"""Two streams, and one more for small tasks. To the strategies a stream is a core. What it costs to hand over is in the
times of steps."""

_measured: dict[int, Machine] = {}


def this_machine(cores: int, *, budget: TimeLeft | None = None) -> Machine:
    """This machine with that many threads, measured once in this process. Raises OutOfTime."""
    if cores not in _measured:
        bounded: Callable[[Call], Call] = budget.bounded if budget else lambda call: call
        _measured[cores] = Machine(
            cores=cores, handover_us=handover_us(bounded), change_us=change_cost_us(cores=cores, bounded=bounded),
            slots=measured_slots(idle_pairs(cores)),
        )  # fmt: skip
    return _measured[cores]


_HANDOVER_ROUNDS = 5
_HANDOVERS = 100


def handover_us(bounded: Callable[[Call], Call] = lambda call: call) -> float:
    """Microseconds from the end of a task until one that waits for it begins on another worker, of the engine that runs
    here. ``bounded``: of a budget."""
    found_us = compiled_graph.handover_us(bounded)
    return python_handover_us(bounded) if found_us is None else found_us


def python_handover_us(bounded: Callable[[Call], Call] = lambda call: call) -> float:
    """A hand-over between workers in Python, in microseconds: half of a signal to a waiting thread and back."""
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
        kept_us = statistics.mean(_in_turns_us(call, (count,)) for count in (1, cores))
        return max(0.0, _in_turns_us(call, (1, cores)) - kept_us)
    finally:
        torch.set_num_threads(before)


def _in_turns_us(call: Callable[[], object], counts: tuple[int, ...]) -> float:
    """The mean over the counts of the median time of a call."""
    taken: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(_CHANGE_ROUNDS):
        for count in counts:
            started = time.perf_counter()
            torch.set_num_threads(count)
            call()
            taken[count].append((time.perf_counter() - started) * 1e6)
    return statistics.mean(map(statistics.median, taken.values()))
