"""Threads: how many of them PyTorch, and CPU kernels with it, use for a while.

Kernels run on all. Fills and comparisons of tensors of the usual size run on one: builds use the other cores meanwhile,
and the wait for a free core takes longer than one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
