"""What is kept of each kind of object that a model holds, and how it is put back where it changed.

Of a tensor: its numbers, where they are, its gradient and class. Tensors are compared bit by bit, NaN included. One
that did not change is not written to: its memory may be read-only, as of a file that is mapped.
"""

from __future__ import annotations

import io
import itertools
import operator
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import CellType, GeneratorType, MemberDescriptorType
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

USUAL = {str, int, float, bool, type(None)}
"""Types of values that cannot change, and hold nothing."""
NameInside = str | tuple[object, ...]
"""Of an attribute; or the key, or the place, in a container; empty if there is none."""


class KeptContent(Protocol):
    def put_back(self) -> bool:
        """False if it changed and cannot be put back."""


class KeptClass:
    """Of a module: a lazy one changes it in its first call."""

    def __init__(self, module: nn.Module) -> None:
        self._module, self._class = module, type(module)

    def put_back(self) -> bool:
        if type(self._module) is not self._class:
            self._module.__class__ = self._class
        return True


class KeptArray:
    """Of NumPy's: the bits, or of an array of objects the objects."""

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


class KeptBytes:
    """Of a bytearray."""

    def __init__(self, array: bytearray) -> None:
        self._array, self._before = array, bytes(array)

    def put_back(self) -> bool:
        if self._array != self._before:
            self._array[:] = self._before
        return True


class KeptSlots:
    """The objects in the slots of an object."""

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


class KeptPosition:
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
MOVES: tuple[type[Any], ...] = (GeneratorType, io.IOBase, itertools.count, *(type(each) for each in _ITERATORS))


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


class KeptContainer:
    """The objects in a list, a dictionary, a set, a deque or a cell."""

    def __init__(self, holder: Any, kind: _ContainerKind) -> None:
        self._holder, self._kind = holder, kind
        self._before = kind.take(holder)

    def named(self) -> Iterator[tuple[NameInside, Any]]:
        before = self._before
        if issubclass(self._kind.kind, dict):
            half = len(before) // 2
            yield from (((key,), each) for key, each in zip(before, before[half:]) if type(each) not in USUAL)  # noqa: B905
            yield from (((), key) for key in before[:half] if type(key) not in USUAL)
        else:
            yield from (((place,), each) for place, each in enumerate(before) if type(each) not in USUAL)

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


DICT = _mapping(dict)
CONTAINERS = (
    _mapping(OrderedDict),
    DICT,
    _ContainerKind(
        list,
        lambda holder: list(list.__iter__(holder)),
        lambda holder, before: list.__setitem__(holder, slice(None), before),
    ),
    _ContainerKind(deque, lambda holder: list(deque.__iter__(holder)), _put_in_deque),
    _ContainerKind(set, lambda holder: sorted(set.__iter__(holder), key=id), _put_in_set),
    _ContainerKind(CellType, _in_cell, _put_in_cell),
)


# -- tensors -----------------------------------------------------------------------------------------------------------


class TensorContent:
    def __init__(self, tensor: Tensor, *, copied: bool = True) -> None:
        """``copied``: whether the numbers can be put back; if not, ``put_back`` reports a change of them."""
        self.tensor = tensor
        self._gradient = tensor.grad if tensor.is_leaf else None
        self._requires_grad, self._version = tensor.requires_grad, _version(tensor)
        self._memory = tensor.data
        self._parts = _parts(self._memory)
        self._copies = [part.clone() for part in self._parts] if copied else None

    def put_back(self) -> bool:
        """False if the numbers changed and are gone."""
        tensor = self.tensor
        with torch.no_grad(), torch.inference_mode(tensor.is_inference()):
            if list(map(_place, _parts(tensor.data))) != list(map(_place, self._parts)):
                tensor.data = self._memory
            if tensor.is_leaf and tensor.requires_grad != self._requires_grad:
                tensor.requires_grad = self._requires_grad
            if tensor.is_leaf and tensor.grad is not self._gradient:
                tensor.grad = self._gradient
            if self._copies is None:
                return _version(tensor) == self._version
            for part, copy in zip(self._parts, self._copies, strict=True):
                write_where_different(part, copy)
        return True


class LazyContent:
    """That a parameter or buffer has no sizes yet."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor, self._class, self._requires_grad = tensor, type(tensor), tensor.requires_grad

    def put_back(self) -> bool:
        tensor = self._tensor
        if type(tensor) is not self._class:
            tensor.grad = None
            tensor.data = tensor.data.new_empty(0)
            if tensor.requires_grad != self._requires_grad:
                tensor.requires_grad = self._requires_grad
            tensor.__class__ = self._class
        return True


def write_where_different(tensor: Tensor, values: Tensor) -> None:
    """Give ``tensor`` the numbers of ``values``, without a trace in graphs that were recorded; if it has them already,
    nothing is written."""
    if not _same_bits(tensor, values):
        with torch.inference_mode(tensor.is_inference()):
            tensor.data.copy_(values)


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _parts(tensor: Tensor) -> list[Tensor]:
    """The strided tensors that hold the numbers; none if there are none, as on the device ``meta``."""
    if is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        return [part for name in names for part in _parts(getattr(tensor, name))]
    if tensor.device.type == "meta" or type(tensor).__name__ == "FakeTensor" or tensor.is_nested:
        return []
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    if tensor.layout is not torch.strided or (tensor.numel() and not tensor.untyped_storage().nbytes()):
        return []  # the memory was freed, as FSDP does
    if tensor.is_conj():
        tensor = tensor.conj()
    if tensor.is_neg():
        tensor = tensor._neg_view()
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:  # one element of memory, which nothing could write to otherwise
            tensor = tensor.narrow(axis, 0, 1)
    return [tensor]


def _place(part: Tensor) -> tuple[Any, ...]:
    """Not the address, which would copy what is copied on write."""
    storage = part.untyped_storage()._cdata
    return storage, part.storage_offset(), part.shape, part.stride(), part.dtype


_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _same_bits(one: Tensor, other: Tensor) -> bool:
    """False for tensors that cannot be compared as they are."""
    is_usual = one.layout is torch.strided and not one.is_conj() and one.device.type != "meta"
    return is_usual and torch.equal(_bits(one), _bits(other))


def _bits(tensor: Tensor) -> Tensor:
    """As integers of the same size."""
    if tensor.is_quantized:
        return tensor.int_repr()
    if tensor.dtype is torch.complex128:
        tensor = torch.view_as_real(tensor)
    return tensor.view(_INTEGERS[tensor.element_size()])
