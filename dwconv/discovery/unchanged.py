"""Unchanged: what a step may change in passing, put back; with the contents of a model.

    modules ─► what they refer to, nearest first ─► tensors, arrays      a copy of the content
                                                    containers, cells    the objects in them; of objects their __dict__
                                                    generators, files    only whether they moved

``content_kinds`` keeps each of them. Objects stay the same objects. Nothing is written to what did not change: it may
be on memory that is only read. What belongs to Python, PyTorch or dwconv, as locks, loggers and threads do, is left
alone, with all that it refers to.
"""

from __future__ import annotations

import gc
import itertools
import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import CodeType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from dwconv.discovery.content_kinds import (
    CONTAINERS,
    DICT,
    MOVES,
    USUAL,
    KeptArray,
    KeptBytes,
    KeptClass,
    KeptContainer,
    KeptContent,
    KeptPosition,
    KeptSlots,
    LazyContent,
    NameInside,
    TensorContent,
)
from dwconv.errors import warn

Kind = TypeVar("Kind")
MOST_OBJECTS = 100_000
"""The limit of a search, nearest objects first: a model may refer to its trainer, and that to all images."""
_MOST_BYTES = 1 << 28
"""Of tensors and arrays that are no attributes of modules: what is beyond is not copied."""
_ATOMS = (str, bytes, int, float, complex, bool, type(None), type, ModuleType, CodeType)
_NOTHING_IN_IT = (*_ATOMS, Tensor, np.ndarray)


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


# -- what a model holds ------------------------------------------------------------------------------------------------


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


class Contents:
    """What ``model`` holds now, and ``inputs``: tensors of these and attributes of modules are copied whatever their
    size."""

    def __init__(self, model: nn.Module, inputs: Iterable[Tensor]) -> None:
        self.tensors: list[TensorContent] = []
        self._kept: list[tuple[_Path | None, KeptContent]] = []
        self._bytes_left = _MOST_BYTES
        self._seen: set[int] = set()
        modules = dict(model.named_modules())
        own = (value for module in modules.values() for value in vars(module).values() if isinstance(value, Tensor))
        for tensor in (*model.parameters(), *model.buffers(), *own, *inputs):
            if id(tensor) not in self._seen:
                self._seen.add(id(tensor))
                self._keep(None, _of_tensor(tensor))
        self._search(modules)

    def put_back(self) -> list[str]:
        """The places in the model where something changed that cannot be put back."""
        gone = []
        for path, kept in self._kept:
            try:
                is_back = kept.put_back()
            except Exception:  # noqa: BLE001  whatever a user's class raises: all others are put back
                is_back = False
            if not is_back:
                gone.append(_shown(path))
        return gone

    def _keep(self, path: _Path | None, kept: KeptContent) -> None:
        self._kept.append((path, kept))
        if isinstance(kept, TensorContent):
            self.tensors.append(kept)

    def _search(self, modules: dict[str, nn.Module]) -> None:
        waiting: deque[tuple[Any, _Path]] = deque((each, _Path(None, name)) for name, each in modules.items())
        self._seen.update(map(id, modules.values()))
        alive: list[object] = []
        """So that no later object has the address of one that was seen."""
        while waiting and len(self._seen) < MOST_OBJECTS:
            holder, path = waiting.popleft()
            for name, each in itertools.islice(self._inside(holder, path), MOST_OBJECTS):
                if id(each) not in self._seen and not issubclass(type(each), _ATOMS):
                    self._seen.add(id(each))
                    alive.append(each)
                    waiting.append((each, _Path(path, name)))

    def _inside(self, holder: Any, path: _Path) -> Iterator[tuple[NameInside, Any]]:
        """What is in a holder, with its name there; keeps what the holder is like."""
        kind = type(holder)
        if issubclass(kind, Tensor):
            self._keep(path, _of_tensor(holder, copied=self._is_affordable(_size(holder))))
        elif issubclass(kind, np.ndarray):
            if self._is_affordable(holder.nbytes):
                self._keep(path, KeptArray(holder))
            if holder.dtype.hasobject:
                yield from (((place,), each) for place, each in enumerate(holder.ravel().tolist()))
        elif issubclass(kind, bytearray):
            if self._is_affordable(len(holder)):
                self._keep(path, KeptBytes(holder))
        elif issubclass(kind, MOVES):
            self._keep(path, KeptPosition(holder))
        elif issubclass(kind, FunctionType):
            if not _is_of_a_model(str(holder.__module__)):
                return
            names = holder.__code__.co_freevars
            yield from ((name, cell) for name, cell in zip(names, holder.__closure__ or (), strict=True))
            yield from (((), each) for each in (holder.__defaults__, holder.__kwdefaults__, holder.__dict__) if each)
        else:
            container = next((each for each in CONTAINERS if issubclass(kind, each.kind)), None)
            if container is not None:
                try:
                    kept = KeptContainer(holder, container)
                except RuntimeError:  # another thread changes it
                    return
                self._keep(path, kept)
                yield from kept.named()
            elif issubclass(kind, (tuple, frozenset)) or kind.__module__ in _PASSED_THROUGH:
                yield from (((), each) for each in gc.get_referents(holder))
            if container is not None or _is_own(kind):
                yield from self._attributes(holder, path)

    def _attributes(self, holder: Any, path: _Path) -> Iterator[tuple[NameInside, Any]]:
        if issubclass(type(holder), nn.Module):
            self._keep(path, KeptClass(holder))
        if attributes := _attributes(holder):
            self._seen.add(id(attributes))
            self._keep(path, KeptContainer(attributes, DICT))
            yield from ((name, value) for name, value in list(attributes.items()) if type(value) not in USUAL)
        if slots := _slots(type(holder)):
            kept = KeptSlots(holder, slots)
            self._keep(path, kept)
            yield from ((slot.__name__, value) for slot, value in kept.before.items())

    def _is_affordable(self, size: int) -> bool:
        if size > self._bytes_left:
            return False
        self._bytes_left -= size
        return True


class _Path(NamedTuple):
    before: _Path | None
    name: NameInside


def _shown(path: _Path | None) -> str:
    names: list[str] = []
    while path is not None:
        name = path.name
        names.append(f".{name}" if isinstance(name, str) else "".join(f"[{_key(each)}]" for each in name))
        path = path.before
    return "".join(reversed(names)).lstrip(".") or "the example"


def _key(key: object) -> str:
    return repr(key) if isinstance(key, (str, int)) else "…"


def _size(tensor: Tensor) -> int:
    return 0 if is_lazy(tensor) or tensor.layout is not torch.strided else tensor.nbytes


def _of_tensor(tensor: Tensor, *, copied: bool = True) -> TensorContent | LazyContent:
    return LazyContent(tensor) if is_lazy(tensor) else TensorContent(tensor, copied=copied)


_NOT_OF_A_MODEL = {*sys.stdlib_module_names, "torch", "numpy", "dwconv", "tvm", "triton"} - {"__main__"}
_TRAINING = (nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)
_PASSED_THROUGH = {"builtins", "collections", "types", "functools", "argparse"}


def _is_own(kind: type) -> bool:
    """Whether objects of a class are part of a model. Those of Python's and PyTorch's may be of the whole process."""
    return issubclass(kind, _TRAINING) or kind.__module__ in _PASSED_THROUGH or _is_of_a_model(str(kind.__module__))


def _is_of_a_model(module: str) -> bool:
    return module.partition(".")[0] not in _NOT_OF_A_MODEL


def _attributes(holder: Any) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = object.__getattribute__(holder, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None


def _slots(kind: type) -> list[MemberDescriptorType]:
    if kind.__module__ == "builtins":
        return []
    members = [member for base in kind.__mro__ if "__slots__" in vars(base) for member in vars(base).values()]
    return [member for member in members if isinstance(member, MemberDescriptorType)]
