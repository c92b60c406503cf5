"""TensorContent: the numbers of a tensor, where they are, its gradient and class; put back where they changed.

Tensors are compared bit by bit, NaN included. One that did not change is not written to: its memory may be read-only,
as of a file that is mapped.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


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
