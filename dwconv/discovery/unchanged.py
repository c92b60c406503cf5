"""Unchanged: what a step may change in passing, put back."""

from __future__ import annotations

import gc
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

Kind = TypeVar("Kind")
MOST_OBJECTS = 100_000
"""The limit of a search, nearest objects first: a model may refer to its trainer, and that to all images."""
_NOTHING_IN_IT = (str, bytes, int, float, complex, type(None), type, ModuleType, CodeType, Tensor, np.ndarray)


def held(holders: object, kinds: type[Kind] | tuple[type[Kind], ...], *, but: type = ModuleType) -> list[Kind]:
    """The objects of ``kinds`` in what holds them, each once. What is in one of ``but`` does not count."""
    found, seen, waiting = [], {id(holders)}, deque([holders])
    ends: tuple[type, ...] = (*_NOTHING_IN_IT, but)
    while waiting and len(seen) < MOST_OBJECTS:
        each: Any = waiting.popleft()
        if issubclass(type(each), kinds):
            found.append(each)
        elif not issubclass(type(each), ends):  # by its type: isinstance would call a proxy
            for inside in _inside(each):
                if id(inside) not in seen:
                    seen.add(id(inside))
                    waiting.append(inside)
    return found


def _inside(holder: Any) -> list[Any]:
    """What it refers to; of a function not the module that it is in."""
    if isinstance(holder, FunctionType):
        return [holder.__closure__, holder.__defaults__, holder.__kwdefaults__, holder.__dict__]
    return gc.get_referents(holder)


@contextmanager
def unchanged(model: nn.Module, inputs: Iterable[Tensor]) -> Iterator[None]:
    """At the end, also after an error, ``model`` and ``inputs`` are what they were: parameters, ``grad``, buffers, the
    attributes of all modules, and the states of the random number generators, also of those that the model
    holds. No gradient is there meanwhile.

    A model may change any of these in its forward pass: statistics, counters, caches, hooks, weights that are averaged.
    """
    modules = list(model.modules())
    attributes = [_Attributes(module) for module in modules]
    own = [value for module in modules for value in vars(module).values() if isinstance(value, Tensor)]
    tensors = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers(), *own, *inputs)}.values()
    contents = [(tensor, tensor.detach().clone()) for tensor in tensors if _can_be_written(tensor)]
    gradients = [(parameter, parameter.requires_grad, parameter.grad) for parameter in model.parameters()]
    python_state, numpy_state = random.getstate(), np.random.get_state()
    rewind = [_rewind(generator) for generator in held(modules, _GENERATORS)]
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
        for each in rewind:
            each()
        for module in attributes:
            module.restore()
        for tensor, content in contents:
            tensor.data.copy_(content)  # `data`, so that a graph that was recorded before remains valid
        for parameter, requires_grad, gradient in gradients:
            parameter.requires_grad = requires_grad
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
        for container, before in self._held:
            container.clear()
            container.extend(before) if isinstance(container, list) else container.update(before)


_GENERATORS: tuple[type[Any], ...] = (torch.Generator, random.Random, np.random.RandomState, np.random.BitGenerator)
"""A generator of numpy holds one of the last."""


def _rewind(generator: Any) -> Callable[[], None]:
    if isinstance(generator, random.SystemRandom):
        return lambda: None
    if isinstance(generator, random.Random):
        return partial(generator.setstate, generator.getstate())
    if isinstance(generator, np.random.BitGenerator):
        return partial(setattr, generator, "state", generator.state)
    return partial(generator.set_state, generator.get_state())


def _can_be_written(tensor: Tensor) -> bool:
    """False for a tensor with several elements at one place in memory, which nothing writes to."""
    if tensor.layout is not torch.strided:
        return True
    return all(stride or size == 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
