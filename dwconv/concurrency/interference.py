"""Interference: how much two tasks side by side slow each other, by what they are bound by: measured once a machine.

Two tasks that only move memory gain little beside each other: the bandwidth is the machine's, not the core's.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import torch

from dwconv import settings
from dwconv.concurrency.operator_groups import bound_by_memory
from dwconv.concurrency.second_threads import pinned
from dwconv.concurrency.task_graph import Task
from dwconv.errors import NotKept
from dwconv.measure.clock.contention import load, others
from dwconv.problems.target import cpu_target
from dwconv.records.record import CONTENDED
from dwconv.system import private_files
from dwconv.system.cpu_facts import cores_of_this_process, inner_cache_bytes
from dwconv.system.threads import on_threads

COMPUTES, MOVES = KINDS = range(2)
"""Kinds of tasks: bound by arithmetic, and by memory."""
_SIZE = 128
"""Rows of the matrices that are multiplied: they stay in the caches of a core."""
_ELEMENTS = 1 << 22
"""Of the tensors that are copied: more than the caches of a core hold."""
_RUN_S, _TIMES = 0.02, 3


def kind_of_task(task: Task) -> int:
    """``MOVES`` if its bytes take longer than its arithmetic, and are more than the caches of a core hold."""
    is_large = task.bytes > sum(inner_cache_bytes())
    return MOVES if is_large and bound_by_memory(flops=task.flops, bytes=task.bytes) else COMPUTES


_measured: list[list[float]] | None = None
_contended_s = -math.inf
"""When a measurement was disturbed."""
_AGAIN_S = 60.0
now_s: Callable[[], float] = time.monotonic


def slowdowns() -> list[list[float]]:
    """By kind of a task, and kind of a neighbour on another core: how many times as long the task takes; never less
    than 1. Where other work disturbs the measurement, tasks count as undisturbed, and after a minute it is measured
    again."""
    global _measured, _contended_s
    if _measured is None:
        _measured = _kept()
    if _measured is None and now_s() - _contended_s > _AGAIN_S:
        before = load()
        found = _slowdowns()
        if others(before, load()) > CONTENDED:
            _contended_s = now_s()
        else:
            _measured = found
            _keep(found)
    return _measured or no_slowdowns()


# -- on disk -----------------------------------------------------------------------------------------------------------

_Slowdown = Annotated[float, msgspec.Meta(ge=1, le=1000)]
_Of = Annotated[list[_Slowdown], msgspec.Meta(min_length=len(KINDS), max_length=len(KINDS))]
_decoder = msgspec.json.Decoder(Annotated[list[_Of], msgspec.Meta(min_length=len(KINDS), max_length=len(KINDS))])


def _path() -> Path:
    cores = cores_of_this_process()
    return settings.cache_folder() / "limits" / f"interference-{cpu_target(threads=len(cores)).device}.json"


def _kept() -> list[list[float]] | None:
    """None if there is no file, or not a whole one."""
    try:
        return _decoder.decode(private_files.read(_path()) or b"")
    except msgspec.MsgspecError:
        return None


def _keep(found: list[list[float]]) -> None:
    try:
        private_files.write(_path(), msgspec.json.encode(found), durable=True)
    except NotKept as error:
        private_files.tell_not_kept(error)


def _slowdowns() -> list[list[float]]:
    work = {COMPUTES: _multiplying, MOVES: _copying}
    alone = {kind: _rates([work[kind]])[0] for kind in KINDS}
    found = [[1.0 for _ in KINDS] for _ in KINDS]
    for kind in KINDS:
        for other in KINDS[kind:]:
            mine, theirs = _rates([work[kind], work[other]])
            found[kind][other] = max(1.0, alone[kind] / mine)
            found[other][kind] = max(found[other][kind], 1.0, alone[other] / theirs)
    return found


def no_slowdowns() -> list[list[float]]:
    """As if tasks did not disturb each other."""
    return [[1.0 for _ in KINDS] for _ in KINDS]


def _multiplying() -> Callable[[], object]:
    matrix = torch.ones(_SIZE, _SIZE)
    result = matrix @ matrix
    return lambda: torch.mm(matrix, matrix, out=result)


def _copying() -> Callable[[], object]:
    source, result = torch.ones(_ELEMENTS), torch.ones(_ELEMENTS)
    return lambda: result.copy_(source)


def _rates(works: list[Callable[[], Callable[[], object]]]) -> list[float]:
    """How often each is done in a second, all at once, each on a thread: the most of some times, since other work makes
    it less."""
    return [max(rates) for rates in zip(*(_once(works) for _ in range(_TIMES)), strict=True)]


def _once(works: list[Callable[[], Callable[[], object]]]) -> list[float]:
    begin = threading.Barrier(len(works))
    cores = cores_of_this_process()
    rates = [0.0] * len(works)

    def repeat(place: int) -> None:
        with pinned(cores[place % len(cores)]), on_threads(1):
            call = works[place]()
            call()
            begin.wait()
            runs, started = 0, time.perf_counter()
            while time.perf_counter() - started < _RUN_S:
                call()
                runs += 1
            rates[place] = runs / (time.perf_counter() - started)

    threads = [threading.Thread(target=repeat, args=(place,)) for place in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return rates
