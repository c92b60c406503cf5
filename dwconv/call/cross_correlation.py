"""``cross_correlation``: each image convolved with kernels of its own, as in trackers and dynamic convolution.

    contiguous       x as (1, B·C, H, W): a view, and one convolution of as many channels
    channels_last    image by image, each a convolution of (1, C, H, W), whose result is written to its place in y

Neither copies an image. Where PyTorch's op is faster than a call for each image, channels_last goes the other way, with
a copy of x and of y; so it does on a GPU, which a launch for each image would leave idle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.overrides import handle_torch_function, has_torch_function_variadic

from dwconv.call import functional
from dwconv.call.arguments import KERNELS, Call, CallArguments, Size, image_of, is_autocast, lowered
from dwconv.call.call_plan import plan_for
from dwconv.call.fast_path import differentiable
from dwconv.call.gradients import wanted
from dwconv.call.passes import PlannedPasses
from dwconv.call.watchers import is_watched_backward, is_watched_beside_autocast
from dwconv.errors import InvalidArgument, InvalidCall
from dwconv.kernels.kernel import Kernel
from dwconv.kernels.operand import MOST_ELEMENTS
from dwconv.problems.problem import Problem, lies_channels_last
from dwconv.problems.workload import PASSES, Pass, by


def cross_correlation(x: Tensor, kernels: Tensor, *, stride: Size = 1, padding: Size = 0, dilation: Size = 1) -> Tensor:
    """y[b, c] = x[b, c] convolved with kernels[b, c], as PyTorch's convolutions are, differentiable to any order.

    ``x`` is (B, C, L), (B, C, H, W) or (B, C, D, H, W), contiguous or channels_last, and so is the result; ``kernels``
    is (B, C, K), (B, C, KH, KW) or (B, C, KD, KH, KW). It is ``F.conv2d(x.reshape(1, B·C, H, W),
    kernels.reshape(B·C, 1, KH, KW), groups=B·C)`` as (B, C, …), without that copy of an x in channels_last.

    Raises InvalidCall, a RuntimeError, for sizes or types that do not fit, and InvalidArgument, a TypeError, for what
    is no tensor or no whole number.
    """
    if not (isinstance(x, Tensor) and isinstance(kernels, Tensor)) and has_torch_function_variadic(x, kernels):
        return handle_torch_function(  # a proxy traces it
            cross_correlation, (x, kernels), x, kernels, stride=stride, padding=padding, dilation=dilation
        )
    _check(x, kernels)
    axes = x.dim() - 2
    if not len(x):
        found = _OF_AXES[axes](x, x.new_zeros(kernels.shape[1:]).unsqueeze(1), None, stride, padding, dilation)
        return found + kernels.sum()
    numbers = stride, padding, dilation
    is_alone = x.device.type == "cpu" and not torch.compiler.is_compiling()
    if not is_alone or not lies_channels_last(image_of(x, axes=axes)):
        return _at_once(x, kernels, numbers)
    return _image_by_image(x, kernels, numbers)


_OF_AXES = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_Numbers = tuple[Size, Size, Size]


def _check(x: Tensor, kernels: Tensor) -> None:
    """What is left for the convolution to check it does."""
    for name, tensor in (("x", x), ("kernels", kernels)):
        if not isinstance(tensor, Tensor):
            raise InvalidArgument(f"{name} must be a Tensor, not {type(tensor).__name__}")
    if x.dim() not in (3, 4, 5):
        raise InvalidCall(f"x of shape {by(x.shape)} is not (B, C, L), (B, C, H, W) or (B, C, D, H, W)")
    batch, channels = x.shape[:2]
    if kernels.dim() != x.dim() or kernels.shape[:2] != x.shape[:2] or not channels:
        wanted = f"(B, C, {KERNELS[x.dim() - 2]}) with B={batch}, C={channels}"
        raise InvalidCall(f"kernels of shape {by(kernels.shape)} are not {wanted}")


def _at_once(x: Tensor, kernels: Tensor, numbers: _Numbers) -> Tensor:
    batch, channels, *size = x.shape
    image = x.reshape(1, batch * channels, *size)
    y = _OF_AXES[x.dim() - 2](image, kernels.reshape(batch * channels, 1, *kernels.shape[2:]), None, *numbers)
    y = y.reshape(batch, channels, *y.shape[2:])
    is_last = lies_channels_last(image_of(x, axes=x.dim() - 2))
    return y.movedim(1, -1).contiguous().movedim(-1, 1) if is_last else y


def _image_by_image(x: Tensor, kernels: Tensor, numbers: _Numbers) -> Tensor:
    axes = x.dim() - 2
    if is_watched_beside_autocast(x, kernels, None):
        alone = zip(torch.split(x, 1), kernels.unbind(), strict=True)
        return torch.cat([_OF_AXES[axes](image, kernel.unsqueeze(1), None, *numbers) for image, kernel in alone])
    if is_autocast(x):
        if (tensors := lowered(x, kernels, None)) is None:
            return _at_once(x, kernels, numbers)
        x, kernels, _ = tensors
    trains = torch.is_grad_enabled() and (x.requires_grad or kernels.requires_grad)
    call = Call.of(CallArguments(x[:1], kernels[0].unsqueeze(1), None, *numbers, None, axes))
    plan = plan_for(call.problem, x.device)
    passes: tuple[Pass, ...] = PASSES if trains else ("fprop",)
    plan.kernels.check(passes)
    if plan.is_open:
        plan.meet(id(kernels))
    ours = [plan.kernels[pass_] for pass_ in passes]
    most = max(math.prod(call.problem.input_shape), math.prod(call.problem.output_shape))
    if most > MOST_ELEMENTS or not all(each is not None and each.is_direct for each in ours):
        return _at_once(x, kernels, numbers)
    needs = trains and x.requires_grad, trains and kernels.requires_grad
    plan.tally.count(kernels, for_x=needs[0], for_w=needs[1])
    return DwconvImageByImage.apply(x, kernels, PlannedPasses(plan=plan))  # type: ignore[no-untyped-call]


class DwconvImageByImage(Function):
    """On kernels that take images in channels_last as they are."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernels: Tensor, passes: PlannedPasses) -> Tensor:
        needs_dx, needs_dk, *_ = ctx.needs_input_grad
        ctx.save_for_backward(x if needs_dk else None, kernels if needs_dx else None)
        ctx.passes, ctx.is_row = passes, x.dim() == 3
        problem = passes.plan.problem
        y = _empty(problem, problem.output_shape, like=x)
        _each(
            passes.kernels["fprop"], torch.split(y, 1), torch.split(_images(x, problem), 1), _weights(kernels, problem)
        )
        return y.squeeze_(2) if ctx.is_row else y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        (x, kernels), passes, problem = ctx.saved_tensors, ctx.passes, ctx.passes.plan.problem
        for saved, shape in ((x, problem.input_shape), (kernels, problem.weight_shape)):
            if saved is not None and (saved.dtype is not dy.dtype or saved.numel() != len(dy) * math.prod(shape)):
                found = f"{by(saved.shape)}, {saved.dtype}"
                raise InvalidCall(f"a hook of saved tensors brought back {found}: it must be what was saved")
        needs_dx, needs_dk, *_ = wanted(ctx)
        is_watched = is_watched_backward(dy, x, kernels)
        each_dy = torch.split(_images(dy, problem), 1)
        each_x = () if x is None else torch.split(_images(x, problem), 1)
        weights = () if kernels is None else _weights(kernels, problem)
        dx = dk = None
        if is_watched:
            ops = differentiable(passes)
            if needs_dk:
                dk = torch.stack([ops.wgrad(*each) for each in zip(each_x, each_dy, strict=True)])
            if needs_dx:
                dx = torch.cat([ops.dgrad(*each) for each in zip(each_dy, weights, strict=True)])
        else:
            if needs_dk:
                dk = dy.new_empty((len(dy), *problem.weight_shape))
                _each(passes.kernels["wgrad"], dk.unbind(), each_x, each_dy)
            if needs_dx:
                dx = _empty(problem, problem.input_shape, like=dy)
                _each(passes.kernels["dgrad"], torch.split(dx, 1), each_dy, weights)
        dx = dx.squeeze(2) if dx is not None and ctx.is_row else dx
        if dk is not None:
            dk = dk.reshape(len(dk), dk.shape[1], *dk.shape[3 + ctx.is_row :])
        return dx, dk, None


def _each(kernel: Kernel | None, results: Sequence[Tensor], *inputs: Sequence[Tensor]) -> None:
    """Run ``kernel`` on each image, or pair of images, into its result."""
    assert kernel is not None, "checked before"
    for result, *given in zip(results, *inputs, strict=True):
        kernel.into(result, *given)


def _empty(problem: Problem, shape: tuple[int, ...], *, like: Tensor) -> Tensor:
    """As many images of a shape as ``like`` has."""
    sizes = len(like), *shape[1:]
    return torch.empty(sizes, dtype=like.dtype, device=like.device, memory_format=problem.memory_format)


def _images(x: Tensor, problem: Problem) -> Tensor:
    return image_of(x, axes=1 if x.dim() == 3 else problem.axes).contiguous(memory_format=problem.memory_format)


def _weights(kernels: Tensor, problem: Problem) -> tuple[Tensor, ...]:
    """Each (C, 1, KH, KW)"""
    return kernels.reshape(len(kernels), *problem.weight_shape).contiguous().unbind()
