"""Batches: the tensors in the containers that a data loader gives, moved to a device."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence


def with_tensors(batch: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """``batch`` with ``change`` of each of its tensors, in containers of the same kinds: mappings, named and other
    tuples, lists, dataclasses and packed sequences, however deep. Everything else stays as it is."""
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, PackedSequence):  # its sizes have to stay on the CPU
        orders = (batch.sorted_indices, batch.unsorted_indices)
        changed = [None if order is None else change(order) for order in orders]
        return batch._replace(data=change(batch.data), sorted_indices=changed[0], unsorted_indices=changed[1])
    if isinstance(batch, Mapping):
        return _mapping({key: with_tensors(value, change) for key, value in batch.items()}, like=batch)
    if isinstance(batch, tuple):
        values = [with_tensors(value, change) for value in batch]
        return type(batch)(*values) if hasattr(batch, "_fields") else _sequence(values, like=batch)
    if isinstance(batch, list):
        return _sequence([with_tensors(value, change) for value in batch], like=batch)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        return _dataclass(batch, change)
    return batch


def _mapping(values: dict[Any, Any], *, like: Mapping[Any, Any]) -> Any:
    if type(like) is dict or not hasattr(like, "update"):
        return values
    changed: Any = copy.copy(like)  # keeps what the kind has besides, such as the factory of a defaultdict
    changed.update(values)
    return changed


def _sequence(values: list[Any], *, like: Any) -> Any:
    if type(like) in (list, tuple):
        return type(like)(values)
    try:
        return type(like)(values)
    except TypeError:  # a kind of its own that is made in another way
        return values


def _dataclass(batch: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A shallow copy, whose fields are set past ``__init__`` and past ``frozen``."""
    changed = copy.copy(batch)
    for field in dataclasses.fields(batch):
        if hasattr(batch, field.name):
            object.__setattr__(changed, field.name, with_tensors(getattr(batch, field.name), change))
    return changed
