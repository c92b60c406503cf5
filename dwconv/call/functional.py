"""``conv1d``, ``conv2d`` and ``conv3d``: depthwise convolution with exactly the meaning of PyTorch's, on tuned kernels
where they are faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import _is_any_autocast_enabled, _is_torch_function_mode_enabled
from torch.nn import Parameter
from torch.overrides import (
    TorchFunctionMode,
    _get_overloaded_args,
    handle_torch_function,
    has_torch_function_variadic,
)

from dwconv import native
from dwconv.call import fast_path, through_dispatcher
from dwconv.call.arguments import AnyArguments, CallArguments, Padding, Size
from dwconv.call.warned_once import warn_once
from dwconv.call.watchers import is_let_through, is_watched_beside_autocast
from dwconv.errors import InvalidArgument, InvalidWorkload


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

    ``input`` is (N, C, H, W) or (C, H, W), contiguous or channels_last, and so is the result; ``weight`` is
    (C·multiplier, 1, KH, KW), ``bias`` (C·multiplier). ``padding`` may be ``"same"`` or ``"valid"``; or, as PyTorch's
    may not, ((top, bottom), (left, right)). ``groups``, where given, must be C. Any batch size. What is untuned, slower
    or unsupported runs on PyTorch's own op.

    Raises InvalidCall, a RuntimeError, for sizes or types that are no depthwise convolution, and InvalidArgument, a
    TypeError, for what is no tensor or no whole number. Both name it, and both are InvalidWorkload.
    """
    if not torch.compiler.is_compiling():  # which cannot look into C++
        y: Tensor | None = native.convolve(input, weight, bias, stride, padding, dilation, groups, 2)
        if y is not None:
            return y
    return on_its_road(conv2d, CallArguments(input, weight, bias, stride, padding, dilation, groups, 2))


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
    return on_its_road(conv1d, CallArguments(input, weight, bias, stride, padding, dilation, groups, 1))


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
    return on_its_road(conv3d, CallArguments(input, weight, bias, stride, padding, dilation, groups, 3))


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
    """What a layer computes: the same, and PyTorch's op where its groups and its weight were changed since, by pruning
    or regrouping, and are no longer depthwise."""
    if not torch.compiler.is_compiling():
        y: Tensor | None = native.convolve(input, weight, bias, stride, padding, dilation, groups, axes)
        if y is not None:
            return y
    given = CallArguments(input, weight, bias, stride, padding, dilation, groups, axes)
    is_traced = torch.jit.is_tracing()  # type: ignore[no-untyped-call, attr-defined]
    is_plain = type(weight) in (Tensor, Parameter) and not weight.is_nested
    if is_plain and not is_traced and weight.dim() > 1 and weight.shape[1] != 1:
        return given.on_pytorch()
    return on_its_road(_FUNCTIONS[axes], given)


_FUNCTIONS: dict[int, Callable[..., Tensor]] = {1: conv1d, 2: conv2d, 3: conv3d}


def on_its_road(
    function: Callable[..., Tensor],
    given: AnyArguments,
    *,
    through_dispatcher: Callable[[Any], Tensor] = through_dispatcher.convolve,
    fast: Callable[..., Tensor] = fast_path.convolve,
) -> Tensor:
    """A call of ``function`` that C++ cannot run yet, on the road that its watchers need: ``through_dispatcher`` or
    ``fast``."""
    if has_torch_function_variadic(*given[:3]) and not is_let_through(*given[:3]):
        # A mode, a subclass, or a proxy that traces, decides instead.
        is_mode = torch.compiler.is_compiling() or _is_torch_function_mode_enabled()
        if not is_mode and any(map(_knows_pytorch_alone, given[:3])):
            return _as_pytorchs(function, given)
        if type(getattr(given.input, "tracer", None)).__module__.startswith("torch.ao.quantization"):
            warn_once(
                "FX quantisation supports PyTorch's own layers alone, and leaves those of dwconv as they are: call "
                "dwconv.revert(model) first"
            )
        return handle_torch_function(function, given[:3], *given[:-1])
    try:
        if torch.compiler.is_compiling() or is_watched_beside_autocast(given.input, given.weight, given.bias):
            return through_dispatcher(given)
        lowered = given.lowered() if _is_any_autocast_enabled() else given
        if lowered is None:
            return through_dispatcher(given)
        return fast(lowered, layers_weight=given.weight)
    except InvalidWorkload as error:
        return _as_pytorch_takes(given, error)


def _as_pytorch_takes(given: AnyArguments, error: InvalidWorkload) -> Tensor:
    """What PyTorch's op does with a call that raised ``error`` here: it takes placeholders on ``meta`` beside numbers,
    and under a compiler arrays of numpy. Other errors stay those of here, unless PyTorch's are of another type, or a
    compiler is to raise them."""
    tensors = [each for each in given[:3] if isinstance(each, Tensor)]
    are_alike = len(tensors) == 3 - (given.bias is None) and len({(each.dtype, each.device) for each in tensors}) == 1
    is_read_anywhere = any(each.is_meta for each in tensors) and not getattr(given.input, "is_meta", False)
    if is_read_anywhere or (are_alike and not torch.compiler.is_compiling()):
        raise error
    try:
        y = given.on_pytorch()
    except Exception as theirs:
        if isinstance(error, type(theirs)):
            raise error from None
        raise
    if not isinstance(given.input, Tensor) or given.input.is_meta:
        return y
    raise error


def _knows_pytorch_alone(tensor: object) -> bool:
    """True for subclasses that replace functions of PyTorch's, such as those with a gradient for each image: they do
    not support ours."""
    own = getattr(type(tensor).__torch_function__, "__func__", None) if isinstance(tensor, Tensor) else None
    usual = Tensor.__torch_function__.__func__  # type: ignore[attr-defined]
    return own is not None and own is not usual and not hasattr(tensor, "knows_dwconv")


def _as_pytorchs(ours: Callable[..., Tensor], given: AnyArguments) -> Tensor:
    """y, of such a subclass: its ``__torch_function__`` decides what becomes of PyTorch's function. Calls of that
    function on numbers run on dwconv."""
    if (as_pytorchs := given.as_pytorchs()) is None:
        return given.on_pytorch()
    theirs, arguments = as_pytorchs
    overloading = _get_overloaded_args(given[:3])
    types = tuple(map(type, overloading))
    with _OnNumbers(theirs, ours):
        for each in overloading:
            y: Any = type(each).__torch_function__(theirs, types, arguments, {})
            if y is not NotImplemented:
                return y
    raise InvalidArgument(f"none of {', '.join(kind.__name__ for kind in types)} supports {theirs.__name__}")


class _OnNumbers(TorchFunctionMode):
    """A function of PyTorch's is ours, where no subclass is left to decide."""

    def __init__(self, theirs: Callable[..., Tensor], ours: Callable[..., Tensor]) -> None:
        super().__init__()
        self._theirs, self._ours = theirs, ours

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is self._theirs and not types:
            try:
                return self._ours(*args, **(kwargs or {}))
            except InvalidWorkload:  # such as other groups by now
                pass
        return func(*args, **(kwargs or {}))
