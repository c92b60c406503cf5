"""``active``: depthwise calls of PyTorch's functions go to dwconv's, for code that uses a layer's weight by itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dwconv import native
from dwconv.call.arguments import CallArguments
from dwconv.call.deferred import deferred
from dwconv.call.functional import conv1d, conv2d, conv3d
from dwconv.call.transposed import FUNCTIONS
from dwconv.call.transposed_call import TransposedArguments
from dwconv.errors import InvalidWorkload

AXES: dict[object, int] = {torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3}
"""PyTorch's functions; ``torch.nn.functional`` has the same."""
TRANSPOSED_AXES: dict[object, int] = {torch.conv_transpose1d: 1, torch.conv_transpose2d: 2, torch.conv_transpose3d: 3}
_OURS = {1: conv1d, 2: conv2d, 3: conv3d}


def active() -> TorchFunctionMode:
    """A context in which depthwise calls of ``F.conv1d``, ``F.conv2d`` and ``F.conv3d`` (``torch.conv1d`` and so on) go
    to ``dwconv.conv1d``, ``dwconv.conv2d`` and ``dwconv.conv3d``, and those of ``F.conv_transpose1d`` and so on to
    ``dwconv.conv_transpose1d`` and so on. Everything else is untouched, errors too.

    It is a ``TorchFunctionMode``: of this thread alone, and it may be nested. The backward pass need not be inside.
    Every call of a PyTorch function inside costs some microseconds more.
    """
    return _Active()


class _Active(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        axes = AXES.get(func)
        if types:  # a subclass of Tensor handles PyTorch's functions itself
            return func(*args, **kwargs)
        if axes is None:
            return (
                func(*args, **kwargs)
                if (of := TRANSPOSED_AXES.get(func)) is None
                else _transposed(func, of, args, kwargs)
            )
        given = arguments_of(axes, *args, **kwargs)
        if not is_depthwise(given):
            return func(*args, **kwargs)
        try:
            if axes == 1 and (waiting := deferred(given)) is not None:
                return waiting
            return _OURS[axes](given.input, named_weight(given.weight), *given[2:-1])
        except InvalidWorkload:
            return func(*args, **kwargs)  # which raises PyTorch's own error


native.transparent_modes.add(_Active)


def _transposed(func: Any, axes: int, args: Any, kwargs: Any) -> Any:
    given = transposed_arguments_of(axes, *args, **kwargs)
    if is_depthwise_transposed(given):
        try:
            return FUNCTIONS[axes](given.input, named_weight(given.weight), *given[2:-1])
        except InvalidWorkload:
            pass
    return func(*args, **kwargs)


def arguments_of(
    axes: int,
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
) -> CallArguments:
    """The arguments of a call of PyTorch's function."""
    return CallArguments(input, weight, bias, stride, padding, dilation, groups, axes)


def is_depthwise(given: CallArguments) -> bool:
    """True if it is a depthwise convolution, as in ``convert``: with one channel it is a dense one."""
    input, weight, axes, groups = given.input, given.weight, given.axes, given.groups
    return (
        groups != 1
        and not (input.is_nested or weight.is_nested)  # which have no shape
        and input.dim() in (axes + 1, axes + 2)
        and input.shape[-axes - 1] == groups
        and weight.dim() == axes + 2
        and weight.shape[1] == 1
    )


def transposed_arguments_of(
    axes: int,
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: Any = 1,
    dilation: Any = 1,
) -> TransposedArguments:
    """The arguments of a call of PyTorch's function."""
    return TransposedArguments(input, weight, bias, stride, padding, output_padding, groups, dilation, axes)


def is_depthwise_transposed(given: TransposedArguments) -> bool:
    """As ``is_depthwise``."""
    input, weight, axes, groups = given.input, given.weight, given.axes, given.groups
    return (
        groups != 1
        and not (input.is_nested or weight.is_nested)
        and input.dim() in (axes + 1, axes + 2)
        and input.shape[-axes - 1] == groups
        and weight.dim() == axes + 2
        and weight.shape[0] == groups
    )


def named_weight(weight: Tensor) -> Tensor:
    """The parameter, where the weight is a view of all of it, unchanged: calls are counted by their weight."""
    if torch.compiler.is_compiling() or not weight._is_view():
        return weight
    base = weight._base
    same = (
        base is not None
        and type(base) in (Tensor, torch.nn.Parameter)
        and base.shape == weight.shape
        and base.stride() == weight.stride()
        and base.data_ptr() == weight.data_ptr()
        and base.dtype == weight.dtype
        and base.is_neg() == weight.is_neg()
        and base.is_conj() == weight.is_conj()
        and (base.requires_grad == weight.requires_grad or not torch.is_grad_enabled())
    )
    return base if same and base is not None else weight
