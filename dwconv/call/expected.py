"""Expected: which calls of functions are the convolution of a block, for those who wait for one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from dwconv.call import block_call, functional
from dwconv.call.active import AXES, arguments_of
from dwconv.call.arguments import Arguments, Call
from dwconv.call.place import Place
from dwconv.errors import InvalidWorkload

Ints = tuple[int, ...]


def convolution_of(
    place: Place, x: Tensor, shape: Sequence[int], func: Any, args: Any, kwargs: Any
) -> tuple[Tensor, ...] | None:
    """The weight, and the bias if there is one, of the call that a block of ``x`` expects as its convolution, of an
    image of ``shape``; None if it is another call."""
    if func is functional.conv2d:
        given = Arguments._make((*args, 2))
    elif AXES.get(func) == 2:
        given = arguments_of(2, *args, **kwargs)
    else:
        return None
    weight, bias, numbers = given.weight, given.bias, given[3:7]
    if not block_call.takes(place.block, x.dtype, weight, bias):
        return None
    if place.block.layer_norm and place.bias != (bias is not None):
        return None
    if torch._C._is_any_autocast_enabled():
        if not is_lowered(x):
            return None
    elif any(each is not None and each.dtype is not x.dtype for each in (weight, bias)):
        return None  # which the function itself refuses
    try:
        is_expected = _is_expected(place, tuple(shape), tuple(weight.shape), *numbers)
    except TypeError:  # numbers that are lists, or tensors
        return None
    learnt = (weight,) if bias is None else (weight, bias)
    return learnt if is_expected and all(each.device == x.device for each in learnt) else None


def convolved(place: Place, shape: Sequence[int], value: Tensor, *, given: Sequence[Tensor]) -> Tensor:
    """The convolution of a block alone, by the plan that it has alone: as if nothing had waited. ``shape``: of x;
    ``given``: the weight, and the bias if there is one."""
    problem = place.problem(shape)
    (top, bottom, left, right) = problem.padding
    padding = ((top, bottom), (left, right))
    weight, *others = (each.to(value.dtype) for each in given)
    bias = others[0] if others else None
    return functional.conv2d(value, weight, bias, problem.stride, padding, problem.dilation)


def is_lowered(x: Tensor) -> bool:
    """Whether ``torch.autocast`` convolves in the type that x has."""
    kind = x.device.type
    return torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) is x.dtype


@lru_cache(maxsize=1000)
def _is_expected(place: Place, shape: Ints, weight_shape: Ints, *numbers: Any) -> bool:
    """Whether a convolution is that of a block. ``numbers``: stride, padding, dilation and groups of its call."""
    x = torch.empty(shape, device="meta").to(memory_format=torch.channels_last)
    weight = torch.empty(weight_shape, device="meta")
    try:
        call = Call.of(Arguments._make((x, weight, None, *numbers, 2)))
    except InvalidWorkload:  # which the function itself raises
        return False
    return call.problem == dataclasses.replace(place.problem(shape).alone, bias=False)


@lru_cache(maxsize=1000)
def output_shape(place: Place, shape: Ints) -> Ints:
    """Of the convolution of a block, for x of that shape."""
    return place.problem(shape).workload("forward").output_shape
