"""One pass of a convolution: on the tuned kernel that a Plan names, or on PyTorch's own op.

Shapes are PyTorch's, for 1-D with a height of 1. Results lie in the plan's layout, whatever the arguments do.
Nothing here is differentiable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import profiler

from dwconv import pytorch
from dwconv.build.kernel import Kernel
from dwconv.plan import Plan
from dwconv.problem import MEMORY_FORMAT
from dwconv.workload import Layout

Ints = Sequence[int]


def fprop(plan: Plan, x: Tensor, w: Tensor, bias: Tensor | None, *, dense: bool = False) -> Tensor:
    """y. ``dense``, in all of these: the arguments lie without gaps, images in the plan's layout."""
    kernel = plan.kernels["fprop"]
    if kernel is None:
        return pytorch.fprop(plan.problem, x, w, bias)
    y: Tensor
    if bias is None:
        y = _run(kernel, dense, x, w)
    elif kernel.workload.bias:
        y = _run(kernel, dense, x, w, bias)
    else:
        y = _run(kernel, dense, x, w).add_(bias.view(-1, 1, 1))  # nobody has seen it yet
    return y


def dgrad(plan: Plan, dy: Tensor, w: Tensor, *, dense: bool = False) -> Tensor:
    """dx"""
    kernel = plan.kernels["dgrad"]
    if kernel is None:
        return pytorch.dgrad(plan.problem, dy, w)
    dx: Tensor = _run(kernel, dense, dy, w)
    return dx


def wgrad(plan: Plan, x: Tensor, dy: Tensor, *, dense: bool = False) -> Tensor:
    """dw"""
    kernel = plan.kernels["wgrad"]
    if kernel is None:
        return pytorch.wgrad(plan.problem, x, dy)
    if kernel.workload.bias:
        return wgrad_bias(plan, x, dy, dense=dense)[0]
    dw: Tensor = _run(kernel, dense, x, dy)
    return dw


def wgrad_bias(plan: Plan, x: Tensor, dy: Tensor, *, dense: bool = False) -> tuple[Tensor, Tensor]:
    """(dw, dbias)"""
    kernel = plan.kernels["wgrad"]
    if kernel is None:
        return pytorch.wgrad_bias(plan.problem, x, dy)
    if kernel.workload.bias:
        dw, dbias = _run(kernel, dense, x, dy)
        return dw, dbias
    return _run(kernel, dense, x, dy), dy.sum((0, 2, 3))


def strided(dw: Tensor, strides: Ints) -> Tensor:
    """dw with the strides of the weight, so that who flattens gradients, as DDP does, need not copy it. A weight that
    was made channels_last has another stride along its axis of length 1."""
    if dw.stride() == strides:
        return dw
    last = dw.squeeze(1).unsqueeze(-1).movedim(-1, 1)
    return last if last.stride() == strides else dw


def _run(kernel: Kernel, dense: bool, *inputs: Tensor) -> Any:
    if profiler._is_profiler_enabled and kernel.native is None:  # a profile without the names would be a riddle
        with profiler.record_function(f"dwconv::{kernel.workload.pass_}"):
            return kernel(*inputs)
    is_short = dense and kernel.is_direct and kernel.native is None
    return kernel.on_dense(*inputs) if is_short else kernel(*inputs)


def empty(shape: Ints, *, like: Tensor, layout: Layout) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=MEMORY_FORMAT[layout])
