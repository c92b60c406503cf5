"""The caches as a timed call finds them: as the call before left them, as a training step leaves them, or empty.

In a training step the layer before has just written what a kernel reads, the result goes to memory that was last used
long ago, and the input that was saved for the weight gradient has left the cache. A kernel that is the fastest on warm
memory need not be the fastest there.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch

from dwconv.problems.target import Target
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.system.memory import free_bytes

Caches = Literal["warm", "training", "cold"]
"""``warm``: the same tensors again and again. ``training``: as a training step does. ``cold``: always others."""
CACHES: tuple[Caches, ...] = get_args(Caches)
TIMES_THE_CACHE = 2
"""Copies of the tensors fill so many times the last cache."""
MOST_TENSORS = 512
"""But there are no more copies of each."""


def inputs_in_turn(
    workload: Workload, inputs: tuple[torch.Tensor, ...], *, caches: Caches, target: Target
) -> list[tuple[torch.Tensor, ...]]:
    """The inputs; and as many copies as drive each other from the last cache: of all of them, or of one that a pass
    reads long after it was saved."""
    if caches == "cold":
        count = _count(sum(tensor.nbytes for tensor in inputs), target)
        return [inputs, *(tuple(tensor.clone() for tensor in inputs) for _ in range(count - 1))]
    if caches == "warm" or workload.pass_ != "wgrad":
        return [inputs]
    saved, *others = inputs
    return [inputs, *((saved.clone(), *others) for _ in range(_count(saved.nbytes, target) - 1))]


def results_held(workload: Workload, *, caches: Caches, target: Target) -> int:
    """How many results to hold on to. Weight gradients are small, and overwritten in every step."""
    if caches == "warm" or workload.pass_ == "wgrad":
        return 0
    result_bytes = math.prod(workload.shape_of(workload.results[0])) * ITEMSIZE[workload.dtype]
    return _count(result_bytes, target)


def _count(tensor_bytes: int, target: Target) -> int:
    """How many tensors of that size drive each other from the last cache."""
    largest_bytes = target.cache_bytes + target.others_cache_bytes
    room = min(TIMES_THE_CACHE * largest_bytes, free_bytes(target.kind) // 8)
    return max(1, min(MOST_TENSORS, math.ceil(room / tensor_bytes)))
