"""The torch ops ``dwconv::fprop``, ``dgrad``, ``wgrad``, ``wgrad_bias`` and ``backward``: planned passes behind
PyTorch's dispatcher.

``wgrad_bias`` also gives the gradient of the bias. The first four are closed under differentiation: the derivative of
each is made of the others by ``gradients``, so derivatives of any order work. ``backward`` gives the gradients of x and
w, from one kernel or from two: that is decided when it runs, since compiled code is kept for longer than decisions are.
Where it is to be differentiated, it is made of ``dgrad`` and ``wgrad``.

``layout`` (``nchw`` or ``nhwc``) is the layout that x, y, dx and dy should have; results have it, whatever that of the
arguments. Sizes are (height, width), ``padding`` (top, bottom, left, right), in 3-D with the depth, or front and back,
before; shapes are PyTorch's, for 1-D with a height of 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.library import Library, register_fake

from dwconv.call import flops
from dwconv.call.call_plan import MOST_PLANS, made_of_plans, plan_for
from dwconv.call.cpp_ops import offer, to_be_taken
from dwconv.call.gradients import Needs, Tied, gradients, wanted
from dwconv.call.passes import PlannedPasses, with_strides
from dwconv.kernels.operand import x_pitch_of
from dwconv.problems import pytorch
from dwconv.problems.problem import Problem, memory_format
from dwconv.problems.workload import Epilogue, Layout

GEOMETRY = "int[] stride, int[] padding, int[] dilation, str layout"

_library: Any = Library("dwconv", "DEF")  # type: ignore[no-untyped-call]


def define(schema: str) -> None:
    """An op of the library."""
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))


for _schema in (
    f"fprop(Tensor x, Tensor w, Tensor? bias, {GEOMETRY}) -> Tensor",
    f"dgrad(Tensor dy, Tensor w, SymInt[] input_shape, {GEOMETRY}) -> Tensor",
    f"wgrad(Tensor x, Tensor dy, SymInt[] kernel_size, {GEOMETRY}) -> Tensor",
    f"wgrad_bias(Tensor x, Tensor dy, SymInt[] kernel_size, {GEOMETRY}) -> (Tensor, Tensor)",
    f"backward(Tensor x, Tensor dy, Tensor w, {GEOMETRY}) -> (Tensor, Tensor)",
):
    define(_schema)

fprop = torch.ops.dwconv.fprop.default
dgrad = torch.ops.dwconv.dgrad.default
wgrad = torch.ops.dwconv.wgrad.default
wgrad_bias = torch.ops.dwconv.wgrad_bias.default
backward = torch.ops.dwconv.backward.default

Ints = Sequence[int]
Geometry = tuple[Ints, Ints, Ints, Layout]
"""stride, padding, dilation, layout, as the ops take them."""


@dataclass(frozen=True, kw_only=True)
class DispatchedPasses:
    """``gradients.Passes`` on the ops: they can be differentiated, and watchers see them."""

    input_shape: Ints
    kernel_size: Ints
    geometry: Geometry
    weight_strides: Ints | None = None
    """The strides of the weight, if its gradient is to have them."""

    @classmethod
    def of(cls, problem: Problem, *, weight_strides: Ints | None) -> DispatchedPasses:
        return cls(
            input_shape=problem.input_shape, kernel_size=problem.weight_shape[2:], geometry=problem.geometry,
            weight_strides=weight_strides,
        )  # fmt: skip

    def fprop(self, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
        return fprop(x, w, bias, *self.geometry)

    def dgrad(self, dy: Tensor, w: Tensor) -> Tensor:
        return dgrad(dy, w, self.input_shape, *self.geometry)

    def wgrad(self, x: Tensor, dy: Tensor) -> Tensor:
        return with_strides(wgrad(x, dy, self.kernel_size, *self.geometry), self.weight_strides)

    def wgrad_bias(self, x: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        dw, dbias = wgrad_bias(x, dy, self.kernel_size, *self.geometry)
        return with_strides(dw, self.weight_strides), dbias

    def backward(self, x: Tensor, dy: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        dx, dw = backward(x, dy, w, *self.geometry)
        return dx, with_strides(dw, self.weight_strides)


# -- what an op does -------------------------------------------------------------------------------------------------


def planned(
    x_shape: Ints,
    w_shape: Ints,
    geometry: Geometry,
    *,
    like: Tensor,
    bias: bool,
    epilogue: Epilogue = "none",
    x: Tensor | None = None,
) -> PlannedPasses:
    """What runs the passes of an op with tensors of the type and on the device of ``like``; the pass reads ``x``, if it
    is given, without a copy."""
    stride, padding, dilation, layout = geometry
    x_pitch = 0 if x is None else x_pitch_of(x, layout=layout)
    key = (
        *x_shape, *w_shape, *stride, *padding, *dilation, layout, like.dtype, like.device, bias, epilogue, x_pitch,
        torch.get_num_threads(),
    )  # fmt: skip
    known = _known.get(key)
    if known is not None:
        return known
    problem = Problem(
        input_shape=tuple(x_shape),
        weight_shape=tuple(w_shape),
        stride=tuple(stride),
        padding=tuple(padding),
        dilation=tuple(dilation),
        dtype=like.dtype,
        layout=layout,
        bias=bias,
        epilogue=epilogue,
    )
    if len(_known) >= MOST_PLANS:
        _known.clear()
    passes = _known[key] = PlannedPasses(plan=plan_for(problem, like.device), x_pitch=x_pitch)
    return passes


_known: dict[object, PlannedPasses] = made_of_plans()
"""What runs an op, by everything that describes it."""


def _fprop(x: Tensor, w: Tensor, bias: Tensor | None, *geometry: Any) -> Tensor:
    passes = planned(x.shape, w.shape, geometry, like=x, bias=bias is not None, x=x)
    passes.plan.ran("fprop", w)
    y = passes.fprop(x, w, bias)
    offer(passes, ("fprop", (0, 1) if bias is None else (0, 1, 2), (0,)))
    return y


def _dgrad(dy: Tensor, w: Tensor, input_shape: Ints, *geometry: Any) -> Tensor:
    passes = planned(input_shape, w.shape, geometry, like=dy, bias=False)
    passes.plan.ran("dgrad", w)
    dx = passes.dgrad(dy, w)
    offer(passes, ("dgrad", (0, 1), (0,)))
    return dx


def _wgrad(x: Tensor, dy: Tensor, kernel_size: Ints, *geometry: Any) -> Tensor:
    passes = planned(x.shape, (dy.shape[1], 1, *kernel_size), geometry, like=x, bias=False, x=x)
    passes.plan.ran("wgrad")
    dw = passes.wgrad(x, dy)
    offer(passes, ("wgrad", (0, 1), (0,)))
    return dw


def _wgrad_bias(x: Tensor, dy: Tensor, kernel_size: Ints, *geometry: Any) -> tuple[Tensor, Tensor]:
    passes = planned(x.shape, (dy.shape[1], 1, *kernel_size), geometry, like=x, bias=True, x=x)
    passes.plan.ran("wgrad")
    both = passes.wgrad_bias(x, dy)
    offer(passes, ("wgrad", (0, 1), (0, 1)))
    return both


def _backward(x: Tensor, dy: Tensor, w: Tensor, *geometry: Any) -> tuple[Tensor, Tensor]:
    passes = planned(x.shape, w.shape, geometry, like=x, bias=False, x=x)
    if both := passes.backward(x, dy, w):
        passes.plan.ran("backward")
        offer(passes, ("backward", (1, 0, 2), (0, 1)))
        return both
    passes.plan.ran("wgrad")
    passes.plan.ran("dgrad", w)
    if passes.kernels["wgrad"] is None and passes.kernels["dgrad"] is None:
        dx, dw = pytorch.backward(passes.plan.problem, x, dy, w)
    else:
        dw = passes.wgrad(x, dy)
        dx = passes.dgrad(dy, w)  # last: what comes next reads it
    offer(passes, ("wgrad", (0, 1), (1,)), ("dgrad", (1, 2), (0,)))
    return dx, dw


# -- the shapes and strides of its results ---------------------------------------------------------------------------


def fprop_fake(
    x: Tensor, w: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints, layout: Layout
) -> Tensor:
    sizes = [
        (x.shape[2 + axis] + padding[2 * axis] + padding[2 * axis + 1] - dilation[axis] * (w.shape[2 + axis] - 1) - 1)
        // stride[axis]
        + 1
        for axis in range(x.dim() - 2)
    ]
    return _empty((x.shape[0], w.shape[0], *sizes), like=x, layout=layout)


def _dgrad_fake(dy: Tensor, w: Tensor, input_shape: Ints, *geometry: Any) -> Tensor:
    return _empty(input_shape, like=dy, layout=geometry[-1])


def _wgrad_fake(x: Tensor, dy: Tensor, kernel_size: Ints, *geometry: Any) -> Tensor:
    return x.new_empty((dy.shape[1], 1, *kernel_size))


def _wgrad_bias_fake(x: Tensor, dy: Tensor, kernel_size: Ints, *geometry: Any) -> tuple[Tensor, Tensor]:
    return x.new_empty((dy.shape[1], 1, *kernel_size)), x.new_empty(dy.shape[1])


def _backward_fake(x: Tensor, dy: Tensor, w: Tensor, *geometry: Any) -> tuple[Tensor, Tensor]:
    return _dgrad_fake(dy, w, x.shape, *geometry), _wgrad_fake(x, dy, w.shape[2:], *geometry)


def _empty(shape: Ints, *, like: Tensor, layout: Layout) -> Tensor:
    format = memory_format(layout, axes=len(shape) - 2)
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=format)


# -- its derivative --------------------------------------------------------------------------------------------------


class DwconvFprop(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, *geometry: Any) -> Tensor:
        _keep(ctx, x, w)
        ctx.passes = DispatchedPasses(
            input_shape=x.shape, kernel_size=w.shape[2:], geometry=geometry, weight_strides=w.stride()
        )
        return below_autograd(fprop, x, w, bias, *geometry)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        needs_x, needs_w, needs_bias, *_ = wanted(ctx)
        found = gradients(ctx.passes, Tied(x, w, None, dy), Needs(needs_x, needs_w, needs_bias))
        return found.x, found.w, found.bias, *OF_GEOMETRY


class DwconvDgrad(Function):
    @staticmethod
    def forward(ctx: Any, dy: Tensor, w: Tensor, input_shape: Ints, *geometry: Any) -> Tensor:
        _keep(ctx, dy, w)
        ctx.passes = DispatchedPasses(input_shape=input_shape, kernel_size=w.shape[2:], geometry=geometry)
        return below_autograd(dgrad, dy, w, input_shape, *geometry)

    @staticmethod
    def backward(ctx: Any, ddx: Tensor) -> tuple[Tensor | None, ...]:
        dy, w = ctx.saved_tensors
        needs_y, needs_w, *_ = wanted(ctx)
        found = gradients(ctx.passes, Tied(x=ddx, w=w, y=dy), Needs(w=needs_w, y=needs_y))
        return found.y, found.w, None, *OF_GEOMETRY


class DwconvWgrad(Function):
    """Of ``wgrad`` or ``wgrad_bias``, the ``op`` that comes last."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dy: Tensor, kernel_size: Ints, *others: Any) -> Any:
        *geometry, op = others
        _keep(ctx, x, dy)
        ctx.passes = DispatchedPasses(input_shape=x.shape, kernel_size=kernel_size, geometry=tuple(geometry))
        return below_autograd(op, x, dy, kernel_size, *geometry)

    @staticmethod
    def backward(ctx: Any, ddw: Tensor, ddbias: Tensor | None = None) -> tuple[Tensor | None, ...]:
        x, dy = ctx.saved_tensors
        needs_x, needs_y, *_ = wanted(ctx)
        found = gradients(ctx.passes, Tied(x=x, w=ddw, bias=ddbias, y=dy), Needs(x=needs_x, y=needs_y))
        return found.x, found.y, None, *OF_GEOMETRY, None


def _apply_wgrad(op: Any, *given: Any) -> Any:
    return DwconvWgrad.apply(*given, op)  # type: ignore[no-untyped-call]


def _apart(x: Tensor, dy: Tensor, w: Tensor, *geometry: Any) -> tuple[Tensor, Tensor]:
    """``backward``, of ops that have derivatives."""
    return dgrad(dy, w, x.shape, *geometry), wgrad(x, dy, w.shape[2:], *geometry)


OF_GEOMETRY = (None,) * 4
"""Nothing of it has a gradient."""


def _keep(ctx: Any, first: Tensor, second: Tensor) -> None:
    """Each of the two is needed for the gradient of the other only."""
    needs_first, needs_second, *_ = ctx.needs_input_grad
    ctx.save_for_backward(first if needs_second else None, second if needs_first else None)


def below_autograd(op: Any, *args: Any) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return op(*args)


def _differentiable(op: Any, derivative: Callable[..., Any]) -> Callable[..., Any]:
    """``op`` with its derivative. torch.library.register_autograd does the same, in half as much time again."""

    def call(*args: Any) -> Any:
        if torch.is_grad_enabled():
            return derivative(*args)
        return below_autograd(op, *args)

    return call


# -- autocast --------------------------------------------------------------------------------------------------------


def _autocast(op: Any, device: str) -> Callable[..., Tensor]:
    """Under autocast a convolution, ``op``, runs in the lower precision, as PyTorch's own does."""
    guard, keys = torch._C._ExcludeDispatchKeyGuard, torch._C.DispatchKeySet(_AUTOCAST_KEYS[device])

    def lowered(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        fits = tensor is not None and tensor.is_floating_point() and tensor.dtype is not torch.float64
        return tensor.to(dtype) if tensor is not None and fits else tensor

    def call(x: Tensor, w: Tensor, bias: Tensor | None, *geometry: Any) -> Tensor:
        dtype = torch.get_autocast_dtype(device)
        arguments = [lowered(tensor, dtype) for tensor in (x, w, bias)]
        with guard(keys):
            y: Tensor = op(*arguments, *geometry)
        return y

    return call


def lower_under_autocast(op: Any) -> None:
    """Lets autocast choose the type of an op that takes x, w and a bias."""
    _library.impl(op, _autocast(op, "cpu"), "AutocastCPU")
    _library.impl(op, _autocast(op, "cuda"), "AutocastCUDA")


_AUTOCAST_KEYS = {"cpu": torch._C.DispatchKey.AutocastCPU, "cuda": torch._C.DispatchKey.AutocastCUDA}


def implement(op: Any, run: Any, fake: Any, derivative: Any) -> None:
    """What an op of the library does, its results' shapes, and its derivative."""
    _library.impl(op, run, "CompositeExplicitAutograd")
    _library.impl(op, _differentiable(op, derivative), "Autograd")
    register_fake(op, fake, lib=_library)
    to_be_taken(op._opname)


def implement_composite(op: Any, run: Any) -> None:
    """What an op of the library is made of, which has no derivative of its own."""
    _library.impl(op, run, "CompositeImplicitAutograd")


for _of_op in (
    (fprop, _fprop, fprop_fake, DwconvFprop.apply),
    (dgrad, _dgrad, _dgrad_fake, DwconvDgrad.apply),
    (wgrad, _wgrad, _wgrad_fake, partial(_apply_wgrad, wgrad)),
    (wgrad_bias, _wgrad_bias, _wgrad_bias_fake, partial(_apply_wgrad, wgrad_bias)),
    (backward, _backward, _backward_fake, _apart),
):
    implement(*_of_op)
lower_under_autocast(fprop)
flops.register(torch.ops.dwconv)
