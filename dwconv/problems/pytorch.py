"""PyTorch's own op, pass by pass: what runs where no kernel is faster, and what kernels are measured against.

Of a pass, shapes are PyTorch's, for 1-D with a height of 1, and results have the problem's layout, whatever that of the
arguments. The passes are not differentiable.

PyTorch's op pads both sides alike. The excess of one side is padded before it, which copies the image, and cut off a
gradient after it; PyTorch does the same for ``padding="same"`` with an even kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dwconv.problems.block import Activation, Block
from dwconv.problems.problem import Problem

OPS: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
"""For a whole call, derivative and all, by the number of axes."""
TRANSPOSED_OPS: dict[int, Callable[..., Tensor]] = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}

Ints = tuple[int, ...]


def fprop(problem: Problem, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    padding, surplus = split_padding(problem.padding)
    y = OPS[problem.axes](padded(x, surplus), w, bias, problem.stride, padding, problem.dilation, x.shape[1])
    return y.contiguous(memory_format=problem.memory_format)


def activated(problem: Problem, z: Tensor) -> Tensor:
    """y, where the problem has an activation; otherwise what it is given."""
    return F.silu(z) if problem.epilogue == "silu" else z


def silu_gradient(problem: Problem, z: Tensor, dy: Tensor) -> Tensor:
    dz: Tensor = torch.ops.aten.silu_backward(dy, z)
    return dz.contiguous(memory_format=problem.memory_format)


def dgrad(problem: Problem, dy: Tensor, w: Tensor) -> Tensor:
    batch, channels, *size = problem.input_shape
    padding, surplus = split_padding(problem.padding)
    before, after = _by_axis(surplus)
    # PyTorch reads only its shape and its layout, never its values, nor does it write them.
    x = torch.empty(
        (batch, channels, *map(sum, zip(size, before, after, strict=True))),
        dtype=dy.dtype, device=dy.device, memory_format=problem.memory_format,
    )  # fmt: skip
    dx, _, _ = _backward(problem, dy, x, w, padding=padding, mask=(True, False, False))
    return _inner(problem, dx, surplus)


def wgrad(problem: Problem, x: Tensor, dy: Tensor) -> Tensor:
    return _wgrad(problem, x, dy, bias=False)[0]


def wgrad_bias(problem: Problem, x: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """(dw, dbias), from one call."""
    return _wgrad(problem, x, dy, bias=True)


def backward(problem: Problem, x: Tensor, dy: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """(dx, dw), from one call."""
    padding, surplus = split_padding(problem.padding)
    dx, dw, _ = _backward(problem, dy, padded(x, surplus), w, padding=padding, mask=(True, True, False))
    return _inner(problem, dx, surplus), _dense(dw)


def transposed_backward(
    problem: Problem,
    output_padding: Ints,
    tensors: tuple[Tensor, Tensor, Tensor],
    *,
    mask: tuple[bool, bool, bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of x, w and the bias that ``mask`` names, of a transposed convolution; from one call. ``problem``:
    the convolution whose dgrad it is; ``tensors``: x, (C, multiplier, KH, KW) of w, and dy."""
    x, w, dy = tensors
    found: tuple[Tensor | None, Tensor | None, Tensor | None] = torch.ops.aten.convolution_backward(
        dy, x, w, [dy.shape[1]], problem.stride, problem.padding[::2], problem.dilation, True, output_padding,
        x.shape[1], mask,
    )  # fmt: skip
    return found


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "identity": lambda z: z,
    "relu": lambda z: F.relu(z, inplace=True),
    "relu6": lambda z: F.relu6(z, inplace=True),
    "hardswish": lambda z: F.hardswish(z, inplace=True),
    "silu": lambda z: F.silu(z, inplace=True),
    "gelu": F.gelu,
}
"""In place where PyTorch can, as in networks."""
_aten = torch.ops.aten
ACTIVATION_GRADIENTS: dict[Activation, Callable[[Tensor, Tensor], Tensor]] = {
    "identity": lambda d, z: d,
    "relu": lambda d, z: _aten.threshold_backward(d, z, 0),
    "relu6": lambda d, z: _aten.hardtanh_backward(d, z, 0, 6),
    "hardswish": _aten.hardswish_backward,
    "silu": _aten.silu_backward,
    "gelu": _aten.gelu_backward,
}
"""From the gradient of an activation's result, and what it was given, to the gradient of that."""


Held = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None, float]
"""Running mean, running variance, γ, β and momentum of a norm."""


def block_of(
    block: Block, convolve: Callable[[Tensor], Tensor], x: Tensor, norms: Iterable[Held], *, trains: bool
) -> Tensor:
    """z, one op after the other, each differentiable. ``convolve``: from what the convolution reads to y. Frozen norms
    use the running statistics, whether the rest ``trains`` or not."""
    given = iter(norms)
    for norm, act, then in ((block.norm1, block.act1, convolve), (block.batch_norm2, block.act2, None)):
        if norm:
            mean, variance, gamma, beta, momentum = next(given)
            if norm.is_of_images:
                x = F.group_norm(x, x.shape[1], gamma, beta, norm.eps)
            else:
                learns = trains and not norm.is_frozen
                x = F.batch_norm(x, mean, variance, gamma, beta, learns, momentum, norm.eps)
        x = ACTIVATIONS[act](x) if norm or act == "identity" else ACTIVATIONS[act](x.clone())
        x = then(x) if then else x
    return x


def block_forward(block: Block, convolve: Callable[[Tensor], Tensor], x: Tensor, *norms: Tensor) -> Tensor:
    """z in training. ``norms``: γ and β of each norm; of a frozen one also mean and variance."""
    if block.layer_norm:
        return layer_norm(convolve(x), *norms, eps=block.layer_norm.eps)
    given, held = iter(norms), []
    for norm in block.batch_norms:
        gamma, beta = next(given), next(given)
        statistics = (next(given), next(given)) if norm.is_frozen else (None, None)
        held.append((*statistics, gamma, beta, 0.0))
    return block_of(block, convolve, x, held, trains=True)


def block_inference(block: Block, convolve: Callable[[Tensor], Tensor], x: Tensor, *norms: Tensor) -> Tensor:
    """z in evaluation. ``norms``: γ, β, mean and variance of each norm."""
    held = [(*norms[at + 2 : at + 4], *norms[at : at + 2], 0.0) for at in range(0, len(norms), 4)]
    return block_of(block, convolve, x, held, trains=False)  # type: ignore[arg-type]


def layer_norm(y: Tensor, gamma: Tensor, beta: Tensor, *, eps: float) -> Tensor:
    """z, of every pixel over its channels, which are the last axis in memory: y is channels_last."""
    z = F.layer_norm(y.movedim(1, -1), gamma.shape, gamma.to(y.dtype), beta.to(y.dtype), eps)
    return z.movedim(-1, 1)


def dbias(dy: Tensor) -> Tensor:
    return dy.sum((0, *range(2, dy.dim())))


def split_padding(padding: Sequence[int]) -> tuple[Ints, Ints]:
    """(top, bottom, left, right) as what PyTorch's op takes, (height, width), and what is over: (left, right, top,
    bottom), as ``F.pad`` takes it, the last axis first."""
    sides = list(zip(padding[::2], padding[1::2], strict=True))
    surplus = tuple(side - min(pair) for pair in reversed(sides) for side in pair)
    return tuple(map(min, sides)), surplus


def _wgrad(problem: Problem, x: Tensor, dy: Tensor, *, bias: bool) -> tuple[Tensor, Tensor]:
    padding, surplus = split_padding(problem.padding)
    w = dy.new_empty(1).expand(problem.weight_shape)  # PyTorch reads only its shape
    _, dw, dbias = _backward(problem, dy, padded(x, surplus), w, padding=padding, mask=(False, True, bias))
    return _dense(dw), dbias


def _dense(dw: Tensor) -> Tensor:
    return dw.squeeze_(1).contiguous().unsqueeze_(1)  # the stride along an axis of length 1 may be any


def _by_axis(surplus: Ints) -> tuple[Ints, Ints]:
    """What is over before and after, the first axis first."""
    return surplus[::2][::-1], surplus[1::2][::-1]


def _inner(problem: Problem, dx: Tensor, surplus: Ints) -> Tensor:
    """dx without the gradient of what was padded, in the problem's layout; no view, as PyTorch's is none."""
    if not any(surplus):
        return dx.contiguous(memory_format=problem.memory_format)
    before, size = _by_axis(surplus)[0], problem.input_shape[2:]
    inner: Any = (..., *(slice(start, start + length) for start, length in zip(before, size, strict=True)))
    return dx[inner].clone(memory_format=problem.memory_format)


def padded(x: Tensor, surplus: Ints) -> Tensor:
    """x with more around it; x itself if there is no more."""
    return F.pad(x, surplus) if any(surplus) else x


def _backward(
    problem: Problem, dy: Tensor, x: Tensor, w: Tensor, *, padding: Ints, mask: tuple[bool, bool, bool]
) -> tuple[Tensor, Tensor, Tensor]:
    """Those of PyTorch's gradients, of x, w and the bias, that ``mask`` names; the others hold nothing."""
    gradients: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
        dy, x, w, [w.shape[0]], problem.stride, padding, problem.dilation, False, [0] * problem.axes, x.shape[1], mask
    )
    return gradients
