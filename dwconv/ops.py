"""The torch ops ``dwconv::fprop``, ``dgrad``, ``wgrad`` and ``wgrad_bias``: tuned kernels behind PyTorch's dispatcher.

``wgrad_bias`` also gives the gradient of the bias. The four are closed under differentiation: the derivative of each is
made of the others, so derivatives of any order work. What runs them is in ``passes``.

``layout`` (``nchw`` or ``nhwc``) says how x, y, dx and dy are meant to lie in memory; results lie so, whatever the
arguments do. ``padding`` is (top, bottom, left, right); shapes are PyTorch's, for 1-D with a height of 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.library import Library, register_fake

from dwconv import passes
from dwconv.plan import Plan, plan
from dwconv.workload import Layout

_GEOMETRY = "int[2] stride, int[4] padding, int[2] dilation, str layout"

_library: Any = Library("dwconv", "DEF")  # type: ignore[no-untyped-call]
for _schema in (
    f"fprop(Tensor x, Tensor w, Tensor? bias, {_GEOMETRY}) -> Tensor",
    f"dgrad(Tensor dy, Tensor w, SymInt[] input_shape, {_GEOMETRY}) -> Tensor",
    f"wgrad(Tensor x, Tensor dy, SymInt[2] kernel_size, {_GEOMETRY}) -> Tensor",
    f"wgrad_bias(Tensor x, Tensor dy, SymInt[2] kernel_size, {_GEOMETRY}) -> (Tensor, Tensor)",
):
    _library.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))

fprop = torch.ops.dwconv.fprop.default
dgrad = torch.ops.dwconv.dgrad.default
wgrad = torch.ops.dwconv.wgrad.default
wgrad_bias = torch.ops.dwconv.wgrad_bias.default

Ints = Sequence[int]


# -- forward ---------------------------------------------------------------------------------------------------------


def _fprop(
    x: Tensor, w: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints, layout: Layout
) -> Tensor:
    found = plan(
        input_shape=x.shape, weight_shape=w.shape, stride=stride, padding=padding, dilation=dilation,
        dtype=x.dtype, device=x.device, layout=layout, bias=bias is not None,
    )  # fmt: skip
    return passes.fprop(found, x, w, bias)


def _fprop_fake(
    x: Tensor, w: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints, layout: Layout
) -> Tensor:
    sizes = [
        (x.shape[2 + axis] + padding[2 * axis] + padding[2 * axis + 1] - dilation[axis] * (w.shape[2 + axis] - 1) - 1)
        // stride[axis]
        + 1
        for axis in (0, 1)
    ]
    return passes.empty((x.shape[0], w.shape[0], *sizes), like=x, layout=layout)


class DwconvFprop(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, *geometry: Any) -> Tensor:
        needs_dx, needs_dw = ctx.needs_input_grad[:2]
        ctx.save_for_backward(x if needs_dw else None, w if needs_dx else None)
        ctx.input_shape, ctx.kernel_size, ctx.geometry = x.shape, w.shape[2:], geometry
        ctx.weight_strides = w.stride()
        y: Tensor = _below_autograd(fprop, x, w, bias, *geometry)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        needs_dx, needs_dw, needs_db = ctx.needs_input_grad[:3]
        dx, dw, db = None, None, None
        if needs_dw and needs_db:
            dw, db = wgrad_bias(x, dy, ctx.kernel_size, *ctx.geometry)
        elif needs_dw:
            dw = wgrad(x, dy, ctx.kernel_size, *ctx.geometry)
        elif needs_db:
            db = dy.sum((0, 2, 3))
        if dw is not None:
            dw = passes.strided(dw, ctx.weight_strides)
        if needs_dx:  # last: what comes next reads it
            dx = dgrad(dy, w, ctx.input_shape, *ctx.geometry)
        return dx, dw, db, None, None, None, None


# -- gradient of the input -------------------------------------------------------------------------------------------


def _dgrad(
    dy: Tensor, w: Tensor, input_shape: Ints, stride: Ints, padding: Ints, dilation: Ints, layout: Layout
) -> Tensor:
    found = plan(
        input_shape=input_shape, weight_shape=w.shape, stride=stride, padding=padding, dilation=dilation,
        dtype=dy.dtype, device=dy.device, layout=layout, bias=False,
    )  # fmt: skip
    return passes.dgrad(found, dy, w)


def _dgrad_fake(
    dy: Tensor, w: Tensor, input_shape: Ints, stride: Ints, padding: Ints, dilation: Ints, layout: Layout
) -> Tensor:
    return passes.empty(input_shape, like=dy, layout=layout)


class DwconvDgrad(Function):
    @staticmethod
    def forward(ctx: Any, dy: Tensor, w: Tensor, input_shape: Ints, *geometry: Any) -> Tensor:
        needs_ddy, needs_dw = ctx.needs_input_grad[:2]
        ctx.save_for_backward(dy if needs_dw else None, w if needs_ddy else None)
        ctx.kernel_size, ctx.geometry = w.shape[2:], geometry
        dx: Tensor = _below_autograd(dgrad, dy, w, input_shape, *geometry)
        return dx

    @staticmethod
    def backward(ctx: Any, ddx: Tensor) -> tuple[Tensor | None, ...]:
        dy, w = ctx.saved_tensors
        needs_ddy, needs_dw = ctx.needs_input_grad[:2]
        ddy = fprop(ddx, w, None, *ctx.geometry) if needs_ddy else None
        dw = wgrad(ddx, dy, ctx.kernel_size, *ctx.geometry) if needs_dw else None
        return ddy, dw, None, None, None, None, None


# -- gradient of the weight ------------------------------------------------------------------------------------------


def _wgrad(
    x: Tensor, dy: Tensor, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, layout: Layout
) -> Tensor:
    return passes.wgrad(_plan_of(x, dy, kernel_size, stride, padding, dilation, layout, bias=False), x, dy)


def _wgrad_bias(
    x: Tensor, dy: Tensor, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, layout: Layout
) -> tuple[Tensor, Tensor]:
    return passes.wgrad_bias(_plan_of(x, dy, kernel_size, stride, padding, dilation, layout, bias=True), x, dy)


def _plan_of(
    x: Tensor, dy: Tensor, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, layout: Layout, *, bias: bool
) -> Plan:
    return plan(
        input_shape=x.shape, weight_shape=(dy.shape[1], 1, *kernel_size), stride=stride, padding=padding,
        dilation=dilation, dtype=x.dtype, device=x.device, layout=layout, bias=bias,
    )  # fmt: skip


def _wgrad_fake(
    x: Tensor, dy: Tensor, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, layout: Layout
) -> Tensor:
    return x.new_empty((dy.shape[1], 1, *kernel_size))


def _wgrad_bias_fake(
    x: Tensor, dy: Tensor, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, layout: Layout
) -> tuple[Tensor, Tensor]:
    return x.new_empty((dy.shape[1], 1, *kernel_size)), x.new_empty(dy.shape[1])


class DwconvWgrad(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dy: Tensor, kernel_size: Ints, *geometry: Any) -> Tensor:
        needs_dx, needs_ddy = ctx.needs_input_grad[:2]
        ctx.save_for_backward(x if needs_ddy else None, dy if needs_dx else None)
        ctx.input_shape, ctx.geometry = x.shape, geometry
        dw: Tensor = _below_autograd(wgrad, x, dy, kernel_size, *geometry)
        return dw

    @staticmethod
    def backward(ctx: Any, ddw: Tensor) -> tuple[Tensor | None, ...]:
        x, dy = ctx.saved_tensors
        needs_dx, needs_ddy = ctx.needs_input_grad[:2]
        dx = dgrad(dy, ddw, ctx.input_shape, *ctx.geometry) if needs_dx else None
        ddy = fprop(x, ddw, None, *ctx.geometry) if needs_ddy else None
        return dx, ddy, None, None, None, None, None


class DwconvWgradBias(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dy: Tensor, kernel_size: Ints, *geometry: Any) -> tuple[Tensor, Tensor]:
        needs_dx, needs_ddy = ctx.needs_input_grad[:2]
        ctx.save_for_backward(x if needs_ddy else None, dy if needs_dx else None)
        ctx.input_shape, ctx.geometry = x.shape, geometry
        dw, dbias = _below_autograd(wgrad_bias, x, dy, kernel_size, *geometry)
        return dw, dbias

    @staticmethod
    def backward(ctx: Any, ddw: Tensor, ddbias: Tensor) -> tuple[Tensor | None, ...]:
        x, dy = ctx.saved_tensors
        needs_dx, needs_ddy = ctx.needs_input_grad[:2]
        dx = dgrad(dy, ddw, ctx.input_shape, *ctx.geometry) if needs_dx else None
        ddy = fprop(x, ddw, ddbias, *ctx.geometry) if needs_ddy else None
        return dx, ddy, None, None, None, None, None


# -- what PyTorch's dispatcher calls before the op itself ------------------------------------------------------------


def _below_autograd(op: Any, *args: Any) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return op(*args)


def _differentiable(op: Any, function: type[Function]) -> Callable[..., Any]:
    """``op`` with its derivative. torch.library.register_autograd does the same, in half as much time again."""

    def call(*args: Any) -> Any:
        if torch.is_grad_enabled():
            return function.apply(*args)  # type: ignore[no-untyped-call]
        return _below_autograd(op, *args)

    return call


def _autocast(device: str) -> Callable[..., Tensor]:
    """Under autocast a convolution runs in the lower precision, as PyTorch's own does."""
    guard, keys = torch._C._ExcludeDispatchKeyGuard, torch._C.DispatchKeySet(_AUTOCAST_KEYS[device])

    def lowered(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        fits = tensor is not None and tensor.is_floating_point() and tensor.dtype is not torch.float64
        return tensor.to(dtype) if tensor is not None and fits else tensor

    def call(x: Tensor, w: Tensor, bias: Tensor | None, *geometry: Any) -> Tensor:
        dtype = torch.get_autocast_dtype(device)
        arguments = [lowered(tensor, dtype) for tensor in (x, w, bias)]
        with guard(keys):
            y: Tensor = fprop(*arguments, *geometry)
        return y

    return call


_AUTOCAST_KEYS = {"cpu": torch._C.DispatchKey.AutocastCPU, "cuda": torch._C.DispatchKey.AutocastCUDA}

for _op, _run, _fake, _function in (
    (fprop, _fprop, _fprop_fake, DwconvFprop),
    (dgrad, _dgrad, _dgrad_fake, DwconvDgrad),
    (wgrad, _wgrad, _wgrad_fake, DwconvWgrad),
    (wgrad_bias, _wgrad_bias, _wgrad_bias_fake, DwconvWgradBias),
):
    _library.impl(_op, _run, "CompositeExplicitAutograd")
    _library.impl(_op, _differentiable(_op, _function), "Autograd")
    register_fake(_op, _fake, lib=_library)
_library.impl(fprop, _autocast("cpu"), "AutocastCPU")
_library.impl(fprop, _autocast("cuda"), "AutocastCUDA")
