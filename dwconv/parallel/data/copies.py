"""How a batch gets to the device of the step, and what its tensors lie in stays of its kind."""

from __future__ import annotations

import copy
import copyreg
import dataclasses
import inspect
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType, NoneType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence


class Copies:
    """The loading thread calls ``begin``, the step ``finish``, with what ``begin`` gave. To a GPU batches go from
    pinned memory, on a stream beside the step's. That has not run on a GPU yet."""

    def __init__(self, device: torch.device | None) -> None:
        """``device``: None leaves batches where they are."""
        self._device = device
        to_gpu = device is not None and device.type == "cuda"
        self._stream: Any = torch.cuda.Stream(device) if to_gpu else None  # type: ignore[no-untyped-call]

    def begin(self, batch: Any) -> Any:
        """The batch on the device, once the event beside it, if there is one, has happened."""
        if self._device is None:
            return batch, None
        if self._stream is None:
            return with_tensors(batch, lambda tensor: tensor.to(self._device), self._moved), None
        if any(tensor.is_cuda for tensor in _tensors_in(batch)):  # the stream that makes it may not be done
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        pinned = with_tensors(batch, _pinned)
        with torch.cuda.stream(self._stream):
            moved = with_tensors(pinned, lambda tensor: tensor.to(self._device, non_blocking=True))
        return moved, self._stream.record_event()

    def finish(self, begun: Any) -> Any:
        """The batch. On a GPU the stream of the step waits, not its thread, and the memory is not given to other
        tensors before that stream is done with it, although another stream allocated it. Objects with a ``to`` of
        their own are moved here, by the step: only it can record their memory."""
        moved, copied = begun
        if copied is None:
            return moved
        current = torch.cuda.current_stream(self._device)
        current.wait_event(copied)
        for tensor in _tensors_in(moved):
            tensor.record_stream(current)
        return with_tensors(moved, lambda tensor: tensor, self._moved)

    def _moved(self, value: Any) -> Any:
        """An object with a ``to`` of its own. Some write to the object, and some give nothing back."""
        try:
            own = copy.copy(value)
        except Exception:  # noqa: BLE001  it has no copies, then it is the batch's own
            own = value
        given = own.to(self._device)
        return own if given is None else given


def _pinned(tensor: Tensor) -> Tensor:
    """Pinned memory is what a copy can leave while the CPU goes on."""
    if tensor.device.type != "cpu" or tensor.is_pinned() or tensor.layout is not torch.strided:
        return tensor
    return tensor.pin_memory()


def _tensors_in(batch: Any) -> list[Tensor]:
    """The tensors that ``with_tensors`` finds."""
    found: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    with_tensors(batch, keep)
    return found


# -- containers --------------------------------------------------------------------------------------------------------


def with_tensors(
    batch: Any, change: Callable[[Tensor], Tensor], change_object: Callable[[Any], Any] | None = None
) -> Any:
    """``batch`` with ``change`` of each of its tensors, however deep in mappings, tuples, lists, deques, dataclasses
    and packed sequences, and in classes of one's own that are one of these. ``change_object``: of the other objects
    that have a method ``to``, which takes a device.

    A changed container is a new one of the same class, with the attributes of the old one; the old one is not written
    to. What holds nothing that changes stays as it is."""
    return _Change(change, change_object).of(batch)


class _Change:
    def __init__(self, of_tensor: Callable[[Tensor], Tensor], of_object: Callable[[Any], Any] | None) -> None:
        self._of_tensor = of_tensor
        self._of_object = of_object
        self._done: dict[int, tuple[Any, Any]] = {}
        """By id, what was changed, and to what: it may be there twice."""

    def of(self, value: Any) -> Any:
        """``value``, changed."""
        if id(value) in self._done:
            return self._done[id(value)][1]
        self._done[id(value)] = value, value  # within itself it stays as it was
        changed = self._changed(value)
        self._done[id(value)] = value, changed
        return changed

    def _changed(self, value: Any) -> Any:
        if type(value) in (int, float, str, bytes, bool, NoneType):
            return value
        if isinstance(value, Tensor):
            return self._of_tensor(value)
        if isinstance(value, PackedSequence):
            return self._packed(value)
        if isinstance(value, tuple):
            return self._tuple(value)
        if isinstance(value, (dict, list, deque)):
            return self._filled(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._with_attributes(value, (field.name for field in dataclasses.fields(value)))
        if _takes_a_device(type(value)) and not isinstance(value, nn.Module):  # type: ignore[arg-type]
            return value if self._of_object is None else self._of_object(value)
        if isinstance(value, (Mapping, Sequence)) and (names := _attributes(value)):
            return self._with_attributes(value, names)  # its items lie in its attributes
        if isinstance(value, Mapping):  # and cannot be written to
            old = dict(value)
            items = self.of(old)
            made = MappingProxyType if isinstance(value, MappingProxyType) else dict
            return value if items is old else made(items)
        return value

    def _packed(self, value: PackedSequence) -> PackedSequence:
        """Its sizes have to stay on the CPU."""
        data, sizes, *orders = value
        return self._like_tuple(value, [self.of(data), sizes, *map(self.of, orders)])

    def _tuple(self, value: tuple[Any, ...]) -> Any:
        return self._like_tuple(value, [self.of(each) for each in value])

    def _like_tuple(self, value: Any, items: list[Any]) -> Any:
        if _same(items, value):
            return value
        try:
            copied = tuple.__new__(type(value), items)  # its own may take other arguments
        except TypeError:  # such as torch.return_types, which are made by C
            return type(value)(items)
        for name in _attributes(value):
            object.__setattr__(copied, name, self._known(getattr(value, name)))
        return copied

    def _filled(self, value: Any) -> Any:
        """A copy, with changed items. It keeps what the kind has besides, such as the factory of a defaultdict."""
        kind = next(each for each in (dict, list, deque) if isinstance(value, each))
        keys = list(dict.keys(value)) if kind is dict else range(len(value))
        old = [kind.__getitem__(value, key) for key in keys]
        items = [self.of(each) for each in old]
        if _same(items, old):
            return value
        copied = _copied(value, kind)
        for key, item in zip(keys, items, strict=True):
            kind.__setitem__(copied, key, item)
        for name in _attributes(value):  # those that are items, too: outputs of transformers have each twice
            object.__setattr__(copied, name, self._known(getattr(value, name)))
        return copied

    def _with_attributes(self, value: Any, names: Iterable[str]) -> Any:
        """A shallow copy, whose attributes are set past ``__init__`` and past ``frozen``."""
        old = {name: getattr(value, name) for name in names if hasattr(value, name)}
        changed = {name: self.of(each) for name, each in old.items()}
        if _same(changed.values(), old.values()):
            return value
        copied = copy.copy(value)
        for name, each in changed.items():
            object.__setattr__(copied, name, each)
        return copied

    def _known(self, value: Any) -> Any:
        """What ``value`` became, if it was changed already."""
        return self._done.get(id(value), (value, value))[1]


def _same(some: Iterable[Any], others: Iterable[Any]) -> bool:
    return all(one is other for one, other in zip(some, others, strict=True))


def _copied(value: Any, kind: Any) -> Any:
    """A shallow copy of a dict, list or deque, also where its class is made from other arguments than its items."""
    try:
        return copy.copy(value)
    except Exception:  # noqa: BLE001  code of the class, whose constructor takes something else
        copied = kind.__new__(type(value))
        (kind.update if kind is dict else kind.extend)(copied, value)
        return copied


@lru_cache
def _takes_a_device(kind: type) -> bool:
    """Whether its objects have a ``to`` as tensors have: those of quantities take a unit."""
    to = getattr(kind, "to", None)
    if not callable(to) or kind is type:
        return False
    try:
        parameters = list(inspect.signature(to).parameters.values())[1:]
    except (TypeError, ValueError):  # made by C
        return False
    takes_any = bool(parameters) and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL
    return takes_any or any(each.name == "device" for each in parameters)


def _attributes(value: Any) -> list[str]:
    """Those that the object itself has, in ``__dict__`` and in slots."""
    slots = [name for name in copyreg._slotnames(type(value)) if hasattr(value, name)]  # type: ignore[attr-defined]
    return [*getattr(value, "__dict__", {}), *slots]
