"""Threads: how many of them PyTorch, and CPU kernels with it, use for a while.

Kernels run on all. Fills and comparisons of tensors of the usual size run on one: builds use the other cores meanwhile,
and the wait for a free core takes longer than one thread.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

_SMALL = 1 << 23
"""Elements that one thread fills or compares in milliseconds."""


def to_handle(elements: int) -> int:
    """The number of threads for work around a kernel with that many elements in all its tensors."""
    return 1 if elements < _SMALL else torch.get_num_threads()


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Set the number of PyTorch's threads, which CPU kernels run on."""
    usual = torch.get_num_threads()
    if count == usual:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


@contextmanager
def kept_on(processors: Collection[int]) -> Iterator[None]:
    """All threads of this process run on ``processors``, those of OpenMP's teams too. Afterwards each may run where it
    could before, and those that were started meanwhile where the caller may. Raises OSError where the system does not
    permit it."""
    mine, before = os.sched_getaffinity(0), dict[int, set[int]]()
    try:
        for thread in _threads():
            with suppress(ProcessLookupError):  # it has ended
                before[thread] = os.sched_getaffinity(thread)
                os.sched_setaffinity(thread, processors)
        yield
    finally:
        for thread in _threads():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(thread, before.get(thread, mine))


def _threads() -> list[int]:
    """Of this process, as the system numbers them."""
    return [int(folder.name) for folder in Path("/proc/self/task").iterdir()]
