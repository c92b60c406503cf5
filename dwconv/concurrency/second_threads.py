"""Second hardware threads: which processors share a core, how much two tasks there slow each other, and pinning.

core 0   processor 0   large tasks, PyTorch's threads
         processor 2   an extra slot: small tasks on one thread, pinned here
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from dwconv.concurrency.task_graph import ExtraSlots
from dwconv.errors import warn
from dwconv.system.cpu_facts import allowed_cores

NO_SLOTS = (
    "no second hardware threads to use here: S4 runs small tasks that use little memory on the cores that tasks bound "
    "by memory leave idle"
)
TOPOLOGY = Path("/sys/devices/system/cpu")


def sibling_pairs() -> list[tuple[int, int]]:
    """Pairs of processors that share a core, among those that this process may use; none if there are no second
    hardware threads, or the system does not list them."""
    allowed = allowed_cores()
    pairs: set[tuple[int, int]] = set()
    for listed in TOPOLOGY.glob("cpu[0-9]*/topology/thread_siblings_list"):
        try:
            shared = _numbers(listed.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        mine = [number for number in shared if allowed is None or number in allowed]
        if len(mine) > 1:
            pairs.add((mine[0], mine[1]))
    return sorted(pairs)


def idle_pairs(cores: int) -> list[tuple[int, int]]:
    """Those pairs whose second processor is idle while PyTorch uses ``cores`` threads. None if it has more threads
    than there are cores: they already use the second processors."""
    pairs = sibling_pairs()
    processors = len(allowed_cores() or ()) or os.cpu_count() or 1
    return pairs if 1 < cores <= processors - len(pairs) else []


def _numbers(listed: str) -> list[int]:
    """``0-1,4`` as numbers."""
    numbers: list[int] = []
    for part in listed.strip().split(","):
        low, _, high = part.partition("-")
        numbers += range(int(low), int(high or low) + 1)
    return numbers


# -- pinning -----------------------------------------------------------------------------------------------------------


def processor_of(worker: int, *, cores: int) -> int | None:
    """The second processor that this worker of a schedule for ``cores`` cores is pinned to; None for workers that are
    not extra slots, and where there are no second processors."""
    pairs = idle_pairs(cores) if worker >= cores else []
    return pairs[(worker - cores) % len(pairs)][1] if pairs else None


_refused = ""
"""Where a thread could not be kept, and why."""
_warned = False


def note_refusal(where: str, why: str) -> None:
    """The system keeps no thread at ``where``: ``warn_of_refusals`` says so."""
    global _refused
    _refused = _refused or f"{where}: {why}"


def warn_of_refusals() -> None:
    """Say once that a thread could not be kept on a processor. On the caller's thread: workers must not raise."""
    global _warned
    if _refused and not _warned:
        _warned = True
        warn(f"a thread cannot be kept on {_refused}; the system places it")


@contextmanager
def pinned(processor: int | None) -> Iterator[None]:
    """The calling thread runs on ``processor`` alone while the block runs. It stays where it is for None, and where
    the system does not permit it: the results are the same, and ``warn_of_refusals`` says so."""
    before = None
    if processor is not None:
        try:
            before = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {processor})  # of this thread alone
        except (AttributeError, OSError) as error:
            before = None
            note_refusal(f"processor {processor}", getattr(error, "strerror", None) or "the system cannot")
    try:
        yield
    finally:
        if before is not None:
            os.sched_setaffinity(0, before)


# -- how much two tasks on one core slow each other --------------------------------------------------------------------


_SIZE = 192
"""Rows of the matrices that are multiplied: some hundred microseconds, in the caches of one core."""
_RUN_S = 0.1


def measured_slots(pairs: list[tuple[int, int]]) -> ExtraSlots:
    """An extra slot for each pair, with the slowdown of equal work on both of the first one: of a task on the second
    processor, and of its neighbour. Without pairs there are no slots."""
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
        with pinned(processors[place]):
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
