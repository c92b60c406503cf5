"""The short ways through autograd, for plain tensors that nobody watches: in C++ (``compiled_call``), or in Python.

PyTorch's dispatcher, twice through Python in each direction, costs more than a small convolution. So what needs none
of it, a step of a usual training, goes straight from the plan to the kernels and back. All else goes through ``ops``.

In a training step the caches have forgotten the interpreter whenever a layer comes round: the first use of anything,
be it an attribute, costs microseconds. So the C++ of ``dwconv.native``, where it is compiled, takes the calls whose
passes all have a tuned kernel that reads the tensors where they lie. What is left stays here, and is short.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active, _get_tracing_state, _len_torch_dispatch_stack
from torch.autograd import Function, forward_ad

from dwconv import native, ops, passes
from dwconv.build.kernel import MOST_ELEMENTS
from dwconv.plan import Plan
from dwconv.workload import PASSES

Ints = tuple[int, ...]


def convolve(plan: Plan, x: Tensor, w: Tensor, bias: Tensor | None, *, dense: bool) -> Tensor:
    """y, for tensors of exactly the plan's sizes that are not ``is_watched``.

    ``dense``: all of them lie without gaps, x in the plan's layout."""
    if torch.is_grad_enabled() and (
        w.requires_grad or x.requires_grad or (bias is not None and bias.requires_grad)
    ):  # fmt: skip
        y: Tensor = _apply(x, w, bias, plan, dense)  # type: ignore[no-untyped-call]
        return y
    return passes.fprop(plan, x, w, bias, dense=dense)


def compiled_call(
    plan: Plan,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    axes: int,
    trains: bool,
    shaped: Callable[[Tensor], Tensor],
) -> Any | None:
    """The call of a plan with tuned kernels on these tensors, which are dense, for ``native.learn``; None if it cannot
    be taught.

    ``shaped``: an image, without the axes that ``input`` does not have. ``trains``: for gradients, too."""
    if max(input.numel(), weight.numel()) > MOST_ELEMENTS:
        return None
    kernels = [plan.kernels[pass_] for pass_ in (PASSES if trains else PASSES[:1])]
    runs = [kernel.native for kernel in kernels if kernel is not None and kernel.native is not None]
    compiled, fprop = native.native(), kernels[0]
    if compiled is None or fprop is None or len(runs) < len(kernels) or fprop.workload.bias != (bias is not None):
        return None
    problem, workload = plan.problem, fprop.workload.with_batch(plan.problem.input_shape[0])
    y, x = (
        shaped(torch.empty(shape, device="meta", memory_format=plan.memory_format))
        for shape in (workload.shape_of("y"), problem.input_shape)
    )
    if y.numel() > MOST_ELEMENTS:
        return None
    shapes = [compiled.Shape(each.shape, each.stride()) for each in (y, x, weight)]
    channel_axis = input.dim() - axes - 1
    return compiled.TunedCall(
        problem.input_shape[0], *shapes, channel_axis, *runs, *[None] * (len(PASSES) - len(runs)),
        partial(_watched_backward_shaped, plan, workload.shape_of("y"), x.shape, weight.shape, weight.stride()),
    )  # fmt: skip


def compiled_pytorch_call(plan: Plan, *, axes: int, padding: tuple[int, ...]) -> Any | None:
    """The call of a plan that leaves everything to PyTorch's own op, for ``native.learn``: nobody should pay for having
    asked. Nothing is compiled for that alone."""
    compiled = native.native(may_compile=False)
    if compiled is None:
        return None
    problem = plan.problem
    return compiled.PyTorchCall(axes, problem.stride[-axes:], padding, problem.dilation[-axes:], problem.input_shape[1])


def _watched_backward_shaped(
    plan: Plan, y_shape: Ints, x_shape: Ints, w_shape: Ints, w_strides: Ints,
    x: Tensor | None, w: Tensor | None, dy: Tensor, needs: tuple[bool, ...],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """``_watched_backward`` of tensors that have the user's axes."""
    problem = plan.problem
    dx, dw, db = _watched_backward(
        plan,
        None if x is None else x.reshape(problem.input_shape),
        None if w is None else w.reshape(problem.weight_shape),
        dy.reshape(y_shape),
        needs=needs,
        weight_strides=w_strides,
    )
    if dw is not None and dw.shape != w_shape:
        dw = dw.reshape(w_shape)
    return None if dx is None else dx.reshape(x_shape), dw, db


class DwconvConvolution(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, plan: Plan, dense: bool) -> Tensor:
        needs_dx, needs_dw, *_ = ctx.needs_input_grad
        ctx.save_for_backward(x if needs_dw else None, w if needs_dx else None)
        ctx.plan, ctx.dense, ctx.weight_strides = plan, dense, w.stride()
        return passes.fprop(plan, x, w, bias, dense=dense)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        plan: Plan = ctx.plan
        needs_dx, needs_dw, needs_db, *_ = ctx.needs_input_grad
        if torch.is_grad_enabled() or _is_watched_backward(dy):
            found = _watched_backward(plan, x, w, dy, needs=ctx.needs_input_grad, weight_strides=ctx.weight_strides)
            return (*found, None, None)
        dx, dw, db = None, None, None
        dense = ctx.dense and dy.is_contiguous(memory_format=plan.memory_format)
        if needs_dw and needs_db:
            dw, db = passes.wgrad_bias(plan, x, dy, dense=dense)
        elif needs_dw:
            dw = passes.wgrad(plan, x, dy, dense=dense)
        elif needs_db:
            db = dy.sum((0, 2, 3))
        if dw is not None:
            dw = passes.strided(dw, ctx.weight_strides)
        if needs_dx:  # last: what comes next reads it
            dx = passes.dgrad(plan, dy, w, dense=dense)
        return dx, dw, db, None, None


_apply = super(Function, DwconvConvolution).apply
"""What Function.apply comes to where no transform of torch.func is active: half of its time."""


def _watched_backward(
    plan: Plan,
    x: Tensor | None,
    w: Tensor | None,
    dy: Tensor,
    *,
    needs: tuple[bool, ...],
    weight_strides: Ints,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The same on ops, which are differentiable themselves."""
    dx, dw, db = None, None, None
    if needs[1] and needs[2]:
        dw, db = ops.wgrad_bias(x, dy, plan.problem.weight_shape[2:], *plan.geometry)
    elif needs[1]:
        dw = ops.wgrad(x, dy, plan.problem.weight_shape[2:], *plan.geometry)
    elif needs[2]:
        db = dy.sum((0, 2, 3))
    if dw is not None:
        dw = passes.strided(dw, weight_strides)
    if needs[0]:
        dx = ops.dgrad(dy, w, plan.problem.input_shape, *plan.geometry)
    return dx, dw, db


# -- who looks at a call besides eager autograd ----------------------------------------------------------------------


def is_watched(x: Tensor, w: Tensor, bias: Tensor | None) -> bool:
    """True if a mode, a transform or a tracer is active, or if a tensor is not just numbers in memory."""
    return bool(
        _len_torch_dispatch_stack()
        or _are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or _get_tracing_state() is not None
        or type(x) not in _PLAIN
        or type(w) not in _PLAIN
        or x.is_neg()
        or w.is_neg()
        or (bias is not None and (type(bias) not in _PLAIN or bias.is_neg()))
    )


def _is_watched_backward(dy: Tensor) -> bool:
    """The same of a gradient, which may be a batch of gradients, or known to be zero without any memory."""
    if _len_torch_dispatch_stack() or _are_functorch_transforms_active() or type(dy) not in _PLAIN or dy.is_neg():
        return True
    try:
        return dy.data_ptr() == 0
    except RuntimeError:
        return True


_PLAIN = (Tensor, torch.nn.Parameter)
"""Other types, subclasses of these, may mean something else by what they hold."""
