"""``conv_transpose1d``, ``conv_transpose2d`` and ``conv_transpose3d``.

A transposed convolution computes what a convolution, ``Problem.of_transposed``, would read, from what it would give. So
its passes are the passes of that one, and so are its kernels:

    y = dgrad(x, w) + bias        dx = fprop(dy, w)        dw = wgrad(dy, x)        dbias = Σ dy

The records of either serve both. With a multiplier, each channel of x is read as so many alike ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import Parameter

from dwconv.call import through_dispatcher, torch_ops
from dwconv.call.arguments import (
    Size,
    image_of,
    is_autocast,
    whole,
    with_axes_of,
)
from dwconv.call.call_plan import MOST_PLANS, CallPlan, made_of_plans, plan_for
from dwconv.call.fast_path import differentiable
from dwconv.call.functional import on_its_road
from dwconv.call.gradients import Needs, Passes, Tied, gradients, wanted
from dwconv.call.passes import PlannedPasses
from dwconv.call.process_kernels import is_captured
from dwconv.call.transposed_call import TransposedArguments, TransposedCall, as_one_each
from dwconv.call.watchers import is_spread, is_unknown_to_our_ops, is_watched_backward
from dwconv.dispatch.of_problem import as_transposed
from dwconv.problems import pytorch
from dwconv.problems.workload import PASSES


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int | None = None,
    dilation: Size = 1,
) -> Tensor:
    """``torch.nn.functional.conv_transpose2d(…, groups=in_channels)``, differentiable to any order.

    ``input`` is (N, C, H, W) or (C, H, W), contiguous or channels_last, and so is the result; ``weight`` is
    (C, multiplier, KH, KW), ``bias`` (C·multiplier). ``groups``, where given, must be C. Any batch size. It runs on the
    kernels of the convolution that computes ``input`` from the result. What is untuned, slower or unsupported runs on
    PyTorch's own op.

    Raises InvalidCall, a RuntimeError, for sizes or types that are no depthwise transposed convolution, and
    InvalidArgument, a TypeError, for what is no tensor or no whole number. Both name it, and both are InvalidWorkload.
    """
    return _transpose(input, weight, bias, stride, padding, output_padding, groups, dilation, 2)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int | None = None,
    dilation: Size = 1,
) -> Tensor:
    """``torch.nn.functional.conv_transpose1d(…, groups=in_channels)``, differentiable to any order.

    ``input`` is (N, C, L) or (C, L), ``weight`` (C, multiplier, K); the rest is as in ``conv_transpose2d``.
    """
    return _transpose(input, weight, bias, stride, padding, output_padding, groups, dilation, 1)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int | None = None,
    dilation: Size = 1,
) -> Tensor:
    """``torch.nn.functional.conv_transpose3d(…, groups=in_channels)``, differentiable to any order.

    ``input`` is (N, C, D, H, W) or (C, D, H, W), contiguous or channels_last_3d, ``weight`` (C, multiplier, KD, KH,
    KW); the rest is as in ``conv_transpose2d``.
    """
    return _transpose(input, weight, bias, stride, padding, output_padding, groups, dilation, 3)


def transpose_of_layer(input: Tensor, weight: Tensor, *others: Any) -> Tensor:
    """What a layer computes: on PyTorch's op where its weight was changed since, by pruning or regrouping, and is no
    longer of its groups. ``others``: as of ``TransposedArguments``."""
    given = TransposedArguments(input, weight, *others)
    is_traced = torch.jit.is_tracing()  # type: ignore[no-untyped-call, attr-defined]
    is_plain = type(weight) in (Tensor, Parameter) and not weight.is_nested
    if is_plain and not is_traced and weight.dim() > 1 and weight.shape[0] != given.groups:
        return given.on_pytorch()
    return _transpose(*given)


def _transpose(*given: Any) -> Tensor:
    arguments = TransposedArguments(*given)
    return on_its_road(
        FUNCTIONS[arguments.axes], arguments, through_dispatcher=_through_dispatcher, fast=_past_dispatcher
    )


FUNCTIONS: dict[int, Callable[..., Tensor]] = {1: conv_transpose1d, 2: conv_transpose2d, 3: conv_transpose3d}


def _repeated(x: Tensor, multiplier: int) -> Tensor:
    """(N, C, …) with each channel as often, in the layout of x."""
    if multiplier == 1:
        return x
    last = x.movedim(1, -1).unsqueeze(-1)
    if x.is_contiguous():
        return x.unsqueeze(2).expand(-1, -1, multiplier, *x.shape[2:]).flatten(1, 2)
    return last.expand(*last.shape[:-1], multiplier).flatten(-2).movedim(-1, 1)


def _summed(dx: Tensor, multiplier: int) -> Tensor:
    """The gradient of x, from that of x ``_repeated``."""
    if multiplier == 1:
        return dx
    return dx.reshape(dx.shape[0], dx.shape[1] // multiplier, multiplier, *dx.shape[2:]).sum(2)


def _as_image(bias: Tensor, y: Tensor) -> Tensor:
    """A bias as what is added to y."""
    return bias.view(-1, *[1] * (y.dim() - 2))


# -- through PyTorch's dispatcher --------------------------------------------------------------------------------------


def _through_dispatcher(given: TransposedArguments) -> Tensor:
    """y, of a call that is observed. Raises InvalidCall, InvalidArgument."""
    if through_dispatcher.is_for_elsewhere(given):
        return given.on_pytorch()
    call = TransposedCall.of(given)
    if not call.is_ours or is_unknown_to_our_ops(call.x, call.w) or is_spread(call.x, call.w):
        return given.on_pytorch()
    if through_dispatcher.is_for_pytorch(call, is_transposed=True):
        return given.on_pytorch()
    if is_autocast(call.x):
        if (in_lower := given.lowered()) is None:
            return given.on_pytorch()
        call = TransposedCall.of(in_lower)
    x = _repeated(call.x, call.multiplier)
    y = torch_ops.dgrad(x, call.w, call.problem.input_shape, *call.problem.geometry)
    if call.given.bias is not None:
        y = y + _as_image(call.given.bias, y)
    return with_axes_of(given.input, y, axes=given.axes)


# -- past it -----------------------------------------------------------------------------------------------------------


def _past_dispatcher(given: TransposedArguments, *, layers_weight: Tensor) -> Tensor:
    """y, of a call that nothing observes: see ``fast_path``. Raises InvalidCall, InvalidArgument."""
    input, weight, bias, stride, padding, output_padding, groups, dilation, axes = given
    trains = torch.is_grad_enabled() and (
        input.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    )
    key = (
        input.shape, input.stride(), input.dtype, input.device, weight.shape, weight.stride(), weight.dtype,
        weight.device, None if bias is None else (bias.shape, bias.dtype, bias.device), whole("stride", stride),
        whole("padding", padding), whole("output_padding", output_padding), whole("dilation", dilation),
        None if groups is None else whole("groups", groups), axes, torch.get_num_threads(), trains,
    )  # fmt: skip
    way: Any = _known.get(key, _NEW)
    is_news = way is not None and way is not _NEW and way.was_open
    if way is _NEW or (is_news and (way.plan.settled != way.passes.settled or way.plan.meet(id(layers_weight)))):
        way = _learn(key, given, trains=trains)
    if way is None:
        return given.on_pytorch()
    way.plan.tally.count(
        layers_weight, for_x=trains and input.requires_grad, for_w=trains and weight.requires_grad, is_transposed=True
    )
    if way.is_pytorch:
        return given.on_pytorch()
    if trains:
        return _apply(input, weight, bias, way, axes)  # type: ignore[no-untyped-call]
    return way.forward(input, weight, bias, axes=axes)


_NEW = object()
"""In the place of what runs a call that was not seen before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Way:
    """What runs a call that was seen before."""

    passes: PlannedPasses
    numbers: tuple[Any, ...]
    """Those of PyTorch's op, from the stride on."""
    output_padding: tuple[int, ...]
    """That of images."""
    is_pytorch: bool
    """True if PyTorch's op runs every pass."""
    begins_on_pytorch: bool
    """True if it runs the forward pass."""

    @property
    def plan(self) -> CallPlan:
        return self.passes.plan

    @property
    def was_open(self) -> bool:
        return self.passes.was_open

    def forward(self, x: Tensor, w: Tensor, bias: Tensor | None, *, axes: int) -> Tensor:
        if self.begins_on_pytorch or self.passes.kernels["dgrad"] is None:
            return pytorch.TRANSPOSED_OPS[axes](x, w, bias, *self.numbers)
        image = image_of(w, axes=axes)
        y = self.passes.dgrad(_repeated(image_of(x, axes=axes), image.shape[1]), as_one_each(image))
        if bias is not None:
            y.add_(_as_image(bias, y))  # nothing has read it yet
        return with_axes_of(x, y, axes=axes)

    def backward(self, x: Tensor | None, w: Tensor | None, dy: Tensor, needs: tuple[bool, ...]) -> _Gradients:
        """Of images, where nothing observes it. What PyTorch's op runs, one call of it does."""
        needs_x, needs_w, needs_bias = needs
        dx = dw = db = None
        if x is not None and w is not None:
            kernels = self.passes.kernels
            theirs = needs_x and kernels["fprop"] is None, needs_w and kernels["wgrad"] is None
            if any(theirs):
                mask = (*theirs, needs_bias)
                dx, dw, db = pytorch.transposed_backward(self.plan.problem, self.output_padding, (x, w, dy), mask=mask)
        rest = needs_x and dx is None, needs_w and dw is None, needs_bias and db is None
        if not any(rest):
            return dx, dw, db
        found = _gradients(self.passes, x, w, dy, rest)
        return tuple(one if one is not None else other for one, other in zip((dx, dw, db), found, strict=True))


_Gradients = tuple[Tensor | None, ...]
"""Of x, w and the bias."""


def _gradients(passes: Passes, x: Tensor | None, w: Tensor | None, dy: Tensor, needs: tuple[bool, ...]) -> _Gradients:
    """Of images, pass by pass. ``w`` is (C, multiplier, KH, KW)."""
    needs_x, needs_w, needs_bias = needs
    multiplier = w.shape[1] if w is not None else 1 if x is None else dy.shape[1] // x.shape[1]
    tied = Tied(
        x=dy, w=None if w is None else as_one_each(w), y=None if x is None else _repeated(x, multiplier)
    )  # fmt: skip
    _, dw, _, dx = gradients(passes, tied, Needs(w=needs_w, y=needs_x))
    if dw is not None and multiplier > 1:
        dw = dw.view(-1, multiplier, *dw.shape[2:])
    return None if dx is None else _summed(dx, multiplier), dw, pytorch.dbias(dy) if needs_bias else None


def _learn(key: object, given: TransposedArguments, *, trains: bool) -> _Way | None:
    """Check a new call, decide what runs it, and record the decision; None where PyTorch's op runs any such call."""
    call = TransposedCall.of(given)
    way = _way_of(call, trains=trains) if call.is_ours else None
    if is_captured(call.x.device):  # what cannot be loaded and checked now can be later
        return way
    if len(_known) >= MOST_PLANS:
        _known.clear()
    _known[key] = way
    return way


_known: dict[object, _Way | None] = made_of_plans()
"""What runs a call, by everything that describes it."""


def _way_of(call: TransposedCall, *, trains: bool) -> _Way:
    plan, given = plan_for(call.problem, call.x.device), call.given
    plan.kernels.check(PASSES if trains else ("dgrad",))
    strides = call.w.stride() if call.multiplier == 1 else None
    made = as_transposed(plan.decisions, call.problem, plan.target, bias=given.bias is not None, trains=trains)
    withdrawn = [pass_ for pass_, each in made.items() if each.provider != plan.decisions[pass_].provider]
    return _Way(
        passes=PlannedPasses(plan=plan, was_open=plan.is_open, settled=plan.settled, weight_strides=strides),
        numbers=given.as_pytorchs()[1][3:],
        output_padding=call.output_padding,
        is_pytorch=plan.is_pytorch or (bool(withdrawn) and all(each.provider == "pytorch" for each in made.values())),
        begins_on_pytorch="dgrad" in withdrawn,
    )


class DwconvTransposed(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, way: _Way, axes: int) -> Tensor:
        needs_dx, needs_dw, *_ = ctx.needs_input_grad
        ctx.save_for_backward(x if needs_dw else None, w if needs_dx else None)
        ctx.way, ctx.axes = way, axes
        return way.forward(x, w, bias, axes=axes)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        way, axes, (x, w) = ctx.way, ctx.axes, ctx.saved_tensors
        image, weight = (None if each is None else image_of(each, axes=axes) for each in (x, w))
        run = partial(_gradients, differentiable(way.passes)) if is_watched_backward(dy, x, w) else way.backward
        dx, dw, db = run(image, weight, image_of(dy, axes=axes), wanted(ctx)[:3])
        if dx is not None:
            dx = with_axes_of(dy, dx, axes=axes)
        return dx, dw if dw is None or axes > 1 else dw.squeeze_(2), db, None, None


_apply = super(Function, DwconvTransposed).apply
"""As of ``fast_path.DwconvConvolution``."""
