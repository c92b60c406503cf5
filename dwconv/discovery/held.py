"""Held: what an object holds, in containers, attributes, closures and iterators, however deep."""

from __future__ import annotations

import gc
from collections import deque
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

Kind = TypeVar("Kind")
MOST_OBJECTS = 100_000
"""To look at, those nearest first: a model may know its trainer, and that all images."""
_NOTHING_IN_IT = (str, bytes, int, float, complex, type(None), type, ModuleType, CodeType, Tensor, np.ndarray)


def held(holders: object, kinds: type[Kind] | tuple[type[Kind], ...], *, but: type = ModuleType) -> list[Kind]:
    """The objects of ``kinds`` in what holds them, each once. What is in one of ``but`` does not count."""
    found, seen, waiting = [], {id(holders)}, deque([holders])
    ends: tuple[type, ...] = (*_NOTHING_IN_IT, but)
    while waiting and len(seen) < MOST_OBJECTS:
        each: Any = waiting.popleft()
        if issubclass(type(each), kinds):
            found.append(each)
        elif not issubclass(type(each), ends):  # by its type: isinstance would ask a proxy
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
