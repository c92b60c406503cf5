"""Contents: what a model holds, as it was, and put back where it changed.

    modules ─► what they refer to, nearest first ─► tensors, arrays      a copy of the content
                                                    containers, cells    the objects in them; of objects their __dict__
                                                    generators, files    only whether they moved

Objects stay the same objects. Nothing is written to what did not change: it may be on memory that is only read. What
belongs to Python, PyTorch or dwconv, as locks, loggers and threads do, is left alone, with all that it refers to.
"""

from __future__ import annotations

import gc
import itertools
import sys
from collections import deque
from collections.abc import Iterable, Iterator
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
    NameInside,
)
from dwconv.discovery.tensor_contents import LazyContent, TensorContent

Kind = TypeVar("Kind")
MOST_OBJECTS = 100_000
"""The limit of a search, nearest objects first: a model may refer to its trainer, and that to all images."""
_MOST_BYTES = 1 << 28
"""Of tensors and arrays that are no attributes of modules: what is beyond is not copied."""
_ATOMS = (str, bytes, int, float, complex, bool, type(None), type, ModuleType, CodeType)
_NOTHING_IN_IT = (*_ATOMS, Tensor, np.ndarray)


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
