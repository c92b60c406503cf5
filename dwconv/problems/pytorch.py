"""PyTorch's own op, pass by pass: what runs where no kernel is faster, and what kernels are measured against.

Of a pass, shapes are PyTorch's, for 1-D with a height of 1, and results lie in the problem's layout, whatever the
arguments do. The passes are not differentiable.

PyTorch's op pads both sides alike. What one side has more is padded before it, which copies the image, and cut off a
gradient after it; PyTorch does the same for ``padding="same"`` with an even kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from dwconv.problems.memory_format import MEMORY_FORMAT
from dwconv.problems.problem import Problem

OPS: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d}
"""For a whole call, derivative and all, by the number of axes."""

Sides = tuple[int, int, int, int]


def fprop(problem: Problem, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """y"""
    padding, surplus = split_padding(problem.padding)
    y = F.conv2d(padded(x, surplus), w, bias, problem.stride, padding, problem.dilation, x.shape[1])
    return y.contiguous(memory_format=MEMORY_FORMAT[problem.layout])


def dgrad(problem: Problem, dy: Tensor, w: Tensor) -> Tensor:
    """dx"""
    batch, channels, height, width = problem.input_shape
    padding, (left, right, top, bottom) = split_padding(problem.padding)
    memory_format = MEMORY_FORMAT[problem.layout]
    # PyTorch asks only for its shape and its layout: it is never read, nor written.
    x = torch.empty(
        (batch, channels, height + top + bottom, width + left + right),
        dtype=dy.dtype, device=dy.device, memory_format=memory_format,
    )  # fmt: skip
    dx, _, _ = _backward(problem, dy, x, w, padding=padding, mask=(True, False, False))
    return dx[:, :, top : top + height, left : left + width].contiguous(memory_format=memory_format)


def wgrad(problem: Problem, x: Tensor, dy: Tensor) -> Tensor:
    """dw"""
    return _wgrad(problem, x, dy, bias=False)[0]


def wgrad_bias(problem: Problem, x: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """(dw, dbias), from one call."""
    return _wgrad(problem, x, dy, bias=True)


def split_padding(padding: Sequence[int]) -> tuple[tuple[int, int], Sides]:
    """(top, bottom, left, right) as what PyTorch's op takes, (height, width), and what is over: (left, right, top,
    bottom), as ``F.pad`` takes it."""
    top, bottom, left, right = padding
    rows, columns = min(top, bottom), min(left, right)
    return (rows, columns), (left - columns, right - columns, top - rows, bottom - rows)


def _wgrad(problem: Problem, x: Tensor, dy: Tensor, *, bias: bool) -> tuple[Tensor, Tensor]:
    padding, surplus = split_padding(problem.padding)
    w = dy.new_empty(1).expand(problem.weight_shape)  # PyTorch asks only for its shape
    _, dw, dbias = _backward(problem, dy, padded(x, surplus), w, padding=padding, mask=(False, True, bias))
    return dw.squeeze(1).contiguous().unsqueeze(1), dbias  # the stride along an axis of length 1 may be any


def padded(x: Tensor, surplus: Sides) -> Tensor:
    """x with more around it; x itself if there is no more."""
    return F.pad(x, surplus) if any(surplus) else x


def _backward(
    problem: Problem, dy: Tensor, x: Tensor, w: Tensor, *, padding: tuple[int, int], mask: tuple[bool, bool, bool]
) -> tuple[Tensor, Tensor, Tensor]:
    """Those of PyTorch's gradients, of x, w and the bias, that ``mask`` asks for; the others hold nothing."""
    gradients: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
        dy, x, w, [w.shape[0]], problem.stride, padding, problem.dilation, False, [0, 0], x.shape[1], mask
    )
    return gradients
