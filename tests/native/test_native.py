"""Calls that C++ takes: the same bits as through Python, whatever axes they have; and what it leaves to Python."""

from __future__ import annotations

import dataclasses
import gc

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo import compiled_autograd

import dwconv
from dwconv import native
from dwconv.call.call_plan import plan_for
from dwconv.errors import DwconvWarning
from dwconv.problems.problem import Problem
from dwconv.problems.workload import PASSES
from tests.native_needed import go_through_python, needs_native
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.usefixtures("threads_as_asked")
WORKLOAD = workload_of()


@pytest.fixture(scope="module", autouse=True)
def compiled():
    needs_native()


def leaves(*, shape=WORKLOAD.input_shape, kernel=(3, 3), bias=False, memory_format=torch.channels_last):
    torch.manual_seed(0)
    x = torch.randn(shape).to(memory_format=memory_format).requires_grad_()
    w = torch.randn(8, 1, *kernel, requires_grad=True)
    return x, w, torch.randn(8, requires_grad=True) if bias else None


def took(function, *arguments, **keywords):
    """The result, and whether C++ gave it."""
    y = function(*arguments, **keywords)
    return y, "CppNode" in y.grad_fn.name()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("batched", [True, False])
def test_the_same_bits_as_through_python(logs, monkeypatch, batched, bias):
    workload = dataclasses.replace(WORKLOAD, bias=bias, layout="nhwc" if batched else "nchw")
    plant(logs / "log.jsonl", [workload], baseline_us=1e6, template_layout=workload.layout)
    x, w, b = leaves(bias=bias)
    if not batched:
        x = x.detach()[0].contiguous().requires_grad_()
    given = [tensor for tensor in (x, w, b) if tensor is not None]
    found = []
    for way in ("compiled", "interpreted"):
        if way == "interpreted":
            go_through_python(monkeypatch)
            dwconv.reset()
        dwconv.conv2d(x, w, b, padding=(1, 1))
        y, is_compiled = took(dwconv.conv2d, x, w, b, padding=(1, 1))
        assert is_compiled == (way == "compiled")
        found.append([y, *torch.autograd.grad(y.sin().sum(), given)])
    for ours, python in zip(*found, strict=True):
        assert torch.equal(ours, python)
        assert ours.shape == python.shape
    reference = F.conv2d(x, w, b, padding=1, groups=8)
    torch.testing.assert_close(
        found[0], [reference, *torch.autograd.grad(reference.sin().sum(), given)], rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("shape", [(2, 8, 12), (8, 12)])
def test_one_axis_and_gradients_of_gradients(logs, shape):
    workload = dataclasses.replace(
        WORKLOAD, batch=2, input_size=(1, 12), kernel=(1, 3), padding=((0, 0), (1, 1)), layout="nchw"
    )
    plant(logs / "log.jsonl", [workload], baseline_us=1e6, template_layout="nchw")
    x, w, _ = leaves(shape=shape, kernel=(3,), memory_format=torch.contiguous_format)
    dwconv.conv1d(x, w, padding=1)
    ours, is_compiled = took(dwconv.conv1d, x, w, padding=1)
    reference = F.conv1d(x, w, padding=1, groups=8)
    assert is_compiled
    torch.testing.assert_close(ours, reference, rtol=1e-4, atol=1e-4)
    twice = []
    for y in (ours, reference):
        dx, dw = torch.autograd.grad(y.sin().sum(), (x, w), create_graph=True)
        twice.append((dx, dw, *torch.autograd.grad(dx.sin().sum() + dw.cos().sum(), (x, w))))
    torch.testing.assert_close(twice[0], twice[1], rtol=1e-4, atol=1e-4)


def test_only_a_call_as_it_was_learnt_is_taken(logs):
    plant(logs / "log.jsonl", [WORKLOAD], baseline_us=1e6)
    x, w, _ = leaves()
    dwconv.conv2d(x, w, padding=(1, 1))
    arguments = (None, 1, (1, 1), 1, None, 2)
    assert native.convolve(x, w, *arguments) is not None
    for other in (x.detach().contiguous(), x.detach()[:, :, 1:], x.detach().double(), x.detach()[:1, :4]):
        assert native.convolve(other, w, *arguments) is None
    assert native.convolve(x, w, None, 1, (0, 1), 1, None, 2) is None
    assert native.convolve(x, w, None, 1, [1, 1], 1, None, 2) is None
    assert native.convolve(x, torch.nn.Parameter(w.detach()), *arguments) is not None
    assert native.convolve(x, w.detach().as_subclass(type("Own", (torch.Tensor,), {})), *arguments) is None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert native.convolve(x, w, *arguments) is None
    with torch.overrides.BaseTorchFunctionMode():
        assert native.convolve(x, w, *arguments) is None
    native.forget()
    assert native.convolve(x, w, *arguments) is None


def test_what_was_learnt_without_gradients_or_on_other_threads_is_learnt_again(logs):
    plant(logs / "log.jsonl", [WORKLOAD], baseline_us=1e6)
    x, w, _ = leaves()
    arguments = (x, w, None, 1, 1, 1, None, 2)
    with torch.no_grad():
        dwconv.conv2d(x, w, padding=1)
    assert native.convolve(*arguments) is None
    dwconv.conv2d(x, w, padding=1)
    assert took(dwconv.conv2d, x, w, padding=1)[1]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        assert native.convolve(*arguments) is None
    finally:
        torch.set_num_threads(threads)


def test_a_graph_outlives_what_was_forgotten(logs):
    """Its kernels stay in memory until it is gone."""
    plant(logs / "log.jsonl", [WORKLOAD], baseline_us=1e6)
    x, w, _ = leaves()
    dwconv.conv2d(x, w, padding=1)
    y, is_compiled = took(dwconv.conv2d, x, w, padding=1)
    assert is_compiled
    dwconv.reset()
    gc.collect()
    assert native.convolve(x, w, None, 1, 1, 1, None, 2) is None
    reference = F.conv2d(x, w, padding=1, groups=8)
    ours, theirs = (torch.autograd.grad(each.sin().sum(), (x, w)) for each in (y, reference))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.* run on PyTorch's own op")
@pytest.mark.parametrize(
    ("passes", "padding", "compiled"),
    [
        (("dgrad", "wgrad"), 1, True),
        (("wgrad",), 1, True),
        (("fprop", "wgrad"), 1, True),
        (("fprop", "wgrad"), ((2, 0), (1, 1)), False),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
def test_pytorch_runs_a_pass_of_what_cpp_takes(logs, passes, padding, compiled, bias):
    """But where both sides are padded otherwise: PyTorch's op cannot pad so by itself."""
    workload = dataclasses.replace(WORKLOAD, bias=bias, padding=WORKLOAD.padding if padding == 1 else padding)
    plant(logs / "log.jsonl", [workload], baseline_us=1e6, passes=passes)
    given = [leaf for leaf in leaves(bias=bias) if leaf is not None]
    ours = []
    for _ in range(2):  # Python, which teaches, and C++
        y, is_compiled = took(dwconv.conv2d, *given, padding=padding)
        ours.append([y, *torch.autograd.grad(y.sin().sum(), given)])
        assert y.is_contiguous(memory_format=torch.channels_last)
    assert is_compiled == compiled
    assert all(map(torch.equal, *ours))
    if padding == 1:
        reference = F.conv2d(*given, padding=1, groups=8)
        exact = [reference, *torch.autograd.grad(reference.sin().sum(), given)]
        torch.testing.assert_close(ours[1], exact, rtol=1e-4, atol=1e-4)
        with torch.no_grad():
            torch.testing.assert_close(dwconv.conv2d(*given, padding=1), reference, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.* run on PyTorch's own op")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("passes", "calls"), [(("fprop",), 1), (("fprop", "wgrad"), 1), (("fprop", "dgrad"), 1)])
def test_pytorchs_op_gives_its_gradients_in_one_call(logs, passes, calls, bias):
    plant(logs / "log.jsonl", [dataclasses.replace(WORKLOAD, bias=bias)], baseline_us=1e6, passes=passes)
    given = [leaf for leaf in leaves(bias=bias) if leaf is not None]
    dwconv.conv2d(*given, padding=1)
    y, is_compiled = took(dwconv.conv2d, *given, padding=1)
    dy = torch.randn_like(y)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        ours = torch.autograd.grad(y, given, dy)
    found = {event.key: event.count for event in profiler.key_averages()}
    assert is_compiled and found["aten::convolution_backward"] == calls
    theirs = torch.autograd.grad(F.conv2d(*given, padding=1, groups=8), given, dy)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    if len(passes) == 1:
        assert all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize("axes", [1, 2])
def test_what_pytorch_runs_costs_no_way_through_python(logs, monkeypatch, axes):
    x = torch.randn(2, 4, *[9] * axes, requires_grad=True)
    w, b = torch.randn(8, 1, *[3] * axes, requires_grad=True), torch.randn(8)
    ours, theirs = ((dwconv.conv1d, F.conv1d), (dwconv.conv2d, F.conv2d))[axes - 1]
    arguments = (2, (1, 2)[-axes:], 2)
    with pytest.warns(DwconvWarning, match="untuned"):
        ours(x, w, b, *arguments)
    monkeypatch.setattr("dwconv.call.functional.on_its_road", None)
    y, reference = ours(x, w, b, *arguments), theirs(x, w, b, *arguments, 4)
    assert torch.equal(y, reference)
    assert torch.equal(*(torch.autograd.grad(each.sum(), w)[0] for each in (y, reference)))


def test_a_kernel_takes_only_tensors_in_its_layout(logs):
    plant(logs / "log.jsonl", [WORKLOAD], baseline_us=1e6)
    x, w, _ = (None if leaf is None else leaf.detach() for leaf in leaves())
    found = plan_for(Problem.of(WORKLOAD), x.device)
    kernels = [found.kernels[pass_] for pass_ in PASSES]
    assert all(kernel.native for kernel in kernels)
    fprop = kernels[0]
    assert torch.equal(native.run(fprop.native, x, w), fprop(x, w))
    for inputs in ((x.contiguous(), w), (x, w[:4]), (x.double(), w), (x,), (x, w, w), (x.to("meta"), w)):
        assert native.run(fprop.native, *inputs) is None
    larger = torch.cat([x, x]).contiguous(memory_format=torch.channels_last)
    assert torch.equal(native.run(fprop.native, larger, w), torch.cat([fprop(x, w)] * 2))


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")
def test_compiled_autograd_runs_the_backward_pass(logs):
    """One graph serves calls of the same shapes, whatever they are."""
    sizes = [WORKLOAD, dataclasses.replace(WORKLOAD, padding=((2, 2), (2, 2)), dilation=(2, 2))]
    plant(logs / "log.jsonl", sizes, baseline_us=1e6)
    for _ in range(2):
        x, w, _ = leaves()
        for spread in (1, 2):
            _, is_compiled = took(dwconv.conv2d, x, w, None, 1, spread, spread)
            ours, theirs = [], []
            for found, function in ((ours, dwconv.conv2d), (theirs, F.conv2d)):
                given = [each.detach().requires_grad_() for each in (x, w)]
                y = function(*given, None, 1, spread, spread, 8)
                with compiled_autograd._enable(torch.compile(backend="eager")):
                    y.sin().sum().backward()
                found += [each.grad for each in given]
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert is_compiled
