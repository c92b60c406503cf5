"""PyTorch's own operator, called as its users call it, in both layouts: what a candidate is measured against.

The tensors of the other layout already lie in that layout: nobody pays for a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from dwconv.measure.timing import GLANCE, Call, Clock, time_in_turns
from dwconv.reference import shape_of
from dwconv.workload import LAYOUTS, Layout, Workload

_MEMORY_FORMAT = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
# What PyTorch's choice of a backend is called here; the rest goes by the name of PyTorch.
_LIBRARIES = {"Mkldnn": "onednn", "Cudnn": "cudnn", "CudaDepthwise2d": "aten"}


def pytorch_calls(workload: Workload, first: torch.Tensor, second: torch.Tensor) -> dict[str, Call]:
    """PyTorch's operator on these inputs, by provider and layout: ``onednn-nhwc``, ``cudnn-nchw``, …"""
    calls: dict[str, Call] = {}
    for layout in LAYOUTS:
        memory_format = _MEMORY_FORMAT[layout]
        laid_out = [tensor.contiguous(memory_format=memory_format) for tensor in (first, second)]
        calls[f"{_library(workload, layout, device=first.device)}-{layout}"] = pytorch_call(workload, *laid_out)
    return calls


def pytorch_call(workload: Workload, first: torch.Tensor, second: torch.Tensor) -> Callable[[], torch.Tensor]:
    """PyTorch's operator for the pass on these inputs, in whatever layout they have."""
    if workload.pass_ == "fprop":
        return lambda: _forward(workload, first, second)
    memory_format = torch.channels_last if _lies_channels_last(first) else torch.contiguous_format
    missing = "x" if workload.pass_ == "dgrad" else "w"  # asked for its shape only
    blank = torch.zeros(shape_of(workload, missing), dtype=first.dtype, device=first.device)
    blank = blank.contiguous(memory_format=memory_format)
    if workload.pass_ == "dgrad":
        return lambda: _backward(workload, dy=first, x=blank, w=second)
    return lambda: _backward(workload, dy=second, x=first, w=blank)


def better_layout(calls: dict[str, Call], *, clock: Clock) -> str:
    """The name of the fastest of ``calls``, by a glance."""
    taken = time_in_turns(calls, clock=clock, effort=GLANCE)
    return min(taken, key=lambda name: taken[name].median_us)


def _forward(workload: Workload, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    padding, surplus = _split_padding(workload)
    if any(surplus):
        x = F.pad(x, surplus)
    return F.conv2d(x, w, stride=workload.stride, padding=padding, dilation=workload.dilation, groups=workload.channels)


def _backward(workload: Workload, *, dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    padding, surplus = _split_padding(workload)
    if any(surplus):
        x = F.pad(x, surplus)
    wants_dx = workload.pass_ == "dgrad"
    dx, dw, _ = torch.ops.aten.convolution_backward(
        dy, x, w, None, workload.stride, padding, workload.dilation, False, (0, 0), workload.channels,
        (wants_dx, not wants_dx, False),
    )  # fmt: skip
    if not wants_dx:
        return _tensor(dw)
    return F.pad(_tensor(dx), [-width for width in surplus]) if any(surplus) else _tensor(dx)


def _split_padding(workload: Workload) -> tuple[tuple[int, int], list[int]]:
    """(padding that is the same on both sides, what is over on the left, right, top, bottom): PyTorch's operator takes
    the first only, and copies for the second."""
    (top, bottom), (left, right) = workload.padding
    rows, columns = min(top, bottom), min(left, right)
    return (rows, columns), [left - columns, right - columns, top - rows, bottom - rows]


def _library(workload: Workload, layout: Layout, *, device: torch.device) -> str:
    """Who runs PyTorch's operator; ``pytorch`` where it does not tell."""
    dtype = getattr(torch, workload.dtype)
    x, w = (
        torch.zeros(shape_of(workload.with_batch(1), name), dtype=dtype, device=device).contiguous(
            memory_format=_MEMORY_FORMAT[layout]
        )
        for name in ("x", "w")
    )
    padding, _ = _split_padding(workload)
    try:
        backend = torch._C._select_conv_backend(
            x, w, None, workload.stride, padding, workload.dilation, False, (0, 0), workload.channels
        )
    except (AttributeError, RuntimeError, TypeError):  # private, so it may change
        return "pytorch"
    return _LIBRARIES.get(str(backend).rpartition(".")[2], "pytorch")


def _lies_channels_last(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()


def _tensor(result: Any) -> torch.Tensor:
    assert isinstance(result, torch.Tensor)
    return result
