"""Contents: what a model holds, as it was, and put back where it changed.

    modules ─► what they refer to, nearest first ─► tensors, arrays      a copy of the content
                                                    containers, cells    the objects in them; of objects their __dict__
                                                    generators, files    only whether they moved

Objects stay the same objects. Nothing is written to what did not change: it may be on memory that is only read. What
belongs to Python, PyTorch or dwconv, as locks, loggers and threads do, is left alone, with all that it refers to.
"""

from __future__ import annotations

import gc
import io
import itertools
import operator
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from types import CellType, CodeType, FunctionType, GeneratorType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from dwconv.discovery.tensor_contents import LazyContent, TensorContent

Kind = TypeVar("Kind")
MOST_OBJECTS = 100_000
"""The limit of a search, nearest objects first: a model may refer to its trainer, and that to all images."""
_MOST_BYTES = 1 << 28
"""Of tensors and arrays that are no attributes of modules: what is beyond is not copied."""
_ATOMS = (str, bytes, int, float, complex, bool, type(None), type, ModuleType, CodeType)
_USUAL = {str, int, float, bool, type(None)}
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
        self._kept: list[tuple[_Path | None, _Kept]] = []
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

    def _keep(self, path: _Path | None, kept: _Kept) -> None:
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

    def _inside(self, holder: Any, path: _Path) -> Iterator[tuple[_Name, Any]]:
        """What is in a holder, with its name there; keeps what the holder is like."""
        kind = type(holder)
        if issubclass(kind, Tensor):
            self._keep(path, _of_tensor(holder, copied=self._is_affordable(_size(holder))))
        elif issubclass(kind, np.ndarray):
            if self._is_affordable(holder.nbytes):
                self._keep(path, _Array(holder))
            if holder.dtype.hasobject:
                yield from (((place,), each) for place, each in enumerate(holder.ravel().tolist()))
        elif issubclass(kind, bytearray):
            if self._is_affordable(len(holder)):
                self._keep(path, _Bytes(holder))
        elif issubclass(kind, _MOVES):
            self._keep(path, _Moving(holder))
        elif issubclass(kind, FunctionType):
            if not _is_of_a_model(str(holder.__module__)):
                return
            names = holder.__code__.co_freevars
            yield from ((name, cell) for name, cell in zip(names, holder.__closure__ or (), strict=True))
            yield from (((), each) for each in (holder.__defaults__, holder.__kwdefaults__, holder.__dict__) if each)
        else:
            container = next((each for each in _CONTAINERS if issubclass(kind, each.kind)), None)
            if container is not None:
                try:
                    kept = _Container(holder, container)
                except RuntimeError:  # another thread changes it
                    return
                self._keep(path, kept)
                yield from kept.named()
            elif issubclass(kind, (tuple, frozenset)) or kind.__module__ in _PASSED_THROUGH:
                yield from (((), each) for each in gc.get_referents(holder))
            if container is not None or _is_own(kind):
                yield from self._attributes(holder, path)

    def _attributes(self, holder: Any, path: _Path) -> Iterator[tuple[_Name, Any]]:
        if issubclass(type(holder), nn.Module):
            self._keep(path, _Class(holder))
        if attributes := _attributes(holder):
            self._seen.add(id(attributes))
            self._keep(path, _Container(attributes, _DICT))
            yield from ((name, value) for name, value in list(attributes.items()) if type(value) not in _USUAL)
        if slots := _slots(type(holder)):
            kept = _Slots(holder, slots)
            self._keep(path, kept)
            yield from ((slot.__name__, value) for slot, value in kept.before.items())

    def _is_affordable(self, size: int) -> bool:
        if size > self._bytes_left:
            return False
        self._bytes_left -= size
        return True


_Name = str | tuple[object, ...]
"""Of an attribute; or the key, or the place, in a container; empty if there is none."""


class _Path(NamedTuple):
    before: _Path | None
    name: _Name


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


# -- what is kept of each kind -----------------------------------------------------------------------------------------


class _Kept(Protocol):
    def put_back(self) -> bool:
        """False if it changed and cannot be put back."""


class _Class:
    """Of a module: a lazy one changes it in its first call."""

    def __init__(self, module: nn.Module) -> None:
        self._module, self._class = module, type(module)

    def put_back(self) -> bool:
        if type(self._module) is not self._class:
            self._module.__class__ = self._class
        return True


class _Array:
    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array, self._before = array, array.copy()

    def put_back(self) -> bool:
        array, before = self._array, self._before
        if array.shape != before.shape or array.dtype != before.dtype:
            return False
        if array.dtype.hasobject:
            same = all(map(operator.is_, array.ravel().tolist(), before.ravel().tolist()))
        else:
            bits, bits_before = (np.ascontiguousarray(each).view(np.uint8) for each in (array, before))
            same = np.array_equal(bits, bits_before)
        if not same and array.flags.writeable:
            array[...] = before
        return same or array.flags.writeable


class _Bytes:
    def __init__(self, array: bytearray) -> None:
        self._array, self._before = array, bytes(array)

    def put_back(self) -> bool:
        if self._array != self._before:
            self._array[:] = self._before
        return True


class _Slots:
    def __init__(self, holder: Any, slots: Sequence[MemberDescriptorType]) -> None:
        self._holder, self._slots = holder, slots
        self.before = self._now()

    def put_back(self) -> bool:
        now = self._now()
        for slot in self._slots:
            if slot in self.before and now.get(slot, self) is not self.before[slot]:
                slot.__set__(self._holder, self.before[slot])
            elif slot in now and slot not in self.before:
                slot.__delete__(self._holder)
        return True

    def _now(self) -> dict[MemberDescriptorType, Any]:
        found = {}
        for slot in self._slots:
            with suppress(AttributeError):  # it is empty
                found[slot] = slot.__get__(self._holder)
        return found


class _Moving:
    """What goes on each time that it is used, and cannot go back; but a file that is read can."""

    def __init__(self, holder: Any) -> None:
        self._holder, self._before = holder, _position(holder)

    def put_back(self) -> bool:
        if _position(self._holder) == self._before:
            return True
        if isinstance(self._holder, io.IOBase) and not self._holder.closed and not self._holder.writable():
            self._holder.seek(self._before)
            return True
        return False


_ITERATORS: tuple[Iterator[Any], ...] = (
    [].__iter__(),
    ().__iter__(),
    range(0).__iter__(),
    {}.__iter__(),
    "".__iter__(),
)
_MOVES: tuple[type[Any], ...] = (GeneratorType, io.IOBase, itertools.count, *(type(each) for each in _ITERATORS))


def _position(holder: Any) -> Any:
    if isinstance(holder, GeneratorType):
        return None if holder.gi_frame is None else holder.gi_frame.f_lasti, holder.gi_running
    if isinstance(holder, itertools.count):
        return repr(holder)
    if not isinstance(holder, io.IOBase):
        return operator.length_hint(holder)
    try:
        return holder.tell() if not holder.closed and holder.seekable() else None
    except (OSError, ValueError):
        return None


class _ContainerKind(NamedTuple):
    kind: Any
    take: Callable[[Any], list[Any]]
    """What is in it; of mappings the keys, then the values. By the methods of Python's class, not of a subclass."""
    put: Callable[[Any, list[Any]], None]


class _Container:
    def __init__(self, holder: Any, kind: _ContainerKind) -> None:
        self._holder, self._kind = holder, kind
        self._before = kind.take(holder)

    def named(self) -> Iterator[tuple[_Name, Any]]:
        before = self._before
        if issubclass(self._kind.kind, dict):
            half = len(before) // 2
            yield from (((key,), each) for key, each in zip(before, before[half:]) if type(each) not in _USUAL)  # noqa: B905
            yield from (((), key) for key in before[:half] if type(key) not in _USUAL)
        else:
            yield from (((place,), each) for place, each in enumerate(before) if type(each) not in _USUAL)

    def put_back(self) -> bool:
        now = self._kind.take(self._holder)
        if len(now) != len(self._before) or not all(map(operator.is_, now, self._before)):
            self._kind.put(self._holder, self._before)
        return True


def _mapping(kind: Any) -> _ContainerKind:
    def put(holder: Any, before: list[Any]) -> None:
        kind.clear(holder)
        half = len(before) // 2
        for key, value in zip(before[:half], before[half:], strict=True):
            kind.__setitem__(holder, key, value)

    return _ContainerKind(kind, lambda holder: [*kind.keys(holder), *kind.values(holder)], put)


def _put_in_deque(holder: deque[Any], before: list[Any]) -> None:
    deque.clear(holder)
    deque.extend(holder, before)


def _put_in_set(holder: set[Any], before: list[Any]) -> None:
    set.clear(holder)
    set.update(holder, before)


def _in_cell(cell: CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # it is empty
        return []


def _put_in_cell(cell: CellType, before: list[Any]) -> None:
    if before:
        cell.cell_contents = before[0]
    else:
        del cell.cell_contents


_DICT = _mapping(dict)
_CONTAINERS = (
    _mapping(OrderedDict),
    _DICT,
    _ContainerKind(
        list,
        lambda holder: list(list.__iter__(holder)),
        lambda holder, before: list.__setitem__(holder, slice(None), before),
    ),
    _ContainerKind(deque, lambda holder: list(deque.__iter__(holder)), _put_in_deque),
    _ContainerKind(set, lambda holder: sorted(set.__iter__(holder), key=id), _put_in_set),
    _ContainerKind(CellType, _in_cell, _put_in_cell),
)
