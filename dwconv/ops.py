"""The torch ops ``dwconv::fprop``, ``dgrad``, ``wgrad`` and ``wgrad_bias``: tuned kernels behind PyTorch's dispatcher.

``wgrad_bias`` also gives the gradient of the bias. The four are closed under differentiation: the derivative of each is
made of the others, so derivatives of any order work. Each runs the kernel that dispatch names, or PyTorch's own op on
the same tensors.

``layout`` (``nchw`` or ``nhwc``) says how x, y, dx and dy are meant to lie in memory; results lie so, whatever the
arguments do. ``padding`` is (top, bottom, left, right); shapes are PyTorch's, for 1-D with a height of 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.library import Library, register_fake

from dwconv.plan import plan
from dwconv.workload import Layout

if TYPE_CHECKING:
    from dwconv.build.kernel import Kernel

_MEMORY_FORMAT = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
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
    kernel = plan(
        input_shape=x.shape, weight_shape=w.shape, stride=stride, padding=padding, dilation=dilation,
        dtype=x.dtype, device=x.device, layout=layout, bias=bias is not None,
    ).kernel("fprop")  # fmt: skip
    if kernel is None:
        symmetric, pad = _split_padding(padding)
        y = F.conv2d(F.pad(x, pad) if pad else x, w, bias, stride, symmetric, dilation, x.shape[1])
        return y.contiguous(memory_format=_MEMORY_FORMAT[layout])
    if bias is not None and kernel.workload.bias:
        fused: Tensor = kernel(x, w, bias)
        return fused
    bare: Tensor = kernel(x, w)
    return bare if bias is None else bare.add_(bias.view(-1, 1, 1))  # nobody has seen it yet


def _fprop_fake(
    x: Tensor, w: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints, layout: Layout
) -> Tensor:
    sizes = [
        (x.shape[2 + axis] + padding[2 * axis] + padding[2 * axis + 1] - dilation[axis] * (w.shape[2 + axis] - 1) - 1)
        // stride[axis]
        + 1
        for axis in (0, 1)
    ]
    return _empty((x.shape[0], w.shape[0], *sizes), like=x, layout=layout)


class DwconvFprop(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, *geometry: Any) -> Tensor:
        needs_dx, needs_dw = ctx.needs_input_grad[:2]
        ctx.save_for_backward(x if needs_dw else None, w if needs_dx else None)
        ctx.input_shape, ctx.kernel_size, ctx.geometry = x.shape, w.shape[2:], geometry
        y: Tensor = _below_autograd(fprop, x, w, bias, *geometry)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        needs_dx, needs_dw, needs_db = ctx.needs_input_grad[:3]
        dx = dgrad(dy, w, ctx.input_shape, *ctx.geometry) if needs_dx else None
        if needs_dw and needs_db:
            return dx, *wgrad_bias(x, dy, ctx.kernel_size, *ctx.geometry), None, None, None, None
        dw = wgrad(x, dy, ctx.kernel_size, *ctx.geometry) if needs_dw else None
        db = dy.sum((0, 2, 3)) if needs_db else None
        return dx, dw, db, None, None, None, None


# -- gradient of the input -------------------------------------------------------------------------------------------


def _dgrad(
    dy: Tensor, w: Tensor, input_shape: Ints, stride: Ints, padding: Ints, dilation: Ints, layout: Layout
) -> Tensor:
    kernel = plan(
        input_shape=input_shape, weight_shape=w.shape, stride=stride, padding=padding, dilation=dilation,
        dtype=dy.dtype, device=dy.device, layout=layout, bias=False,
    ).kernel("dgrad")  # fmt: skip
    if kernel is not None:
        ours: Tensor = kernel(dy, w)
        return ours
    batch, channels, height, width = input_shape
    symmetric, (left, right, top, bottom) = _split_padding(padding, always=True)
    # Only its shape and its layout matter; it is never read, nor written.
    x = _empty((batch, channels, height + top + bottom, width + left + right), like=dy, layout=layout)
    dx = _pytorch_backward(dy, x, w, stride, symmetric, dilation, mask=(True, False, False))[0]
    return dx[:, :, top : top + height, left : left + width].contiguous(memory_format=_MEMORY_FORMAT[layout])


def _dgrad_fake(
    dy: Tensor, w: Tensor, input_shape: Ints, stride: Ints, padding: Ints, dilation: Ints, layout: Layout
) -> Tensor:
    return _empty(input_shape, like=dy, layout=layout)


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
    kernel = _wgrad_kernel(x, dy, kernel_size, stride, padding, dilation, layout, bias=False)
    if kernel is None:
        return _pytorch_wgrad(x, dy, kernel_size, stride, padding, dilation, bias=False)[0]
    dw: Tensor = kernel(x, dy)
    return dw


def _wgrad_bias(
    x: Tensor, dy: Tensor, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, layout: Layout
) -> tuple[Tensor, Tensor]:
    kernel = _wgrad_kernel(x, dy, kernel_size, stride, padding, dilation, layout, bias=True)
    if kernel is None:
        return _pytorch_wgrad(x, dy, kernel_size, stride, padding, dilation, bias=True)
    if kernel.workload.bias:
        dw, dbias = kernel(x, dy)
        return dw, dbias
    return kernel(x, dy), dy.sum((0, 2, 3))


def _wgrad_kernel(
    x: Tensor, dy: Tensor, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, layout: Layout, *, bias: bool
) -> Kernel | None:
    return plan(
        input_shape=x.shape, weight_shape=(dy.shape[1], 1, *kernel_size), stride=stride, padding=padding,
        dilation=dilation, dtype=x.dtype, device=x.device, layout=layout, bias=bias,
    ).kernel("wgrad")  # fmt: skip


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


# -- PyTorch's own ops -----------------------------------------------------------------------------------------------


def _pytorch_wgrad(
    x: Tensor, dy: Tensor, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, *, bias: bool
) -> tuple[Tensor, Tensor]:
    """dw, and dbias where it is wanted, from one call."""
    symmetric, pad = _split_padding(padding)
    w = dy.new_empty(1).expand((dy.shape[1], 1, *kernel_size))  # only its shape matters
    padded = F.pad(x, pad) if pad else x
    _, dw, dbias = _pytorch_backward(dy, padded, w, stride, symmetric, dilation, mask=(False, True, bias))
    return dw.contiguous(), dbias


def _pytorch_backward(
    dy: Tensor, x: Tensor, w: Tensor, stride: Ints, padding: Ints, dilation: Ints, *, mask: tuple[bool, bool, bool]
) -> tuple[Tensor, Tensor, Tensor]:
    """Those of PyTorch's gradients, of x, w and the bias, that ``mask`` asks for; the others hold nothing."""
    gradients: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
        dy, x, w, [w.shape[0]], stride, padding, dilation, False, [0, 0], x.shape[1], mask
    )
    return gradients


def _split_padding(padding: Ints, *, always: bool = False) -> tuple[tuple[int, int], tuple[int, ...]]:
    """Padding as PyTorch's op takes it, and what has to be padded before: (left, right, top, bottom), empty for
    nothing unless ``always``."""
    top, bottom, left, right = padding
    if top == bottom and left == right:
        return (top, left), (0, 0, 0, 0) if always else ()
    return (0, 0), (left, right, top, bottom)


def _empty(shape: Sequence[int], *, like: Tensor, layout: Layout) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=_MEMORY_FORMAT[layout])


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
