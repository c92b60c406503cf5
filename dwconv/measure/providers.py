"""PyTorch's own operator, called as its users call it, in both layouts: what a candidate is measured against.

The tensors of the other layout already lie in that layout: nobody pays for a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from dwconv.measure.timing import GLANCE, Call, Clock, time_in_turns
from dwconv.workload import LAYOUTS, Layout, Workload

_MEMORY_FORMAT = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
# What PyTorch's choice of a backend is called here; the rest goes by the name of PyTorch.
_LIBRARIES = {"Mkldnn": "onednn", "Cudnn": "cudnn", "CudaDepthwise2d": "aten"}


def pytorch_calls(workload: Workload, *inputs: torch.Tensor) -> dict[str, Call]:
    """PyTorch's operator on these inputs, by provider and layout: ``onednn-nhwc``, ``cudnn-nchw``, …"""
    calls: dict[str, Call] = {}
    for layout in LAYOUTS:
        name = f"{_library(workload, layout, device=inputs[0].device)}-{layout}"
        calls[name] = pytorch_call(workload, *laid_out(workload, *inputs, layout=layout))
    return calls


def laid_out(workload: Workload, *inputs: torch.Tensor, layout: Layout) -> list[torch.Tensor]:
    """The inputs of a pass, laid out as a model converted to ``layout`` has them."""
    return [
        tensor.contiguous(memory_format=_MEMORY_FORMAT[layout]) if tensor.dim() == 4 else tensor for tensor in inputs
    ]


def pytorch_call(workload: Workload, *inputs: torch.Tensor) -> Callable[[], Any]:
    """PyTorch's operator for the pass on these inputs, in whatever layout they have. It returns the result, or dw and
    dbias."""
    if workload.pass_ == "fprop":
        return lambda: _forward(workload, *inputs)
    first, second = inputs
    memory_format = torch.channels_last if _lies_channels_last(first) else torch.contiguous_format
    missing = "x" if workload.pass_ == "dgrad" else "w"  # asked for its shape only
    blank = torch.zeros(workload.shape_of(missing), dtype=first.dtype, device=first.device)
    blank = blank.contiguous(memory_format=memory_format)
    if workload.pass_ == "dgrad":
        return lambda: _backward(workload, dy=first, x=blank, w=second)
    return lambda: _backward(workload, dy=second, x=first, w=blank)


def better_layout(calls: dict[str, Call], *, clock: Clock) -> str:
    """The name of the fastest of ``calls``, by a glance."""
    taken = time_in_turns(calls, clock=clock, effort=GLANCE)
    return min(taken, key=lambda name: taken[name].median_us)


def _forward(workload: Workload, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    padding, surplus = _split_padding(workload)
    if any(surplus):
        x = F.pad(x, surplus)
    return F.conv2d(x, w, bias, workload.stride, padding, workload.dilation, workload.channels)


def _backward(workload: Workload, *, dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
    padding, surplus = _split_padding(workload)
    if any(surplus):
        x = F.pad(x, surplus)
    wants_dx = workload.pass_ == "dgrad"
    dx, dw, dbias = torch.ops.aten.convolution_backward(
        dy, x, w, [workload.out_channels], workload.stride, padding, workload.dilation, False, (0, 0),
        workload.channels, (wants_dx, not wants_dx, workload.bias),
    )  # fmt: skip
    if not wants_dx:
        return (dw, dbias) if workload.bias else _tensor(dw)
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
        torch.zeros(workload.with_batch(1).shape_of(name), dtype=dtype, device=device).contiguous(
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
