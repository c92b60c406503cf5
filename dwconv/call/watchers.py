"""Watchers: what observes a call besides eager autograd. ``native/watchers.h`` checks the same for the calls that C++
takes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._C import (
    _are_functorch_transforms_active,
    _get_dispatch_stack_at,
    _get_function_stack_at,
    _get_tracing_state,
    _is_any_autocast_enabled,
    _is_torch_function_mode_enabled,
    _len_torch_dispatch_stack,
    _len_torch_function_stack,
)
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

from dwconv import native

native.transparent_modes.add(DeviceContext)
"""``torch.device`` as a context, and ``torch.set_default_device``: it is for functions that make tensors of none."""


def is_watched(x: Tensor, w: Tensor, bias: Tensor | None) -> bool:
    """True if a compiler, autocast, a mode, a transform or a tracer is active, or if a tensor is not just numbers in
    memory. Such a call goes through PyTorch's dispatcher, where they observe it."""
    return bool(
        torch.compiler.is_compiling()  # first: a compiler cannot trace the rest
        or _is_any_autocast_enabled()
        or is_watched_beside_autocast(x, w, bias)
    )


def is_watched_beside_autocast(x: Tensor, w: Tensor, bias: Tensor | None) -> bool:
    """True if a call is watched in code that is not compiled, whether or not autocast is active."""
    return bool(
        is_looked_at()
        or type(x) not in _PLAIN
        or type(w) not in _PLAIN
        or x.is_neg()
        or w.is_neg()
        or not _has_memory(x)
        or not _has_memory(w)
        or (bias is not None and (type(bias) not in _PLAIN or bias.is_neg() or not _has_memory(bias)))
    )


def is_looked_at() -> bool:
    """True if a mode, a transform or a tracer observes each op of eager code."""
    return bool(
        _len_torch_dispatch_stack()
        or _are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or _get_tracing_state() is not None
        or (_is_torch_function_mode_enabled() and observing_mode() is not None)
    )


def observing_mode() -> Any:
    """The innermost mode that observes each function or op; None without one."""
    if count := _len_torch_dispatch_stack():
        return _get_dispatch_stack_at(count - 1)
    for i in reversed(range(_len_torch_function_stack() if _is_torch_function_mode_enabled() else 0)):
        mode = _get_function_stack_at(i)
        if type(mode) not in native.transparent_modes:
            return mode
    return None


def is_let_through(x: Tensor, w: Tensor, bias: Tensor | None) -> bool:
    """True if the modes that are active let a call of PyTorch's own tensors through."""
    if torch.compiler.is_compiling():
        return False
    return x is not None and w is not None and are_plain(x, w, bias) and observing_mode() is None


def is_of_dwconv(observer: object) -> bool:
    """True for modes and hooks by which dwconv itself observes a step on an example."""
    return str(getattr(observer, "__module__", "")).partition(".")[0] == "dwconv"


def is_watched_backward(dy: Tensor, *saved: Tensor | None) -> bool:
    """True if the gradients computed from ``dy`` may be differentiated again or are watched, or if ``dy`` is not just
    numbers in memory: it may be a batch of gradients, or a zero without memory. So may be what was ``saved``, once
    hooks have brought it back."""
    return bool(
        torch.is_grad_enabled()
        or _len_torch_dispatch_stack()
        or _are_functorch_transforms_active()
        or type(dy) not in _PLAIN
        or dy.is_neg()
        or not _has_memory(dy)
        or any(each is not None and (type(each) not in _PLAIN or each.is_neg()) for each in saved)
    )


def _has_memory(tensor: Tensor) -> bool:
    """False where nothing can be read at its address: a zero without memory, freed, or laid out as a library or a list
    of tensors is."""
    try:
        return not tensor.is_nested and (tensor.data_ptr() != 0 or tensor.numel() == 0)
    except RuntimeError:
        return False


def is_recorded_for_elsewhere() -> bool:
    """True under torch.export and torch.jit.trace, and whatever is built on them, as ONNX's exporters are: what they
    record runs in processes without dwconv, so it has PyTorch's own op."""
    if torch.compiler.is_compiling():  # a compiler cannot trace the rest
        # Not is_exporting(): up to PyTorch 2.11 it is True in all that the compiler traces.
        return torch.compiler._is_exporting_flag
    return _get_tracing_state() is not None


def is_spread(x: Tensor, w: Tensor) -> bool:
    """True for DTensors, whose parts are on several ranks."""
    return hasattr(x, "device_mesh") or hasattr(w, "device_mesh")


def is_unknown_to_our_ops(x: Tensor, w: Tensor) -> bool:
    """True for complex numbers, and under torch.func's transforms and forward-mode derivatives: only PyTorch's own op
    supports them."""
    return x.is_complex() or _are_functorch_transforms_active() or forward_ad._current_level >= 0


def is_foreign(x: Tensor, w: Tensor, bias: Tensor | None) -> bool:
    """True if one of them is not numbers at strides: sparse, nested, quantized, in MKLDNN's layout, or a zero without
    memory. They go to PyTorch's own op."""
    return any(
        tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized or tensor._is_zerotensor()
        for tensor in (x, w, bias)
        if isinstance(tensor, Tensor)
    )


def are_plain(*tensors: object) -> bool:
    """False for other types, such as subclasses, which may mean something else by what they hold."""
    return all(tensor is None or type(tensor) in _PLAIN for tensor in tensors)


_PLAIN = (Tensor, torch.nn.Parameter)
