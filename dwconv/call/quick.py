"""The quick road, for plain tensors that nothing watches: from what is remembered of a call to its kernels and back.

PyTorch's dispatcher, twice through Python in each direction, costs more than a small convolution: forward and backward
of 1×8×7×7 take 47 µs on this road, 110 µs through the ops. So what needs none of it, a step of a usual training, goes
past it.

In a training step the caches have forgotten the interpreter whenever a layer comes round: the first use of anything,
be it an attribute, costs microseconds. So the C++ of ``dwconv.native``, once it is compiled, takes the calls that it
was taught. What is left stays here, and is short.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from dwconv import native
from dwconv.call.arguments import Arguments, Call, Padding, has_sides, image_of, whole, with_axes_of
from dwconv.call.call_plan import MOST_PLANS, plan_for
from dwconv.call.first_use import is_captured
from dwconv.call.gradients import Needs, Passes, Tied, gradients
from dwconv.call.passes import PlannedPasses
from dwconv.call.teaching import differentiable, teach, teach_meanwhile
from dwconv.call.wanted import wanted
from dwconv.call.watchers import is_watched_backward
from dwconv.kernels.kernel import x_pitch_of
from dwconv.problems.workload import PASSES


def convolve(given: Arguments, *, layers_weight: Tensor) -> Tensor:
    """y, of a call that is not ``is_watched``. ``layers_weight``: what it is counted by, before autocast lowered it.
    Raises InvalidCall, InvalidArgument."""
    input, weight, bias, stride, padding, dilation, groups, axes = given
    trains = torch.is_grad_enabled() and (
        input.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    )
    # All that decides what runs the call, and how; a look at it costs what a small convolution costs.
    key = (
        input.shape, input.stride(), input.dtype, input.device, weight.shape, weight.stride(), weight.dtype,
        weight.device, None if bias is None else (bias.shape, bias.stride(), bias.dtype, bias.device),
        stride if type(stride) in _USUAL else whole("stride", stride), padding if type(padding) is int else
        _hashable(padding), dilation if type(dilation) in _USUAL else whole("dilation", dilation), groups, axes,
        torch.get_num_threads(), trains, native.module or native.why_not,  # once it is there, every call is taught
    )  # fmt: skip
    passes = _known.get(key) or _learn(key, given, trains=trains)
    if passes.was_open and (not passes.plan.is_open or passes.plan.meet(id(layers_weight))):
        passes = _learn(key, given, trains=trains)
    passes.plan.tally.count(layers_weight, for_x=trains and input.requires_grad, for_w=trains and weight.requires_grad)
    if passes.plan.is_pytorch:
        return given.on_pytorch()
    if trains:
        y: Tensor = _apply(input, weight, bias, passes, axes)  # type: ignore[no-untyped-call]
        return y
    return given.as_given(passes.fprop(*given.images(), bias))


def forget() -> None:
    """Forget all calls, here and in C++."""
    _known.clear()
    native.forget()


_known: dict[object, PlannedPasses] = {}
"""What runs a call, by all that it says of itself: it needs no checking again."""


def _learn(key: object, given: Arguments, *, trains: bool) -> PlannedPasses:
    """Check a call that was not seen before, decide what runs it, and remember that."""
    call = Call.of(given)
    plan = plan_for(call.problem, call.x.device)
    bias, x_pitch = given.bias, x_pitch_of(call.x, layout=call.problem.layout)
    dense = (
        (x_pitch > 0 or call.x.is_contiguous(memory_format=plan.memory_format))
        and call.w.is_contiguous()
        and (bias is None or bias.is_contiguous())
    )
    passes = PlannedPasses(
        plan=plan, x_pitch=x_pitch, dense=dense, was_open=plan.is_open, weight_strides=call.w.stride()
    )
    plan.check(PASSES if trains else PASSES[:1])
    if is_captured(call.x.device):  # what cannot be loaded and checked now can be later
        return passes
    if len(_known) >= MOST_PLANS:
        forget()
    _known[key] = passes
    if plan.is_open:
        teach_meanwhile(call, plan)
    else:
        teach(call, passes, trains=trains)
    return passes


_USUAL = (int, tuple, str)


def _hashable(padding: Padding) -> object:
    if has_sides(padding):
        return tuple(tuple(pair) if isinstance(pair, (tuple, list)) else pair for pair in padding)
    return padding if type(padding) in _USUAL else whole("padding", padding)


class DwconvConvolution(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, passes: PlannedPasses, axes: int) -> Tensor:
        needs_dx, needs_dw, *_ = ctx.needs_input_grad
        ctx.save_for_backward(x if needs_dw else None, w if needs_dx else None)
        ctx.passes, ctx.axes, ctx.is_image = passes, axes, axes > 1 and x.dim() == axes + 2
        if ctx.is_image:
            return passes.fprop(x, w, bias)
        return with_axes_of(x, passes.fprop(image_of(x, axes=axes), image_of(w, axes=axes), bias), axes=axes)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        given, axes = dy, ctx.axes
        x, w = ctx.saved_tensors
        if not ctx.is_image:
            x, w = (each if each is None else image_of(each, axes=axes) for each in (x, w))
            dy = image_of(dy, axes=axes)
        needs_dx, needs_dw, needs_db, *_ = wanted(ctx)
        passes: Passes = differentiable(ctx.passes) if is_watched_backward(dy, x, w) else ctx.passes.given(x, w, dy)
        dx, dw, db, _ = gradients(passes, Tied(x, w, None, dy), Needs(needs_dx, needs_dw, needs_db))
        if not ctx.is_image:
            dx = None if dx is None else with_axes_of(given, dx, axes=axes)
            dw = dw if dw is None or axes > 1 else dw.squeeze_(2)
        return dx, dw, db, None, None


_apply = super(Function, DwconvConvolution).apply
"""Function.apply without its check for transforms of torch.func: half of its time."""
