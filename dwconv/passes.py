"""One pass of a convolution: on the tuned kernel that a Plan names, or on PyTorch's own op.

Shapes are PyTorch's, for 1-D with a height of 1. Results lie in the plan's layout, whatever the arguments do.
Nothing here is differentiable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import profiler

from dwconv.build.kernel import Kernel
from dwconv.plan import MEMORY_FORMAT, Plan
from dwconv.workload import Layout

Ints = Sequence[int]


def fprop(plan: Plan, x: Tensor, w: Tensor, bias: Tensor | None, *, dense: bool = False) -> Tensor:
    """y. ``dense``, in all of these: the arguments lie without gaps, images in the plan's layout."""
    kernel = plan.kernels["fprop"]
    if kernel is None:
        return _pytorch_fprop(plan, x, w, bias)
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
        return _pytorch_dgrad(plan, dy, w)
    dx: Tensor = _run(kernel, dense, dy, w)
    return dx


def wgrad(plan: Plan, x: Tensor, dy: Tensor, *, dense: bool = False) -> Tensor:
    """dw"""
    kernel = plan.kernels["wgrad"]
    if kernel is None:
        return _pytorch_wgrad(plan, x, dy, bias=False)[0]
    if kernel.workload.bias:
        return wgrad_bias(plan, x, dy, dense=dense)[0]
    dw: Tensor = _run(kernel, dense, x, dy)
    return dw


def wgrad_bias(plan: Plan, x: Tensor, dy: Tensor, *, dense: bool = False) -> tuple[Tensor, Tensor]:
    """(dw, dbias)"""
    kernel = plan.kernels["wgrad"]
    if kernel is None:
        return _pytorch_wgrad(plan, x, dy, bias=True)
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


# -- PyTorch's own ops -----------------------------------------------------------------------------------------------


def _pytorch_fprop(plan: Plan, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    stride, padding, dilation, _ = plan.geometry
    symmetric, pad = _split_padding(padding)
    y = F.conv2d(F.pad(x, pad) if pad else x, w, bias, stride, symmetric, dilation, x.shape[1])
    return y.contiguous(memory_format=plan.memory_format)


def _pytorch_dgrad(plan: Plan, dy: Tensor, w: Tensor) -> Tensor:
    batch, channels, height, width = plan.problem.input_shape
    stride, padding, dilation, layout = plan.geometry
    symmetric, (left, right, top, bottom) = _split_padding(padding, always=True)
    # Only its shape and its layout matter; it is never read, nor written.
    x = empty((batch, channels, height + top + bottom, width + left + right), like=dy, layout=layout)
    dx = _pytorch_backward(dy, x, w, stride, symmetric, dilation, mask=(True, False, False))[0]
    return dx[:, :, top : top + height, left : left + width].contiguous(memory_format=plan.memory_format)


def _pytorch_wgrad(plan: Plan, x: Tensor, dy: Tensor, *, bias: bool) -> tuple[Tensor, Tensor]:
    """dw, and dbias where it is wanted, from one call."""
    stride, padding, dilation, _ = plan.geometry
    symmetric, pad = _split_padding(padding)
    w = dy.new_empty(1).expand(plan.problem.weight_shape)  # only its shape matters
    padded = F.pad(x, pad) if pad else x
    _, dw, dbias = _pytorch_backward(dy, padded, w, stride, symmetric, dilation, mask=(False, True, bias))
    return dw.contiguous(), dbias


def _pytorch_backward(
    dy: Tensor, x: Tensor, w: Tensor, stride: Ints, padding: Ints, dilation: Ints, *, mask: tuple[bool, bool, bool]
) -> tuple[Tensor, Tensor, Tensor]:
    """Those of PyTorch's gradients, of x, w and the bias, that ``mask`` asks for; the others hold nothing."""
    gradients: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
        dy, x, w, [w.shape[0]], stride, padding, dilation, False, [0, 0], x.shape[1], mask
    )
    return gradients


def _split_padding(padding: Ints, *, always: bool = False) -> tuple[tuple[int, int], tuple[int, ...]]:
    """Padding as PyTorch's op takes it, and what has to be padded before: (left, right, top, bottom), empty for
    nothing unless ``always``."""
    top, bottom, left, right = padding
    if top == bottom and left == right:
        return (top, left), (0, 0, 0, 0) if always else ()
    return (0, 0), (left, right, top, bottom)


def empty(shape: Ints, *, like: Tensor, layout: Layout) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=MEMORY_FORMAT[layout])
