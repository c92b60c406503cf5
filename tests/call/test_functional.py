"""conv1d, conv2d and conv3d: exactly the meaning of PyTorch's, on tuned kernels where there are some."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.autograd import forward_ad

import dwconv
from dwconv.call.call_plan import CallPlan
from dwconv.problems.problem import memory_format
from tests.planted_records import plant, workload_of

pytestmark = [
    pytest.mark.usefixtures("threads_as_asked"),
    pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning"),
    pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel"),  # PyTorch's own, about its own op
]
PYTORCHS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
OURS = {1: dwconv.conv1d, 2: dwconv.conv2d, 3: dwconv.conv3d}


@st.composite
def calls(draw, *, axes: int):
    """(input, weight, keyword arguments) of a depthwise convolution that PyTorch takes."""
    channels, multiplier = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    kernel = draw(st.tuples(*[st.integers(1, 5)] * axes))
    dilation = draw(st.integers(1, 2) | st.tuples(*[st.integers(1, 3)] * axes))
    dilations = (dilation,) * axes if isinstance(dilation, int) else dilation
    spread = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    size = [draw(st.integers(least, least + 5)) for least in spread]
    padding = draw(st.integers(0, 3) | st.tuples(*[st.integers(0, 3)] * axes) | st.sampled_from(["same", "valid"]))
    stride = 1 if padding == "same" else draw(st.integers(1, 3) | st.tuples(*[st.integers(1, 3)] * axes))
    batch = draw(st.sampled_from([(), (0,), (1,), (3,)]))
    x = torch.randn(*batch, channels, *size, dtype=torch.float64)
    if axes > 1 and batch and draw(st.booleans()):
        x = x.to(memory_format=memory_format("nhwc", axes=axes))
    bias = torch.randn(channels * multiplier, dtype=torch.float64) if draw(st.booleans()) else None
    w = torch.randn(channels * multiplier, 1, *kernel, dtype=torch.float64)
    return x, w, {"bias": bias, "stride": stride, "padding": padding, "dilation": dilation}


def check_against(pytorch, ours, x, w, options):
    """Values, layout and gradients, ours through the ops, although float64 runs on PyTorch."""
    results = []
    for function, more in ((pytorch, {"groups": w.shape[0] // (w.shape[0] // x.shape[-w.dim() + 1])}), (ours, {})):
        leaves = [t.detach().clone().requires_grad_() for t in (x, w, options["bias"]) if t is not None]
        bias = leaves[2] if len(leaves) > 2 else None
        y = function(leaves[0], leaves[1], **{**options, "bias": bias}, **more)
        results.append((y, *torch.autograd.grad(y.sum() + y.pow(2).sum(), leaves)))
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected)
    return results


class OnOurOps(CallPlan):
    """Leaves no call to PyTorch's op as a whole: each pass is run here, on PyTorch's kernel."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        assert self.is_pytorch
        self.is_pytorch = False


# What takes a call, and a node of its graph that says so.
WAYS = {"PyTorch's op": "ConvolutionBackward0", "our ops": "DwconvFprop", "past the dispatcher": "DwconvConvolution"}


@contextlib.contextmanager
def going(way):
    with pytest.MonkeyPatch.context() as patch:
        dwconv.reset()
        if way != "PyTorch's op":
            patch.setattr("dwconv.call.call_plan.CallPlan", OnOurOps)
        if way == "our ops":
            patch.setattr("dwconv.call.functional.is_watched_beside_autocast", lambda *_: True)
        yield
    dwconv.reset()


def nodes(y):
    """The names of all nodes of the graph that computed y."""
    names, left = set(), [y.grad_fn]
    while left:
        node = left.pop()
        names.add(node.name())
        left += [before for before, _ in node.next_functions if before is not None]
    return names


def assert_went(way, y):
    """That way and no other."""
    ran = [each for each, node in WAYS.items() if any(node in name for name in nodes(y))]
    assert ran == [way]


@pytest.mark.parametrize("axes", [1, 2, 3])
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), way=st.sampled_from(list(WAYS)))
def test_a_call_is_pytorchs(logs, axes, data, way):
    with going(way):
        (expected, *_), (actual, *_) = check_against(PYTORCHS[axes], OURS[axes], *data.draw(calls(axes=axes)))
    assert_went(way, actual)
    if actual.numel() and axes > 1 and actual.dim() == axes + 2:
        assert actual.stride() == expected.stride()


# -- on tuned kernels ------------------------------------------------------------------------------------------------

PROBLEMS = {
    "3×3": workload_of(),
    "5×5 stride 2": workload_of(shape=(2, 24, 15, 12), kernel=(5, 5), stride=2, padding=2),
    "multiplier": workload_of(multiplier=3, shape=(2, 5, 9, 7)),
    "nchw": workload_of(shape=(3, 17, 8, 8), layout="nchw"),
    "3-D stride 2": workload_of(shape=(2, 18, 5, 6, 7), kernel=(3, 3, 3), stride=2),
    "3-D nchw multiplier": workload_of(shape=(2, 5, 4, 6, 5), kernel=(3, 3, 3), multiplier=2, layout="nchw"),
}


SOME = ("5×5 stride 2", "nchw", "3-D stride 2")
some_tuned = pytest.mark.parametrize("tuned", [PROBLEMS[name] for name in SOME], indirect=True, ids=SOME)


@pytest.fixture(params=PROBLEMS.values(), ids=list(PROBLEMS))
def tuned(request, logs):
    """A problem whose three passes run on dwconv's kernels, also with a bias, and then on those that know of it."""
    plant(logs / "log.jsonl", [request.param, dataclasses.replace(request.param, bias=True)], baseline_us=1e6)
    return request.param


def tensors_of(workload, *, batch=None):
    x = torch.randn(batch or workload.batch, *workload.input_shape[1:]).to(memory_format=lies(workload))
    w = torch.randn(workload.out_channels, 1, *workload.kernel)
    return x, w, torch.randn(workload.out_channels)


def lies(workload):
    return memory_format(workload.layout, axes=workload.axes)


def step(function, x, w, bias, workload, **more):
    """y and the gradients that a training step takes: of x, w and bias."""
    leaves = [tensor.detach().requires_grad_() for tensor in (x, w, bias)]
    y = function(*leaves, stride=workload.stride, padding=workload.padding[0][0], **more)
    weight_of_y = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    return [y.detach(), *torch.autograd.grad((y * weight_of_y).sum(), leaves)]


def check_step(workload, x, w, bias, *, fused=True):
    explained = dwconv.explain(x, w, bias, workload.stride, workload.padding[0][0])
    assert [each.provider for each in explained.passes] == ["dwconv"] * 3
    assert [each.record.workload.bias for each in explained.passes] == [fused, False, fused]
    actual = step(OURS[workload.axes], x, w, bias, workload)
    exact = step(PYTORCHS[workload.axes], x.double(), w.double(), bias.double(), workload, groups=x.shape[1])
    for ours, reference in zip(actual, exact, strict=True):
        torch.testing.assert_close(ours.double(), reference, rtol=1e-5, atol=2e-4)
    return actual


@pytest.mark.parametrize("batch", [1, 7])
def test_a_training_step_is_right_at_any_batch(tuned, batch):
    y, dx, dw, _ = check_step(tuned, *tensors_of(tuned, batch=batch))
    assert y.is_contiguous(memory_format=lies(tuned))
    assert dx.is_contiguous(memory_format=lies(tuned))
    assert dw.is_contiguous()


@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_kernels_take_a_call_however_it_is_written(tuned, data):
    """The first call of its kind, and one that goes the way that the first has taught."""

    def written(value):
        return data.draw(st.sampled_from([value, (value,) * tuned.axes, [value] * tuned.axes]))

    stride, padding = tuned.stride[0], tuned.padding[0][0]
    same = stride == 1 and 2 * padding == tuned.kernel[0] - 1
    options = {
        "stride": written(stride),
        "padding": "same" if same and data.draw(st.booleans()) else written(padding),
        "dilation": written(1),
    }
    batch = data.draw(st.sampled_from([1, 2, 5] + [None] * (tuned.layout == "nchw")))  # None: an image without a batch
    x, w, bias = tensors_of(tuned, batch=batch or 1)
    leaves = [x if batch else x[0], w, bias if data.draw(st.booleans()) else None]
    needed = data.draw(st.lists(st.booleans(), min_size=2, max_size=2).filter(any))
    for leaf, needs in zip(leaves, [*needed, True], strict=True):
        if leaf is not None:
            leaf.requires_grad_(needs)
    of = [leaf for leaf in leaves if leaf is not None and leaf.requires_grad]
    doubles = [None if leaf is None else leaf.double() for leaf in leaves]
    exact = PYTORCHS[tuned.axes](*doubles, **options, groups=tuned.channels)
    expected = torch.autograd.grad(exact.sin().sum(), of)
    for _ in range(2):
        y = OURS[tuned.axes](*leaves, **options, groups=data.draw(st.sampled_from([None, tuned.channels])))
        assert_went("past the dispatcher", y)
        torch.testing.assert_close(y.double(), exact, rtol=1e-5, atol=2e-4)
        torch.testing.assert_close(torch.autograd.grad(y.sin().sum(), of), expected, rtol=1e-4, atol=2e-3)


def test_a_kernel_without_the_bias_leaves_it_to_a_sweep(logs):
    workload = next(iter(PROBLEMS.values()))
    plant(logs / "log.jsonl", [workload], baseline_us=1e6)
    check_step(workload, *tensors_of(workload), fused=False)


@some_tuned
def test_the_second_derivative_with_a_bias_is_right_on_kernels_too(tuned):
    def penalty(function, *leaves, **more):
        y = function(*leaves, stride=tuned.stride, padding=tuned.padding[0][0], **more)
        gradients = torch.autograd.grad(y.sin().sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(gradient.sin().sum() for gradient in gradients), leaves)

    leaves = [tensor.requires_grad_() for tensor in tensors_of(tuned)]
    ours = penalty(OURS[tuned.axes], *leaves)
    doubles = [leaf.detach().double().requires_grad_() for leaf in leaves]
    exact = penalty(PYTORCHS[tuned.axes], *doubles, groups=tuned.channels)
    for one, other in zip(ours, exact, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-3)


def test_the_same_call_gives_the_same_bits(tuned):
    tensors = tensors_of(tuned, batch=5)
    first = step(OURS[tuned.axes], *tensors, tuned)
    for _ in range(3):
        for one, other in zip(first, step(OURS[tuned.axes], *tensors, tuned), strict=True):
            assert torch.equal(one, other)


def test_tensors_may_lie_anyhow(tuned):
    x, w, bias = tensors_of(tuned)
    batch, channels, *size = x.shape
    apart = torch.randn(2 * batch, channels, *size[:-1], size[-1] + 3)
    apart = apart.to(memory_format=memory_format("nhwc", axes=tuned.axes))
    for lying in (
        apart[::2, ..., 3:],  # a slice of every second image
        x[:1].expand(batch, *x.shape[1:]),
        x.transpose(2, 3).contiguous().transpose(2, 3),
        torch.randn(x.numel() + 1)[1:].view(batch, *size, channels).movedim(-1, 1),  # not aligned
    ):
        assert lying.shape == x.shape
        options = (tuned.stride, tuned.padding[0][0], 1, channels)
        exact = PYTORCHS[tuned.axes](lying.double(), w.double(), bias.double(), *options)
        for _ in range(2):  # the first call teaches
            y = OURS[tuned.axes](lying, w.flip(2).flip(2), bias, *options)
            torch.testing.assert_close(y.double(), exact, rtol=1e-5, atol=2e-4)


@some_tuned
def test_torch_compile_traces_the_whole_call(tuned):
    def loss(x, w, bias):
        return OURS[tuned.axes](x, w, bias, tuned.stride, tuned.padding[0][0]).relu().pow(2).sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for batch in (2, 3, 4):  # from the third on, the batch is a symbol
        tensors = [tensor.requires_grad_() for tensor in tensors_of(tuned, batch=batch)]
        torch.testing.assert_close(compiled(*tensors), loss(*tensors))
        torch.testing.assert_close(
            torch.autograd.grad(compiled(*tensors), tensors), torch.autograd.grad(loss(*tensors), tensors)
        )


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@some_tuned
def test_pytorchs_other_ways_to_look_at_a_function_still_work(tuned):
    """torch.func, forward mode and fx: dwconv's ops know nothing of the first two, which PyTorch's op then does."""
    x, w, _ = tensors_of(tuned)

    def convolve(x, w):
        return OURS[tuned.axes](x, w, None, tuned.stride, tuned.padding[0][0])

    def loss(w, image):
        return convolve(image, w).pow(2).sum()

    gradients = torch.func.vmap(torch.func.grad(loss), (None, 0))(w, x)
    torch.testing.assert_close(gradients.sum(0), torch.func.grad(loss)(w, x), rtol=1e-4, atol=1e-3)
    y, tangent = torch.func.jvp(lambda x: convolve(x, w), (x,), (x,))
    torch.testing.assert_close(tangent, y)
    with forward_ad.dual_level():
        torch.testing.assert_close(forward_ad.unpack_dual(convolve(forward_ad.make_dual(x, x), w)).tangent, y)
    traced = torch.fx.symbolic_trace(convolve)
    assert "dwconv" in traced.code
    assert torch.equal(traced(x, w), convolve(x, w))
