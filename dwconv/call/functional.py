"""``conv1d``, ``conv2d`` and ``conv3d``: depthwise convolution with exactly the meaning of PyTorch's, on tuned kernels
where they are faster."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch._C import _is_any_autocast_enabled
from torch.overrides import handle_torch_function, has_torch_function_variadic

from dwconv import native
from dwconv.call import call_plan, dispatched, quick, torch_ops
from dwconv.call.arguments import Arguments, Padding, Size
from dwconv.call.watchers import is_watched_beside_autocast


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Padding = 0,
    dilation: Size = 1,
    groups: int | None = None,
) -> Tensor:
    """``torch.nn.functional.conv2d(…, groups=in_channels)``, differentiable to any order.

    ``input`` is (N, C, H, W) or (C, H, W), contiguous or channels_last, and the result lies likewise; ``weight`` is
    (C·multiplier, 1, KH, KW), ``bias`` (C·multiplier). ``padding`` may be ``"same"`` or ``"valid"``; or, as
    PyTorch's may not, ((top, bottom), (left, right)). ``groups``, where given, must be C. Any batch size. What is
    untuned, slower or unsupported runs on PyTorch's own op.

    Raises InvalidCall, a RuntimeError, for sizes or types that are no depthwise convolution, and InvalidArgument, a
    TypeError, for what is no tensor or no whole number. Both name it, and both are InvalidWorkload.
    """
    if not torch.compiler.is_compiling():  # which cannot look into C++
        y: Tensor | None = native.convolve(input, weight, bias, stride, padding, dilation, groups, 2)
        if y is not None:
            return y
    return _convolve(conv2d, Arguments(input, weight, bias, stride, padding, dilation, groups, 2))


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Padding = 0,
    dilation: Size = 1,
    groups: int | None = None,
) -> Tensor:
    """``torch.nn.functional.conv1d(…, groups=in_channels)``, differentiable to any order.

    ``input`` is (N, C, L) or (C, L), ``weight`` (C·multiplier, 1, K), and padding per side is
    ((left, right),); the rest is as in ``conv2d``.
    """
    if not torch.compiler.is_compiling():
        y: Tensor | None = native.convolve(input, weight, bias, stride, padding, dilation, groups, 1)
        if y is not None:
            return y
    return _convolve(conv1d, Arguments(input, weight, bias, stride, padding, dilation, groups, 1))


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Padding = 0,
    dilation: Size = 1,
    groups: int | None = None,
) -> Tensor:
    """``torch.nn.functional.conv3d(…, groups=in_channels)``, differentiable to any order.

    ``input`` is (N, C, D, H, W) or (C, D, H, W), contiguous or channels_last_3d, ``weight`` (C·multiplier, 1, KD, KH,
    KW), and padding per side is ((front, back), (top, bottom), (left, right)); the rest is as in ``conv2d``.
    """
    if not torch.compiler.is_compiling():
        y: Tensor | None = native.convolve(input, weight, bias, stride, padding, dilation, groups, 3)
        if y is not None:
            return y
    return _convolve(conv3d, Arguments(input, weight, bias, stride, padding, dilation, groups, 3))


def conv_of_layer(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Size,
    padding: Padding,
    dilation: Size,
    groups: int,
    axes: int,
) -> Tensor:
    """What a layer computes: the same, and PyTorch's op where its groups and its weight were changed since, as who
    prunes or groups anew does, and are no longer depthwise."""
    if not torch.compiler.is_compiling():
        y: Tensor | None = native.convolve(input, weight, bias, stride, padding, dilation, groups, axes)
        if y is not None:
            return y
    given = Arguments(input, weight, bias, stride, padding, dilation, groups, axes)
    is_traced = torch.jit.is_tracing()  # type: ignore[no-untyped-call, attr-defined]
    if not is_traced and isinstance(weight, Tensor) and weight.dim() > 1 and weight.shape[1] != 1:
        return given.on_pytorch()
    return _convolve(_FUNCTIONS[axes], given)


_FUNCTIONS: dict[int, Callable[..., Tensor]] = {1: conv1d, 2: conv2d, 3: conv3d}


def _convolve(function: Callable[..., Tensor], given: Arguments) -> Tensor:
    """A call that C++ has not learnt, on the road for those who look at it."""
    if has_torch_function_variadic(given.input, given.weight):  # a subclass, or a proxy that traces, decides instead
        result: Tensor = handle_torch_function(function, given[:2], *given[:-1])
        return result
    if torch.compiler.is_compiling() or is_watched_beside_autocast(given.input, given.weight, given.bias):
        return dispatched.convolve(given)
    lowered = given.lowered() if _is_any_autocast_enabled() else given
    return dispatched.convolve(given) if lowered is None else quick.convolve(lowered, layers_weight=given.weight)


def reset() -> None:
    """Forget all decisions, kernels and warnings, and read the tuning logs again when they are next needed."""
    call_plan.forget()
    torch_ops.forget()
    quick.forget()
