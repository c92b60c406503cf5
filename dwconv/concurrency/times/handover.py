"""What it costs to hand over from one worker to another, measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from queue import SimpleQueue

from dwconv.concurrency.running.workers import Worker
from dwconv.measure.clock.timing import Call

_ROUNDS = 5
_TIMES = 100


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
        for _ in range(_ROUNDS):
            started = time.perf_counter()
            for _ in range(_TIMES):
                ask()
            rounds.append((time.perf_counter() - started) / _TIMES)
    finally:
        there.put(False)
        worker.end()
    return statistics.median(rounds) / 2 * 1e6
