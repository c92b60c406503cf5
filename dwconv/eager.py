"""``convolve``: the short way through autograd, for plain tensors that nobody watches.

PyTorch's dispatcher, twice through Python in each direction, costs more than a small convolution. So what needs none
of it, a step of a usual training, goes straight from the plan to the kernels and back. All else goes through ``ops``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad

from dwconv import ops, passes
from dwconv.plan import Plan


def convolve(plan: Plan, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """y, for tensors of exactly the plan's sizes that are not ``is_watched``."""
    if torch.is_grad_enabled() and (
        x.requires_grad or w.requires_grad or (bias is not None and bias.requires_grad)
    ):  # fmt: skip
        y: Tensor = DwconvConvolution.apply(x, w, bias, plan)  # type: ignore[no-untyped-call]
        return y
    return passes.fprop(plan, x, w, bias)


class DwconvConvolution(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, plan: Plan) -> Tensor:
        needs_dx, needs_dw = ctx.needs_input_grad[:2]
        ctx.save_for_backward(x if needs_dw else None, w if needs_dx else None)
        ctx.plan = plan
        return passes.fprop(plan, x, w, bias)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        plan: Plan = ctx.plan
        needs_dx, needs_dw, needs_db = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled() or is_watched(dy):
            return (*_watched_backward(plan, x, w, dy, needs=ctx.needs_input_grad), None)
        dx, dw, db = None, None, None
        if needs_dw and needs_db:
            dw, db = passes.wgrad_bias(plan, x, dy)
        elif needs_dw:
            dw = passes.wgrad(plan, x, dy)
        elif needs_db:
            db = dy.sum((0, 2, 3))
        if needs_dx:  # last: what comes next reads it, and finds it in the caches
            dx = passes.dgrad(plan, dy, w)
        return dx, dw, db, None


def _watched_backward(
    plan: Plan, x: Tensor, w: Tensor, dy: Tensor, *, needs: tuple[bool, ...]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The same on ops, which are differentiable themselves."""
    dx, dw, db = None, None, None
    if needs[1] and needs[2]:
        dw, db = ops.wgrad_bias(x, dy, plan.problem.weight_shape[2:], *plan.geometry)
    elif needs[1]:
        dw = ops.wgrad(x, dy, plan.problem.weight_shape[2:], *plan.geometry)
    elif needs[2]:
        db = dy.sum((0, 2, 3))
    if needs[0]:
        dx = ops.dgrad(dy, w, plan.problem.input_shape, *plan.geometry)
    return dx, dw, db


# -- who looks at a call besides eager autograd ----------------------------------------------------------------------

_ORDINARY_KEYS: int = torch._C._dispatch_keys(torch.empty(0)).raw_repr()
for _key in (torch._C.DispatchKey.CUDA, torch._C.DispatchKey.AutogradCUDA, torch._C.DispatchKey.AutocastCUDA):
    _ORDINARY_KEYS |= torch._C.DispatchKeySet(_key).raw_repr()
_OTHER_KEYS = ~_ORDINARY_KEYS


def is_watched(*tensors: Tensor) -> bool:
    """True if a mode, a transform or a tracer is active, or if a tensor is not just numbers in memory: a subclass,
    fake, batched, sparse, a view that negates."""
    if (
        torch._C._len_torch_dispatch_stack()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or torch._C._get_tracing_state() is not None
    ):
        return True
    for tensor in tensors:  # noqa: SIM110  # a generator takes as long as all the rest
        if torch._C._dispatch_keys(tensor).raw_repr() & _OTHER_KEYS:
            return True
    return False
