"""Unchanged: what a step may change in passing, put back."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dwconv.discovery.contents import Contents, held
from dwconv.errors import warn


@contextmanager
def unchanged(model: nn.Module, inputs: Iterable[Tensor]) -> Iterator[Callable[[], None]]:
    """At the end, also after an error, ``model`` and ``inputs`` are what they were: parameters, ``grad``, buffers, the
    classes and attributes of all modules, what these refer to (``Contents``), and the states of the random number
    generators, also of those that the model holds. What had no sizes yet has none. Meanwhile no gradient is there, and
    the hooks that wait for gradients of parameters are not: an optimizer may step in them. A DwconvWarning names what
    changed and cannot be put back. Gives a function that puts all back at once.

    A model may change any of these in its forward pass: statistics, counters, caches, hooks, weights that are averaged.
    """
    inputs = list(inputs)
    contents = Contents(model, inputs)
    leaves = [each.tensor for each in contents.tensors if each.tensor.is_leaf and each.tensor.requires_grad]
    python_state, numpy_state = random.getstate(), np.random.get_state()
    rewind = [_rewind(generator) for generator in held(list(model.modules()), _GENERATORS)]
    tensors = [*model.parameters(), *model.buffers(), *inputs]
    gpus = {tensor.device.index for tensor in tensors if tensor.device.type == "cuda"}
    cache_was_enabled = torch.is_autocast_cache_enabled()
    # The cache would keep weights for the caller that were lowered here, perhaps without a history.
    torch.set_autocast_cache_enabled(False)
    gone: list[str] = []

    def put_back() -> None:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        for each in rewind:
            each()
        gone.extend(contents.put_back())

    try:
        with torch.random.fork_rng(devices=sorted(gpus)), without_gradients(leaves):
            yield put_back
    finally:
        torch.set_autocast_cache_enabled(cache_was_enabled)
        try:
            put_back()
        except KeyboardInterrupt:
            put_back()
            raise
        if gone:
            warn(
                f"a step on the example changed {', '.join(dict.fromkeys(gone))} of {type(model).__name__}, which "
                "cannot be put back; give a copy of the model, or put it back after the call"
            )


@contextmanager
def without_gradients(leaves: Iterable[Tensor]) -> Iterator[None]:
    """In here ``leaves`` have no ``grad`` and no hooks; those of PyTorch's own C++, as DistributedDataParallel's,
    remain."""
    leaves = list(leaves)
    gradients = [leaf.grad for leaf in leaves]
    hooks = [each for leaf in leaves for each in _hooks(leaf)]
    before = [each.copy() for each in hooks]
    try:
        for leaf in leaves:
            leaf.grad = None
        for each in hooks:
            each.clear()
        yield
    finally:
        for leaf, gradient in zip(leaves, gradients, strict=True):
            leaf.grad = gradient
            for each in _own_hooks(leaf):  # also those registered meanwhile
                each.clear()
        for each, content in zip(hooks, before, strict=True):
            each.clear()
            each.update(content)


def _own_hooks(leaf: Tensor) -> list[dict[int, Any]]:
    return [each for each in (leaf._backward_hooks, leaf._post_accumulate_grad_hooks) if each]


def _hooks(leaf: Tensor) -> list[dict[int, Any]]:
    """The dictionaries of hooks on a leaf, and on the node that adds to its gradient."""
    found: list[Any] = _own_hooks(leaf)
    if not leaf.is_inference() and not torch.is_inference_mode_enabled():
        node: Any = torch.autograd.graph.get_gradient_edge(leaf).node
        for register in (node.register_hook, node.register_prehook):
            handle = register(_no_hook)
            found.append(handle.hooks_dict_ref())
            handle.remove()
    return [each for each in found if each]


def _no_hook(*_: object) -> None:
    """Registered for its dictionary alone."""


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
