"""Unchanged: what a step may change in passing, put back."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


@contextmanager
def unchanged(model: nn.Module, inputs: Iterable[Tensor]) -> Iterator[None]:
    """At the end, also after an error, ``model`` and ``inputs`` are what they were: parameters, ``grad``, buffers, the
    attributes of all modules, and the states of the random number generators. No gradient is there meanwhile.

    A model may change any of these in its forward pass: statistics, counters, caches, hooks, weights that are averaged.
    """
    modules = list(model.modules())
    attributes = [_Attributes(module) for module in modules]
    held = [value for module in modules for value in vars(module).values() if isinstance(value, Tensor)]
    tensors = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers(), *held, *inputs)}.values()
    contents = [(tensor, tensor.detach().clone()) for tensor in tensors if _can_be_written(tensor)]
    gradients = [(parameter, parameter.requires_grad, parameter.grad) for parameter in model.parameters()]
    python_state, numpy_state = random.getstate(), np.random.get_state()
    gpus = {tensor.device.index for tensor in tensors if tensor.device.type == "cuda"}
    cache_was_enabled = torch.is_autocast_cache_enabled()
    # The cache would keep weights for the caller that were lowered here, perhaps without a history.
    torch.set_autocast_cache_enabled(False)
    try:
        with torch.random.fork_rng(devices=sorted(gpus)):
            for parameter, _, _ in gradients:
                parameter.grad = None
            yield
    finally:
        torch.set_autocast_cache_enabled(cache_was_enabled)
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        for each in attributes:
            each.restore()
        for tensor, content in contents:
            tensor.data.copy_(content)  # `data`, so that a graph that was recorded before remains valid
        for parameter, requires_grad, gradient in gradients:
            parameter.requires_grad_(requires_grad)
            parameter.grad = gradient


class _Attributes:
    """The attributes of a module, and what their containers hold: parameters, buffers, hooks, modules, and its own."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._values = dict(vars(module))
        self._held = [(value, value.copy()) for value in self._values.values() if isinstance(value, (dict, list, set))]

    def restore(self) -> None:
        vars(self._module).clear()
        vars(self._module).update(self._values)
        container: Any
        for container, held in self._held:
            container.clear()
            container.extend(held) if isinstance(container, list) else container.update(held)


def _can_be_written(tensor: Tensor) -> bool:
    """False for a tensor that lies several times over the same memory, which nothing writes to."""
    if tensor.layout is not torch.strided:
        return True
    return all(stride or size == 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
