"""CallArguments: what a user gave. Call: the same, checked, as a convolution of images or, in 3-D, of volumes.

A 1-D convolution is one of height 1; an input without a batch is a batch of 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, NamedTuple, Protocol, TypeGuard, cast

import torch
from torch import Tensor

from dwconv.errors import InvalidArgument, InvalidCall, InvalidWorkload
from dwconv.problems import pytorch
from dwconv.problems.as_written import resolve_padding
from dwconv.problems.problem import Problem, lies_channels_last
from dwconv.problems.workload import SIDES, Layout, by

Size = int | Sequence[int]
Padding = Size | str | Sequence[Sequence[int]]
Ints = tuple[int, ...]


class AnyArguments(Protocol):
    """Those of a convolution, ``CallArguments``, or of a transposed one."""

    @property
    def input(self) -> Tensor: ...

    @property
    def weight(self) -> Tensor: ...

    @property
    def bias(self) -> Tensor | None: ...

    @property
    def groups(self) -> int | None: ...

    @property
    def axes(self) -> int: ...

    @property
    def function(self) -> str: ...

    def __getitem__(self, at: slice, /) -> tuple[Any, ...]: ...

    def lowered(self) -> AnyArguments | None: ...

    def as_pytorchs(self) -> tuple[Callable[..., Tensor], tuple[Any, ...]] | None: ...

    def on_pytorch(self) -> Tensor: ...


class AnyCall(Protocol):
    """A ``Call``, or that of a transposed convolution."""

    @property
    def given(self) -> AnyArguments: ...

    @property
    def x(self) -> Tensor: ...

    @property
    def w(self) -> Tensor: ...

    @property
    def problem(self) -> Problem: ...


class CallArguments(NamedTuple):
    """Arguments as the user gave them to ``conv1d``, ``conv2d`` or ``conv3d``. A tuple, because one is made in every
    call that C++ does not take, in a third of the time that a frozen dataclass takes."""

    input: Tensor
    weight: Tensor
    bias: Tensor | None
    stride: Size
    padding: Padding
    dilation: Size
    groups: int | None
    axes: int
    """1 for ``conv1d``, 2 for ``conv2d``, 3 for ``conv3d``."""

    def images(self) -> tuple[Tensor, Tensor]:
        """x as (N, C, H, W) and w as (C·multiplier, 1, KH, KW), or both with a depth before the height: views."""
        return image_of(self.input, axes=self.axes), image_of(self.weight, axes=self.axes)

    def as_given(self, image: Tensor) -> Tensor:
        """A result that is not given away yet, with the axes of ``input``."""
        return with_axes_of(self.input, image, axes=self.axes)

    def lowered(self) -> CallArguments | None:
        """The arguments in the type to which autocast lowers a convolution; None if it does not lower all of it."""
        tensors = lowered(*self[:3])
        return None if tensors is None else self._replace(input=tensors[0], weight=tensors[1], bias=tensors[2])

    @property
    def function(self) -> str:
        """The name of PyTorch's function, and of ours."""
        return f"conv{self.axes}d"

    def as_pytorchs(self) -> tuple[Callable[..., Tensor], tuple[Any, ...]] | None:
        """PyTorch's function, and its arguments; None if it does not take these."""
        if has_sides(self.padding):
            return None
        groups = self.input.size(-self.axes - 1) if self.groups is None else self.groups
        return pytorch.OPS[self.axes], (*self[:6], groups)

    def on_pytorch(self) -> Tensor:
        """The result of PyTorch's own op, with PyTorch's own derivative."""
        input, weight, bias, stride, padding, dilation, groups, axes = self
        if groups is None:
            groups = input.size(-axes - 1) if isinstance(input, Tensor) and input.dim() > axes else 1
        if has_sides(padding):
            least, surplus = pytorch.split_padding(_sides(padding, axes=axes))
            input, padding = pytorch.padded(input, surplus), least[-axes:]
        return pytorch.OPS[axes](input, weight, bias, stride, padding, dilation, groups)


def lowered(x: Tensor, w: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """The tensors of a convolution in the type to which autocast lowers it; None if it does not lower all of them."""
    if not is_autocast(x):
        return None
    for tensor in (x, w, bias):
        if tensor is not None and not (
            tensor.device == x.device and tensor.is_floating_point() and tensor.dtype is not torch.float64
        ):
            return None
    dtype = torch.get_autocast_dtype(x.device.type)
    return x.to(dtype), w.to(dtype), None if bias is None else bias.to(dtype)


def image_of(tensor: Tensor, *, axes: int) -> Tensor:
    """An input, such as (N, C, L) or (C, L), or a weight, as one of images or volumes: a view."""
    image = tensor if tensor.dim() == axes + 2 else tensor.unsqueeze(0)
    return image.unsqueeze(2) if axes == 1 else image


def with_axes_of(given: Tensor, image: Tensor, *, axes: int) -> Tensor:
    """``image``, not given away yet, with the axes of ``given``. In place: PyTorch's results are no views, of
    which many things cannot be done in place. Compilers see to that for what they compile; DTensors do not support
    it."""
    is_plain = not torch.compiler.is_compiling() and type(image) is Tensor and not image._is_view()
    squeeze = Tensor.squeeze_ if is_plain else Tensor.squeeze
    if axes == 1:
        image = squeeze(image, 2)
    return image if given.dim() == axes + 2 else squeeze(image, 0)


@dataclass(frozen=True, kw_only=True)
class Call:
    """Arguments that are a depthwise convolution."""

    given: CallArguments
    x: Tensor
    """(N, C, H, W) or (N, C, D, H, W)"""
    w: Tensor
    """(C·multiplier, 1, KH, KW) or (C·multiplier, 1, KD, KH, KW)"""
    problem: Problem

    @classmethod
    def of(cls, given: CallArguments) -> Call:
        """Raises InvalidCall or InvalidArgument, naming what does not fit, for what is no depthwise convolution."""
        channels = check_input(given)
        _check_weight(given, channels)
        check_beside(given, out_channels=given.weight.shape[0])
        x, w = given.images()
        strides = per_axis("stride", given.stride, axes=given.axes, least=1)
        dilations = per_axis("dilation", given.dilation, axes=given.axes, least=1)
        if isinstance(given.padding, str):
            padding = _named_padding(given.padding, w, strides=strides, dilations=dilations)
        elif has_sides(given.padding):
            padding = _sides(given.padding, axes=given.axes)
        else:
            both_sides = per_axis("padding", cast(Size, given.padding), axes=given.axes, least=0)
            padding = tuple(side for number in both_sides for side in (number, number))
        _check_size(size=x.shape[2:], kernel=w.shape[2:], padding=padding, dilations=dilations)
        problem = Problem(
            input_shape=tuple(x.shape),
            weight_shape=tuple(w.shape),
            stride=strides,
            padding=padding,
            dilation=dilations,
            dtype=running_dtype(x),
            layout=layout_of_result(x, w),
            bias=given.bias is not None,
        )
        return cls(given=given, x=x, w=w, problem=problem)


# -- tensors ---------------------------------------------------------------------------------------------------------


SIZES = {1: "L", 2: "H, W", 3: "D, H, W"}
KERNELS = {1: "K", 2: "KH, KW", 3: "KD, KH, KW"}
_SIDES = {
    1: "((left, right),)",
    2: "((top, bottom), (left, right))",
    3: "((front, back), (top, bottom), (left, right))",
}
"""By the number of axes: an input without batch and channels, a kernel, padding per side."""


def check_input(given: AnyArguments) -> int:
    """The channels of the input. Raises InvalidArgument for what is no tensor, InvalidCall for an input of other axes
    and for other groups."""
    for name, tensor in (("input", given.input), ("weight", given.weight), ("bias", given.bias)):
        if not isinstance(tensor, Tensor) and not (name == "bias" and tensor is None):
            raise InvalidArgument(f"{name} must be a Tensor, not {type(tensor).__name__}")
    if given.groups is not None and not isinstance(whole("groups", given.groups), int):
        raise InvalidArgument(f"groups={given.groups!r} is not a whole number")
    if given.input.dim() not in (given.axes + 1, given.axes + 2):
        size = SIZES[given.axes]
        raise InvalidCall(f"input of shape {by(given.input.shape)} is not (N, C, {size}) or (C, {size})")
    channels = given.input.shape[-given.axes - 1]
    if given.groups is not None and given.groups != channels:
        if not hasattr(given.groups, "__index__"):
            raise InvalidArgument(f"groups={given.groups!r} is not a whole number")
        raise InvalidCall(
            f"groups={given.groups} with {channels} input channels is not depthwise; "
            f"use groups={channels}, or torch.nn.functional.{given.function}"
        )
    return channels


def _check_weight(given: CallArguments, channels: int) -> None:
    weight, axes = given.weight, given.axes
    out_channels = weight.shape[0] if weight.dim() else 0
    if weight.dim() != axes + 2 or weight.shape[1] != 1 or channels == 0 or out_channels % channels or not out_channels:
        wanted = f"(C·multiplier, 1, {KERNELS[axes]})"
        raise InvalidCall(f"weight of shape {by(weight.shape)} is not {wanted} with C={channels} input channels")


def check_beside(given: AnyArguments, *, out_channels: int) -> None:
    """Raises InvalidCall for a bias of another size, and for tensors of several devices or types."""
    input, weight, bias = given.input, given.weight, given.bias
    if bias is not None and bias.shape != (out_channels,):
        raise InvalidCall(f"bias of shape {by(bias.shape)} does not fit {out_channels} output channels")
    for name, other in (("weight", weight), ("bias", bias)):
        if other is None:
            continue
        if other.device != input.device:
            raise InvalidCall(f"input is on {input.device}, {name} on {other.device}; move one of them")
        if other.dtype != input.dtype and not is_autocast(input):
            raise InvalidCall(f"input is {input.dtype}, {name} {other.dtype}; convert one, or use torch.autocast")


def running_dtype(x: Tensor) -> torch.dtype:
    """The type in which the convolution computes: autocast may lower it."""
    lowered = x.dtype is not torch.float64 and is_autocast(x)
    return torch.get_autocast_dtype(x.device.type) if lowered else x.dtype


def is_autocast(x: Tensor) -> bool:
    return x.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(x.device.type)


def layout_of_result(x: Tensor, w: Tensor) -> Layout:
    """channels_last if one of the two is, as with PyTorch's op, whose volumes of float64 are always contiguous."""
    if x.dim() == 5 and x.dtype is torch.float64:
        return "nchw"
    return "nhwc" if lies_channels_last(x) or lies_channels_last(w) else "nchw"


# -- numbers ---------------------------------------------------------------------------------------------------------


def per_axis(name: str, value: Size, *, axes: int, least: int) -> Ints:
    """``value`` as (height, width) or (depth, height, width); a 1-D convolution has a height on which nothing happens:
    stride 1, padding 0."""
    values = whole(name, value)
    if isinstance(values, int):
        values = (values,) * axes
    elif len(values) == 1:
        values = values * axes
    if len(values) != axes:
        raise InvalidCall(f"{name}={values} is not one number, or {axes}")
    for number in values:
        if number < least:
            raise InvalidCall(f"{name}={number} must be at least {least}")
    return (least, *values) if axes == 1 else values


def has_sides(padding: Padding) -> TypeGuard[Sequence[Sequence[int]]]:
    """True if each side has a padding of its own, a pair for each axis: ((top, bottom), (left, right))."""
    return isinstance(padding, (tuple, list)) and any(isinstance(side, (tuple, list)) for side in padding)


def _sides(padding: Sequence[Sequence[int]], *, axes: int) -> Ints:
    """(top, bottom, left, right), in 3-D (front, back, top, bottom, left, right)"""
    pairs = [tuple(pair) if isinstance(pair, (tuple, list)) else () for pair in padding]
    if len(pairs) != axes or any(len(pair) != 2 for pair in pairs):
        raise InvalidCall(f"padding={padding} is not one number, or {axes}, or {_SIDES[axes]}")
    sides = tuple(number for pair in pairs for number in pair)
    for number in sides:
        if isinstance(number, bool) or not hasattr(number, "__index__"):
            raise InvalidArgument(f"padding={padding!r} holds {number!r}, which is not a whole number")
        if number < 0:
            raise InvalidCall(f"padding={number} must be at least 0")
    return (0, 0, *sides) if axes == 1 else sides


def whole(name: str, value: Any) -> int | Ints:
    """A number, or one for each axis, as ints. Integers of numpy, and tensors of one integer, count as numbers, as they
    do for PyTorch's op."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return tuple(each if isinstance(each, int) else index(each) for each in value)
    except TypeError:  # one number, or none at all
        pass
    try:
        if isinstance(value, bool):
            raise TypeError
        return index(value)
    except TypeError:
        raise InvalidArgument(f"{name}={value!r} is not a whole number, or one for each axis") from None


def _named_padding(padding: str, w: Tensor, *, strides: Ints, dilations: Ints) -> Ints:
    """``"same"`` or ``"valid"`` as (top, bottom, left, right), in 3-D with (front, back) before."""
    try:
        pairs = resolve_padding(padding, kernel=tuple(w.shape[2:]), stride=strides, dilation=dilations)
    except InvalidWorkload as error:
        raise InvalidCall(str(error)) from None
    return tuple(side for pair in pairs for side in pair)


def _check_size(*, size: Ints, kernel: Ints, padding: Ints, dilations: Ints) -> None:
    for axis in range(len(size)):
        padded = size[axis] + padding[2 * axis] + padding[2 * axis + 1]
        if padded <= dilations[axis] * (kernel[axis] - 1) or kernel[axis] == 0:
            raise InvalidCall(
                f"kernel={by(kernel)} with dilation={by(dilations)} does not fit the input of {by(size)} "
                f"padded by {by(padding)} ({', '.join(SIDES[-len(padding) :])}); use a smaller kernel or more padding"
            )
