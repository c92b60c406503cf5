"""What a timed call finds in the caches of a CPU: what the call before left there, or what a training step leaves.

In a training step the layer before has just written what a kernel reads, the result goes to memory that was last used
long ago, and the input that was saved for the weight gradient has left the cache. A kernel that is the fastest on warm
memory need not be the fastest there.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Literal, get_args

import torch

from dwconv.measure import memory
from dwconv.measure.timing import Call
from dwconv.target import last_cache_bytes
from dwconv.workload import Workload

Caches = Literal["warm", "training"]
"""``warm``: the same tensors again and again. ``training``: as a training step does."""
CACHES: tuple[Caches, ...] = get_args(Caches)
_TIMES_THE_CACHE = 2
_MOST_TENSORS = 512


class InTurn:
    """A call that is another one each time, and that holds on to the last results, so that the next ones go to other
    memory."""

    def __init__(self, calls: Sequence[Call], *, held: int) -> None:
        self._calls = tuple(calls)
        self._next = 0
        self._held: deque[object] = deque(maxlen=held)

    def __call__(self) -> None:
        self._held.append(self._calls[self._next]())
        self._next = (self._next + 1) % len(self._calls)


def inputs_in_turn(
    workload: Workload, inputs: tuple[torch.Tensor, ...], *, caches: Caches
) -> list[tuple[torch.Tensor, ...]]:
    """The inputs; where the pass reads one that was saved long ago, as many copies of it as drive it from the cache."""
    if caches == "warm" or workload.pass_ != "wgrad":
        return [inputs]
    saved, *others = inputs
    return [inputs, *((saved.clone(), *others) for _ in range(_count(saved.nbytes) - 1))]


def results_held(workload: Workload, *, caches: Caches) -> int:
    """How many results to hold on to. Weight gradients are small, and overwritten in every step."""
    if caches == "warm" or workload.pass_ == "wgrad":
        return 0
    return _count(math.prod(workload.shape_of(workload.results[0])) * 4)


def _count(tensor_bytes: int) -> int:
    """How many tensors of that size drive each other from the cache."""
    room = min(_TIMES_THE_CACHE * last_cache_bytes(), memory.available_bytes() // 8)
    return max(1, min(_MOST_TENSORS, math.ceil(room / tensor_bytes)))
