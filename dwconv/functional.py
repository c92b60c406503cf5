"""``conv1d`` and ``conv2d``: depthwise convolution with exactly the meaning of PyTorch's, on tuned kernels where they
are faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import handle_torch_function, has_torch_function_variadic

from dwconv import native, ops
from dwconv.eager import compiled_call, compiled_pytorch_call, convolve, is_watched
from dwconv.errors import InvalidWorkload
from dwconv.plan import MOST_PLANS, Plan, forget_calls, known_calls, plan
from dwconv.workload import Layout

Size = int | Sequence[int]
Ints = tuple[int, ...]
Geometry = tuple[Ints, Ints, Ints]
"""stride, padding (top, bottom, left, right), dilation; (height, width) each"""


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int | None = None,
) -> Tensor:
    """``torch.nn.functional.conv2d(…, groups=in_channels)``, differentiable to any order.

    ``input`` is (N, C, H, W) or (C, H, W), contiguous or channels_last, and the result lies likewise; ``weight`` is
    (C·multiplier, 1, KH, KW), ``bias`` (C·multiplier). ``padding`` may be ``"same"`` or ``"valid"``; ``groups``, where
    given, must be C. Any batch size. What is untuned, slower or unsupported runs on PyTorch's own op.

    Raises InvalidWorkload, naming the sizes, for what is no depthwise convolution.
    """
    if not torch.compiler.is_compiling():
        y: Tensor | None = native.convolve(input, weight, bias, stride, padding, dilation, groups, 2)
        if y is not None:
            return y
    if has_torch_function_variadic(input, weight):
        return _overridden(conv2d, input, weight, bias, stride, padding, dilation, groups)
    return _conv(input, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups, axes=2)


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int | None = None,
) -> Tensor:
    """``torch.nn.functional.conv1d(…, groups=in_channels)``, differentiable to any order.

    ``input`` is (N, C, L) or (C, L), ``weight`` (C·multiplier, 1, K); the rest is as in ``conv2d``.
    """
    if not torch.compiler.is_compiling():
        y: Tensor | None = native.convolve(input, weight, bias, stride, padding, dilation, groups, 1)
        if y is not None:
            return y
    if has_torch_function_variadic(input, weight):
        return _overridden(conv1d, input, weight, bias, stride, padding, dilation, groups)
    return _conv(input, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups, axes=1)


def _overridden(function: Callable[..., Tensor], input: Tensor, weight: Tensor, *others: Any) -> Tensor:
    """A subclass of Tensor, or a proxy that traces the model, decides what becomes of the call."""
    result: Tensor = handle_torch_function(function, (input, weight), input, weight, *others)
    return result


def _conv(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    stride: Size,
    padding: Size | str,
    dilation: Size,
    groups: int | None,
    axes: int,
) -> Tensor:
    if torch.compiler.is_compiling() or torch._C._is_any_autocast_enabled() or is_watched(input, weight, bias):
        return _conv_watched(
            input, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups, axes=axes
        )
    # All that decides who runs the call, and how; a look at it costs what a small convolution costs.
    trains = torch.is_grad_enabled() and (
        input.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    )
    call = (
        input.shape, input.stride(), input.dtype, input.device, weight.shape, weight.stride(), weight.dtype,
        weight.device, None if bias is None else (bias.shape, bias.stride(), bias.dtype, bias.device),
        stride if type(stride) is tuple else _hashable(stride), padding if type(padding) is tuple else
        _hashable(padding), dilation if type(dilation) is tuple else _hashable(dilation), groups, axes,
        torch.get_num_threads(), trains,
    )  # fmt: skip
    found, dense = known_calls.get(call) or _learn(
        call, input, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups, axes=axes,
        trains=trains,
    )  # fmt: skip
    if found.is_pytorch:
        return _PYTORCH[axes](input, weight, bias, stride, padding, dilation, found.problem.input_shape[1])
    if axes == 2 and input.dim() == 4:
        return convolve(found, input, weight, bias, dense=dense)
    return _without_added_axes(
        convolve(found, *_views_2d(input, weight, axes=axes), bias, dense=dense), input, axes=axes
    )


def _learn(
    call: object,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    stride: Size,
    padding: Size | str,
    dilation: Size,
    groups: int | None,
    axes: int,
    trains: bool,
) -> tuple[Plan, bool]:
    """Check a call that was not seen before, and remember who runs it, and whether its tensors lie densely."""
    x, w = as_2d(input, weight, bias, groups=groups, axes=axes)
    geometry = geometry_of(x, w, stride=stride, padding=padding, dilation=dilation, axes=axes)
    found = _plan_of(x, w, bias, geometry=geometry, layout=layout_of(x, w))
    dense = (
        x.is_contiguous(memory_format=found.memory_format)
        and w.is_contiguous()
        and (bias is None or bias.is_contiguous())
    )
    if len(known_calls) >= MOST_PLANS:
        forget_calls()
    known_calls[call] = found, dense
    compiled: object | None = None
    if found.is_pytorch and not isinstance(padding, str):
        pads = geometry[1][::2][-axes:]  # the same on both sides
        compiled = compiled_pytorch_call(found, axes=axes, padding=pads)
    elif dense:
        shaped = partial(_without_added_axes, input=input, axes=axes)
        compiled = compiled_call(found, input, weight, bias, axes=axes, trains=trains, shaped=shaped)
    if compiled is not None:
        native.learn(compiled, input, weight, bias, stride, padding, dilation, groups, axes)
    return found, dense


def _conv_watched(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    stride: Size,
    padding: Size | str,
    dilation: Size,
    groups: int | None,
    axes: int,
) -> Tensor:
    """Through PyTorch's dispatcher, for whoever is there: autocast, torch.compile, modes, subclasses of Tensor."""
    x, w = as_2d(input, weight, bias, groups=groups, axes=axes)
    geometry = geometry_of(x, w, stride=stride, padding=padding, dilation=dilation, axes=axes)
    layout = layout_of(x, w)
    if _is_for_pytorch(x, w, bias, geometry=geometry, layout=layout):
        return _PYTORCH[axes](input, weight, bias, stride, padding, dilation, x.shape[1])
    return _without_added_axes(ops.fprop(x, w, bias, *geometry, layout), input, axes=axes)


_PYTORCH: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d}


# -- who runs it -----------------------------------------------------------------------------------------------------


def _is_for_pytorch(x: Tensor, w: Tensor, bias: Tensor | None, *, geometry: Geometry, layout: Layout) -> bool:
    """True if PyTorch's own op does it all: then nothing of ours stands in its way."""
    if x.is_complex() or torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return True  # complex numbers, torch.func and forward-mode derivatives: ours know nothing of them
    if torch.compiler.is_compiling():
        return False  # decided when the compiled code runs
    return _plan_of(x, w, bias, geometry=geometry, layout=layout).is_pytorch


def _plan_of(x: Tensor, w: Tensor, bias: Tensor | None, *, geometry: Geometry, layout: Layout) -> Plan:
    stride, padding, dilation = geometry
    return plan(
        input_shape=x.shape, weight_shape=w.shape, stride=stride, padding=padding, dilation=dilation,
        dtype=running_dtype(x), device=x.device, layout=layout, bias=bias is not None,
    )  # fmt: skip


def running_dtype(x: Tensor) -> torch.dtype:
    """What the convolution computes in: autocast may lower it."""
    lowered = x.dtype is not torch.float64 and _is_autocast(x)
    return torch.get_autocast_dtype(x.device.type) if lowered else x.dtype


def _is_autocast(x: Tensor) -> bool:
    return x.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(x.device.type)


def layout_of(x: Tensor, w: Tensor) -> Layout:
    """How the result will lie in memory: channels_last if one of the two does, as with PyTorch's op."""
    return "nhwc" if _lies_channels_last(x) or _lies_channels_last(w) else "nchw"


def _lies_channels_last(tensor: Tensor) -> bool:
    """PyTorch's rule, which looks at the strides; they decide also where a size of 1 leaves it open."""
    sizes, strides = tensor.shape, tensor.stride()
    if strides[1] == 0:
        return False
    least = 0
    for axis in (1, 3, 2, 0):
        if sizes[axis] == 0 or strides[axis] < least or (axis == 0 and least == strides[1]):
            return False
        least = strides[axis] * sizes[axis]
    return True


# -- arguments -------------------------------------------------------------------------------------------------------


def as_2d(
    input: Tensor, weight: Tensor, bias: Tensor | None, *, groups: int | None, axes: int
) -> tuple[Tensor, Tensor]:
    """x as (N, C, H, W) and w as (C·multiplier, 1, KH, KW), with a batch of 1 or a height of 1 added where it lacks.

    Raises InvalidWorkload, naming what does not fit."""
    if input.dim() not in (axes + 1, axes + 2):
        wanted = {1: "(N, C, L) or (C, L)", 2: "(N, C, H, W) or (C, H, W)"}[axes]
        raise InvalidWorkload(f"input of shape {_x(input.shape)} is not {wanted}")
    _check(input, weight, bias, groups=groups, axes=axes)
    return _views_2d(input, weight, axes=axes)


def _views_2d(input: Tensor, weight: Tensor, *, axes: int) -> tuple[Tensor, Tensor]:
    x = input if input.dim() == axes + 2 else input.unsqueeze(0)
    return (x, weight) if axes == 2 else (x.unsqueeze(2), weight.unsqueeze(2))


def _without_added_axes(y: Tensor, input: Tensor, *, axes: int) -> Tensor:
    """``y`` with the axes of ``input``."""
    if axes == 1:
        y = y.squeeze(2)
    return y if input.dim() == axes + 2 else y.squeeze(0)


def _hashable(value: Size | str) -> Size | str:
    return value if isinstance(value, (int, str, tuple)) else tuple(value)


def _check(input: Tensor, weight: Tensor, bias: Tensor | None, *, groups: int | None, axes: int) -> None:
    channels = input.shape[-axes - 1]
    out_channels = weight.shape[0] if weight.dim() else 0
    if groups is not None and groups != channels:
        raise InvalidWorkload(
            f"groups={groups} with {channels} input channels is not depthwise; "
            f"use groups={channels}, or torch.nn.functional.conv{axes}d"
        )
    if weight.dim() != axes + 2 or weight.shape[1] != 1 or channels == 0 or out_channels % channels or not out_channels:
        wanted = {1: "(C·multiplier, 1, K)", 2: "(C·multiplier, 1, KH, KW)"}[axes]
        raise InvalidWorkload(f"weight of shape {_x(weight.shape)} is not {wanted} with C={channels} input channels")
    if bias is not None and bias.shape != (out_channels,):
        raise InvalidWorkload(f"bias of shape {_x(bias.shape)} does not fit {out_channels} output channels")
    for name, other in (("weight", weight), ("bias", bias)):
        if other is None:
            continue
        if other.device != input.device:
            raise InvalidWorkload(f"input is on {input.device}, {name} on {other.device}; move one of them")
        if other.dtype != input.dtype and not _is_autocast(input):
            raise InvalidWorkload(f"input is {input.dtype}, {name} {other.dtype}; convert one, or use torch.autocast")


def geometry_of(x: Tensor, w: Tensor, *, stride: Size, padding: Size | str, dilation: Size, axes: int) -> Geometry:
    """stride, padding, dilation of a 2-D convolution, from one value, one for each of ``axes``, or a name.

    Raises InvalidWorkload for a value out of range, or a kernel larger than the padded input."""
    strides = _per_axis("stride", stride, axes=axes, least=1)
    dilations = _per_axis("dilation", dilation, axes=axes, least=1)
    kernel, size = w.shape[2:], x.shape[2:]
    if isinstance(padding, str):
        pads = _named_padding(padding, kernel=kernel, strides=strides, dilations=dilations)
    else:
        pad_h, pad_w = _per_axis("padding", padding, axes=axes, least=0)
        pads = (pad_h, pad_h, pad_w, pad_w)
    for axis in (0, 1):
        padded = size[axis] + pads[2 * axis] + pads[2 * axis + 1]
        if padded <= dilations[axis] * (kernel[axis] - 1) or kernel[axis] == 0:
            raise InvalidWorkload(
                f"kernel={_x(kernel)} with dilation={_x(dilations)} does not fit the input of {_x(size)} "
                f"padded by {_x(pads)} (top, bottom, left, right); use a smaller kernel or more padding"
            )
    return strides, pads, dilations


def _named_padding(padding: str, *, kernel: Ints, strides: Ints, dilations: Ints) -> Ints:
    if padding == "valid":
        return (0, 0, 0, 0)
    if padding != "same":
        raise InvalidWorkload(f"padding={padding!r} is unknown; use a number, 'same' or 'valid'")
    if strides != (1, 1):
        raise InvalidWorkload(f"padding='same' needs stride 1, not {_x(strides)}; give the padding as a number")
    spread_h, spread_w = (dilations[axis] * (kernel[axis] - 1) for axis in (0, 1))
    return (spread_h // 2, spread_h - spread_h // 2, spread_w // 2, spread_w - spread_w // 2)


def _per_axis(name: str, value: Size, *, axes: int, least: int) -> Ints:
    """``value`` as (height, width); a 1-D convolution has a height on which nothing happens: stride 1, padding 0."""
    if isinstance(value, int):
        values: Ints = (value,) * axes
    else:
        values = tuple(value) * axes if len(value) == 1 else tuple(value)
        if len(values) != axes:
            raise InvalidWorkload(f"{name}={values} is not one number, or {axes}")
    for number in values:
        if number < least:
            raise InvalidWorkload(f"{name}={number} must be at least {least}")
    return values if axes == 2 else (least, *values)


def _x(sizes: Sequence[int]) -> str:
    return "×".join(str(size) for size in sizes)
