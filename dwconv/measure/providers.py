"""PyTorch's own operator, called as its users call it, in both layouts: what a candidate is measured against.

The tensors of the other layout already lie in that layout: nobody pays for a copy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from dwconv.measure.clock.timing import GLANCE, Call, Clock, time_in_turns
from dwconv.problems import pytorch
from dwconv.problems.memory_format import memory_format
from dwconv.problems.problem import Problem
from dwconv.problems.workload import LAYOUTS, Layout, Workload

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
    lies = memory_format(layout, axes=workload.axes)
    return [tensor.contiguous(memory_format=lies) if tensor.dim() > 1 else tensor for tensor in inputs]


def pytorch_call(workload: Workload, *inputs: torch.Tensor) -> Callable[[], Any]:
    """PyTorch's operator for the pass on these inputs, in whatever layout they have, as a call runs it where no kernel
    is faster. It returns the result, or dw and dbias. A gradient of an activation has its sums from the forward pass,
    which PyTorch's keeps."""
    layout: Layout = "nhwc" if _lies_channels_last(inputs[0]) else "nchw"
    problem = dataclasses.replace(Problem.of(workload), layout=layout)
    first, second, *others = inputs
    if workload.pass_ == "fprop":
        bias = others[0] if workload.bias else None
        if workload.epilogue == "silu_gradient":
            z = pytorch.fprop(problem, first, second, bias)
            return lambda: pytorch.silu_gradient(problem, z, others[-1])
        return lambda: pytorch.activated(problem, pytorch.fprop(problem, first, second, bias))
    if workload.pass_ == "dgrad":
        return lambda: pytorch.dgrad(problem, first, second)
    wgrad = pytorch.wgrad_bias if workload.bias else pytorch.wgrad
    return lambda: wgrad(problem, first, second)


def better_layout(calls: dict[str, Call], *, clock: Clock) -> str:
    """The name of the fastest of ``calls``, by a glance."""
    taken = time_in_turns(calls, clock=clock, effort=GLANCE)
    return min(taken, key=lambda name: taken[name].median_us)


def _library(workload: Workload, layout: Layout, *, device: torch.device) -> str:
    """Who runs PyTorch's operator; ``pytorch`` where it does not tell."""
    dtype = getattr(torch, workload.dtype)
    x, w = laid_out(
        workload,
        *(torch.zeros(workload.with_batch(1).shape_of(name), dtype=dtype, device=device) for name in ("x", "w")),
        layout=layout,
    )
    padding, _ = pytorch.split_padding(Problem.of(workload).padding)
    try:
        backend = torch._C._select_conv_backend(
            x, w, None, workload.stride, padding, workload.dilation, False, [0] * workload.axes, workload.channels
        )
    except (AttributeError, RuntimeError, TypeError):  # private, so it may change
        return "pytorch"
    return _LIBRARIES.get(str(backend).rpartition(".")[2], "pytorch")


def _lies_channels_last(tensor: torch.Tensor) -> bool:
    return tensor.movedim(1, -1).is_contiguous() and not tensor.is_contiguous()
