"""What a right answer is, and how far off is still right.

Every pass is a sum over taps: shifted slices of the tensors, multiplied and added in float64, one tap at a time.
Nothing here uses PyTorch's convolutions, which are among what is compared.

Tensors have PyTorch's shapes (``Workload.shape_of``); a pass's inputs and results come in the order of
``Workload.inputs`` and ``Workload.results``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from dwconv.workload import IMAGES, Workload

Data = Literal["integers", "normal"]
"""Test data: ``integers`` are so small that every order of summation in float32 gives the exact result; ``normal``
are drawn from a normal distribution."""

# Up to here float32 holds every whole number.
_EXACT = 2**24
# Rounding errors of a sum of n terms grow like sqrt(n) if they are independent; the constant covers short sums,
# where they are not, and the few roundings outside the sum.
_SHORT_SUM = 8.0
# Relative rounding error of one float32 operation, and of storing a result. Kernels sum in float32.
_SUM_ROUNDING = 2.0**-24
_STORE_ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# Results below the smallest normal number of a type are rounded to a fixed step.
_SMALLEST_STEP = {"float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One right result and how far off a kernel may be, element by element."""

    expected: torch.Tensor
    """In float64; in the workload's dtype if the answer is exact."""
    allowed: torch.Tensor | None
    """In float64; None if the answer is exact."""


def right_answers(workload: Workload, *inputs: torch.Tensor) -> tuple[Answer, ...]:
    """The results of ``workload`` on these inputs. Exact if all are whole numbers so small that float32 sums of them
    cannot round; else with a bound on the rounding of float32 sums and of storing the result."""
    inputs = tuple(tensor.double() for tensor in inputs)
    results = reference(workload, *inputs)
    if _sums_are_exact(workload, *inputs):
        # float32 in between: a kernel sums in float32 and rounds once, and so may not round twice from float64
        return tuple(Answer(expected=result.float().to(_dtype(workload)), allowed=None) for result in results)
    magnitudes = reference(workload, *(tensor.abs() for tensor in inputs))
    return tuple(
        Answer(expected=result, allowed=_allowed(workload, result, magnitude))
        for result, magnitude in zip(results, magnitudes, strict=True)
    )


def _allowed(workload: Workload, result: torch.Tensor, magnitude: torch.Tensor) -> torch.Tensor:
    """How far off each element may be; ``magnitude`` is the sum of its terms without their signs."""
    sum_error = _SUM_ROUNDING * (_SHORT_SUM + math.sqrt(terms(workload))) * magnitude
    return sum_error + _STORE_ROUNDING[workload.dtype] * (result.abs() + sum_error) + _SMALLEST_STEP[workload.dtype]


def reference(workload: Workload, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The pass in float64, tap by tap, on the inputs' device. Returns its results."""
    first, second, *bias = (tensor.double() for tensor in inputs)
    if workload.pass_ == "fprop":
        y = _fprop(workload, x=first, w=second)
        return (y + bias[0].view(-1, 1, 1) if bias else y,)
    if workload.pass_ == "dgrad":
        return (_dgrad(workload, dy=first, w=second),)
    dw = _wgrad(workload, x=first, dy=second)
    return (dw, second.sum(dim=(0, 2, 3))) if workload.bias else (dw,)


def terms(workload: Workload) -> int:
    """The most products that are added up for one element of a result."""
    if workload.pass_ == "wgrad":
        return workload.batch * math.prod(workload.output_size)
    return math.prod(workload.kernel) * (workload.multiplier if workload.pass_ == "dgrad" else 1)


def operands(workload: Workload, *, data: Data, seed: int, device: str = "cpu") -> tuple[torch.Tensor, ...]:
    """Random inputs of the pass, in calling order, in the workload's dtype and layout."""
    generator = torch.Generator().manual_seed(seed)
    drawn = []
    for name in workload.inputs:
        shape = workload.shape_of(name)
        if data == "integers":
            most = _largest_integer(workload)
            values = torch.randint(-most, most + 1, shape, generator=generator, dtype=torch.int8)
        else:
            values = torch.randn(shape, generator=generator)
        tensor = values.to(device, _dtype(workload))
        if name in IMAGES and workload.layout == "nhwc":
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        drawn.append(tensor)
    return tuple(drawn)


# -- the three sums --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Tap:
    """One element of the kernel, the outputs that read inside the input through it, and what they read there."""

    at: tuple[int, int]
    outputs: tuple[slice, slice]
    inputs: tuple[slice, slice]


def _taps(workload: Workload) -> Iterator[_Tap]:
    for row in range(workload.kernel[0]):
        for column in range(workload.kernel[1]):
            outputs_h, inputs_h = _reach(workload, axis=0, tap=row)
            outputs_w, inputs_w = _reach(workload, axis=1, tap=column)
            yield _Tap(at=(row, column), outputs=(outputs_h, outputs_w), inputs=(inputs_h, inputs_w))


def _reach(workload: Workload, *, axis: int, tap: int) -> tuple[slice, slice]:
    """(outputs, inputs) along an axis: output o reads input o·stride + tap·dilation − padding, where that exists."""
    stride, size = workload.stride[axis], workload.input_size[axis]
    shift = tap * workload.dilation[axis] - workload.padding[axis][0]
    first = max(0, -(shift // stride))
    last = min(workload.output_size[axis] - 1, (size - 1 - shift) // stride)
    if last < first:
        return slice(0, 0), slice(0, 0)
    start = first * stride + shift
    return slice(first, last + 1), slice(start, start + (last - first) * stride + 1, stride)


def _fprop(workload: Workload, *, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    total = _by_channel(workload, _zeros(workload, "y", like=x))
    weights = w.reshape(workload.channels, workload.multiplier, *workload.kernel)
    for tap in _taps(workload):
        read = x[(..., *tap.inputs)].unsqueeze(2)
        total[(..., *tap.outputs)].addcmul_(read, weights[(..., *tap.at)][None, :, :, None, None])
    return total.flatten(1, 2)


def _dgrad(workload: Workload, *, dy: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    total = _zeros(workload, "dx", like=dy)
    gradients = _by_channel(workload, dy)
    weights = w.reshape(workload.channels, workload.multiplier, *workload.kernel)
    for tap in _taps(workload):
        for m in range(workload.multiplier):
            read = gradients[:, :, m][(..., *tap.outputs)]
            total[(..., *tap.inputs)].addcmul_(read, weights[:, m][(..., *tap.at)][None, :, None, None])
    return total


def _wgrad(workload: Workload, *, x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    total = _zeros(workload, "dw", like=x)
    gradients = _by_channel(workload, dy)
    for tap in _taps(workload):
        products = x[(..., *tap.inputs)].unsqueeze(2) * gradients[(..., *tap.outputs)]
        total[(..., 0, *tap.at)] = products.sum(dim=(0, 3, 4)).flatten()
    return total


def _by_channel(workload: Workload, tensor: torch.Tensor) -> torch.Tensor:
    """(N, C·multiplier, …) as (N, C, multiplier, …)."""
    n, _, h, w = tensor.shape
    return tensor.view(n, workload.channels, workload.multiplier, h, w)


def _zeros(workload: Workload, name: str, *, like: torch.Tensor) -> torch.Tensor:
    zeros = torch.zeros(workload.shape_of(name), dtype=torch.float64, device=like.device)
    if workload.layout == "nhwc" and name in IMAGES:  # like the inputs: several times faster
        return zeros.contiguous(memory_format=torch.channels_last)
    return zeros


# -- exactness -------------------------------------------------------------------------------------------------------


def _largest_integer(workload: Workload) -> int:
    """The largest value, up to 3, whose products can be added up without rounding, and 1 if there is none."""
    return next((most for most in (3, 2) if most * most * terms(workload) < _EXACT), 1)


def _sums_are_exact(workload: Workload, *inputs: torch.Tensor) -> bool:
    if not all(bool((tensor == tensor.round()).all()) for tensor in inputs):
        return False
    # At least 1, for a dbias sums dy as it is.
    first, second, *bias = (max(1.0, float(tensor.abs().max())) for tensor in inputs)
    return first * second * terms(workload) + sum(bias) < _EXACT


def _dtype(workload: Workload) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, workload.dtype)
    return dtype
