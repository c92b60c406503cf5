"""A convolution with SiLU after it, as one: the torch ops ``dwconv::fprop_silu`` and ``dwconv::silu_gradient``.

    y = silu(z), z = fprop(x, w, bias)       fprop_silu       z is not kept
    dz = dy · silu′(z)                       silu_gradient    z is computed again
    dx = dgrad(dz, w), dw = wgrad(x, dz)     as without an activation

Arguments are those of ``torch_ops``. Where no kernel does it at once, the ops run one after the other.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from dwconv.call import torch_ops
from dwconv.call.call_plan import plan_for
from dwconv.call.cpp_ops import offer
from dwconv.call.gradients import Needs, Tied, gradients, wanted
from dwconv.call.torch_ops import GEOMETRY, OF_GEOMETRY, DispatchedPasses, below_autograd, planned
from dwconv.dispatch.advantage import are_faster_together
from dwconv.dispatch.decision import DispatchDecision
from dwconv.problems.problem import Problem

torch_ops.define(f"fprop_silu(Tensor x, Tensor w, Tensor? bias, {GEOMETRY}) -> Tensor")
torch_ops.define(f"silu_gradient(Tensor x, Tensor w, Tensor? bias, Tensor dy, {GEOMETRY}) -> Tensor")

fprop_silu = torch.ops.dwconv.fprop_silu.default
silu_gradient = torch.ops.dwconv.silu_gradient.default


def is_at_once(problem: Problem, device: torch.device, *, trains: bool) -> bool:
    """True if kernels that do it at once were measured to be faster than one op after the other. ``trains``: with the
    gradient of the activation."""
    forward = _decided(dataclasses.replace(problem, epilogue="silu"), device)
    if forward.provider != "dwconv" or not trains:
        return forward.provider == "dwconv"
    gradient = _decided(dataclasses.replace(problem, epilogue="silu_gradient"), device)
    if gradient.provider != "dwconv" or forward.record is None or gradient.record is None:
        return False
    return are_faster_together(forward.record, gradient.record)


def _decided(problem: Problem, device: torch.device) -> DispatchDecision:
    plan = plan_for(problem, device)
    if plan.is_open:
        plan.meet(0)  # of any layer: it is decided once
    return plan.decisions["fprop"]


def _fprop_silu(x: Tensor, w: Tensor, bias: Tensor | None, *geometry: Any) -> Tensor:
    passes = planned(x.shape, w.shape, geometry, like=x, bias=bias is not None, epilogue="silu", x=x)
    passes.plan.ran("fprop", w)
    kernel = passes.kernels["fprop"]
    y: Tensor
    if kernel is None:
        y = F.silu(below_autograd(torch_ops.fprop, x, w, bias, *geometry), inplace=True)
    else:
        y = kernel(x, w) if bias is None else kernel(x, w, bias)
        offer(passes, ("fprop", (0, 1) if bias is None else (0, 1, 2), (0,)))
    return y


def _silu_gradient(x: Tensor, w: Tensor, bias: Tensor | None, dy: Tensor, *geometry: Any) -> Tensor:
    passes = planned(x.shape, w.shape, geometry, like=x, bias=bias is not None, epilogue="silu_gradient", x=x)
    passes.plan.ran("fprop", w)
    kernel = passes.kernels["fprop"]
    dz: Tensor
    if kernel is None:
        dz = torch.ops.aten.silu_backward(dy, below_autograd(torch_ops.fprop, x, w, bias, *geometry))
    else:
        dz = kernel(x, w, dy) if bias is None else kernel(x, w, bias, dy)
        offer(passes, ("fprop", (0, 1, 2) if bias is None else (0, 1, 2, 3), (0,)))
    return dz


def _silu_gradient_fake(x: Tensor, w: Tensor, bias: Tensor | None, dy: Tensor, *geometry: Any) -> Tensor:
    return torch_ops.fprop_fake(x, w, bias, *geometry)


def _differentiable_gradient(x: Tensor, w: Tensor, bias: Tensor | None, dy: Tensor, *geometry: Any) -> Tensor:
    z: Tensor = torch_ops.fprop(x, w, bias, *geometry)
    sigmoid = z.sigmoid()
    return dy * (sigmoid * (1 + z * (1 - sigmoid)))


class DwconvFpropSilu(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, *geometry: Any) -> Tensor:
        ctx.save_for_backward(x, w, bias)
        ctx.geometry = geometry
        ctx.passes = DispatchedPasses(
            input_shape=x.shape, kernel_size=w.shape[2:], geometry=geometry, weight_strides=w.stride()
        )
        return below_autograd(fprop_silu, x, w, bias, *geometry)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w, bias = ctx.saved_tensors
        needs_x, needs_w, needs_bias, *_ = wanted(ctx)
        dz = silu_gradient(x, w, bias, dy, *ctx.geometry)
        found = gradients(ctx.passes, Tied(x, w, None, dz), Needs(needs_x, needs_w, needs_bias))
        return found.x, found.w, found.bias, *OF_GEOMETRY


torch_ops.implement(fprop_silu, _fprop_silu, torch_ops.fprop_fake, DwconvFpropSilu.apply)
torch_ops.implement(silu_gradient, _silu_gradient, _silu_gradient_fake, _differentiable_gradient)
torch_ops.lower_under_autocast(fprop_silu)
