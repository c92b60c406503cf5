"""The torch ops: registered as PyTorch demands, and closed under differentiation."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck, gradgradcheck

from dwconv.call import torch_ops as ops
from tests.planted_records import plant, workload_of

pytestmark = [
    pytest.mark.usefixtures("threads_as_asked"),
    pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning"),
]
LAYOUTS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
LAYOUTS_3D = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last_3d}
# stride, padding (before and after, axis by axis), dilation
GEOMETRIES = {
    "plain": ((1, 1), (1, 1, 1, 1), (1, 1)),
    "strided, dilated, asymmetric": ((2, 1), (1, 0, 2, 1), (1, 2)),
    "leaving a remainder": ((3, 2), (0, 0, 1, 1), (1, 1)),
    "3-D": ((1, 2, 1), (1, 0, 2, 1, 0, 1), (2, 1, 1)),
}


@pytest.fixture(params=GEOMETRIES.values(), ids=list(GEOMETRIES))
def geometry(request):
    return request.param


@pytest.fixture(params=LAYOUTS)
def layout(request):
    return request.param


def arguments(*, dtype=torch.float64, batch=2, channels=2, multiplier=2, axes=2):
    x = torch.randn(batch, channels, *(4, 6, 5)[-axes:], dtype=dtype, requires_grad=True)
    w = torch.randn(channels * multiplier, 1, *(2, 3, 2)[-axes:], dtype=dtype, requires_grad=True)
    bias = torch.randn(channels * multiplier, dtype=dtype, requires_grad=True)
    return x, w, bias


def expected(x, w, bias, geometry):
    stride, padding, dilation = geometry
    convolve = F.conv2d if x.dim() == 4 else F.conv3d
    sides = [side for axis in range(len(padding) - 2, -1, -2) for side in padding[axis : axis + 2]]
    return convolve(F.pad(x, sides), w, bias, stride, 0, dilation, x.shape[1])


def test_derivatives_of_any_order_are_right(logs, geometry, layout):
    """Each op's derivative is made of the others, so the second derivative of one checks them all."""
    x, w, bias = arguments(axes=len(geometry[0]))
    torch.testing.assert_close(ops.fprop(x, w, bias, *geometry, layout), expected(x, w, bias, geometry))
    assert gradcheck(lambda *tensors: ops.fprop(*tensors, *geometry, layout), (x, w, bias), fast_mode=True)
    assert gradgradcheck(lambda *tensors: ops.fprop(*tensors, *geometry, layout), (x, w, bias), fast_mode=True)


@pytest.mark.parametrize(
    ("name", "layout"), [("strided, dilated, asymmetric", "nhwc"), ("plain", "nchw"), ("3-D", "nhwc")]
)
def test_registered_as_pytorch_demands(logs, name, layout):
    """Schema, fake implementation (shapes and strides), autograd, and all of it under torch.compile."""
    geometry = GEOMETRIES[name]
    x, w, bias = arguments(axes=len(geometry[0]))
    kernel = list(w.shape[2:])
    y = ops.fprop(x, w, bias, *geometry, layout).detach()
    for op, args in (
        (ops.fprop, (x, w, bias, *geometry, layout)),
        (ops.dgrad, (y.requires_grad_(), w, list(x.shape), *geometry, layout)),
        (ops.wgrad, (x, y.requires_grad_(), kernel, *geometry, layout)),
        (ops.wgrad_bias, (x, y.requires_grad_(), kernel, *geometry, layout)),
    ):
        torch.library.opcheck(op, args)


@pytest.mark.parametrize(("size", "formats"), [((6, 5), LAYOUTS), ((3, 6, 5), LAYOUTS_3D)], ids=["2-D", "3-D"])
@pytest.mark.parametrize("tuned", [False, True], ids=["pytorch", "dwconv"])
def test_results_have_the_requested_layout_whatever_the_arguments_have(logs, layout, tuned, size, formats):
    axes = len(size)
    kernel = (3,) * axes
    if tuned:
        plant(logs / "log.jsonl", [workload_of(shape=(2, 4, *size), kernel=kernel, layout=layout)], baseline_us=1e6)
    geometry = ((1,) * axes, (1,) * 2 * axes, (1,) * axes)
    x, w = torch.randn(2, 4, *size), torch.randn(4, 1, *kernel)
    exact = {2: F.conv2d, 3: F.conv3d}[axes](x, w, padding=1, groups=4)
    for memory_format in formats.values():
        there = x.contiguous(memory_format=memory_format)
        y = ops.fprop(there, w, None, *geometry, layout)
        dx = ops.dgrad(there, w, x.shape, *geometry, layout)
        dw = ops.wgrad(there, there, kernel, *geometry, layout)
        assert y.is_contiguous(memory_format=formats[layout])
        assert dx.is_contiguous(memory_format=formats[layout])
        assert dw.is_contiguous()
        torch.testing.assert_close(y, exact)


def test_sizes_are_forgotten_before_they_fill_the_memory(logs, monkeypatch):
    monkeypatch.setattr("dwconv.call.torch_ops.MOST_PLANS", 3)
    for batch in range(1, 9):
        x, w, bias = arguments(batch=batch)
        ops.fprop(x, w, bias, *GEOMETRIES["plain"], "nchw")
    assert len(ops._known) <= 3


def test_only_requested_gradients_are_computed(logs, monkeypatch):
    """A frozen weight needs no wgrad, and its input is not kept."""
    x, w, bias = arguments()
    y = ops.fprop(x, w.detach(), bias, *GEOMETRIES["plain"], "nchw")
    saved = y.grad_fn.saved_tensors
    (db,) = torch.autograd.grad(y.sum(), bias, retain_graph=True)
    assert db.shape == bias.shape
    assert [tensor is None for tensor in saved] == [True, False]
    assert torch.autograd.grad(y.sum(), x)[0].shape == x.shape


def test_an_empty_batch_has_gradients_of_zero(logs, geometry, layout):
    x, w, bias = arguments(batch=0, axes=len(geometry[0]))
    y = ops.fprop(x, w, bias, *geometry, layout)
    assert y.shape == expected(x, w, bias, geometry).shape
    dx, dw, db = torch.autograd.grad(y.sum(), (x, w, bias))
    assert dx.shape == x.shape
    assert not dw.any()
    assert not db.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_lowers_as_pytorch_does(logs, dtype):
    x, w, bias = arguments(dtype=torch.float32)
    geometry = GEOMETRIES["plain"]
    with torch.autocast("cpu", dtype):
        y = ops.fprop(x, w, bias, *geometry, "nchw")
        exact = expected(x, w, bias, geometry)
        kept = ops.fprop(*(tensor.double() for tensor in (x, w, bias)), *geometry, "nchw")
    assert (y.dtype, kept.dtype) == (dtype, torch.float64)
    torch.testing.assert_close(y, exact)
    for gradient in torch.autograd.grad(y.float().sum(), (x, w, bias)):
        assert gradient.dtype is torch.float32
