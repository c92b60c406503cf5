"""cross_correlation: each image with kernels of its own, in both layouts."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.profiler import profile

import dwconv
from dwconv.call.call_plan import plans
from dwconv.discovery import discover
from dwconv.errors import InvalidWorkload
from tests.call.test_functional import nodes
from tests.planted_records import plant, workload_of

pytestmark = [
    pytest.mark.usefixtures("threads_as_asked"),
    pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning"),
]
PYTORCHS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def by_hand(x, kernels, **numbers):
    """As users write it."""
    batch, channels, *size = x.shape
    y = PYTORCHS[len(size)](
        x.reshape(1, batch * channels, *size), kernels.reshape(batch * channels, 1, *kernels.shape[2:]),
        groups=batch * channels, **numbers,
    )  # fmt: skip
    return y.reshape(batch, channels, *y.shape[2:])


def channels_last(x):
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


def results(function, x, kernels, **numbers):
    """y, and the first and second derivatives."""
    leaves = [each.detach().clone().requires_grad_() for each in (x, kernels)]
    y = function(*leaves, **numbers)
    first = torch.autograd.grad(y.sum() + y.pow(2).sum(), leaves, create_graph=True)
    return y, *first, *torch.autograd.grad(sum(each.pow(2).sum() for each in first), leaves, materialize_grads=True)


@pytest.mark.parametrize("axes", [1, 2, 3])
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_it_is_what_users_write(logs, axes, data):
    draw = data.draw
    batch, channels = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    kernel = draw(st.tuples(*[st.integers(1, 3)] * axes))
    x = torch.randn(batch, channels, *[draw(st.integers(5, 8)) for _ in kernel], dtype=torch.float64)
    x = channels_last(x) if draw(st.booleans()) else x
    kernels = torch.randn(batch, channels, *kernel, dtype=torch.float64)
    numbers = {name: draw(st.integers(least, 2)) for name, least in (("stride", 1), ("padding", 0), ("dilation", 1))}
    actual, expected = (results(each, x, kernels, **numbers) for each in (dwconv.cross_correlation, by_hand))
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other)
    is_last = channels > 1 and x.stride(1) == 1 and x.numel() > channels
    assert not is_last or actual[0].stride(1) == 1 or actual[0][0, 0].numel() == 1


CASES = {
    "2-D": ((3, 8, 9, 7), (3, 3), 1),
    "2-D, 5×5": ((2, 16, 11, 11), (5, 5), 0),
    "1-D": ((3, 8, 20), (4,), 2),
    "3-D": ((2, 8, 4, 5, 6), (3, 3, 3), 1),
}


def tensors_of(shape, kernel, dtype=torch.float32):
    """Of whole numbers: sums are exact."""
    return torch.randint(-2, 3, shape).to(dtype), torch.randint(-2, 3, (*shape[:2], *kernel)).to(dtype)


def tune(logs, shape, kernel, padding, layout, dtype="float32"):
    (batch, channels, *size), row = shape, (1,) * (len(kernel) == 1)
    images, many = (1, channels) if layout == "nhwc" else (1, batch * channels), (0,) * (len(kernel) == 1)
    workload = workload_of(
        shape=(*images, *row, *size), kernel=(*row, *kernel), stride=1, padding=(*many, *[padding] * len(kernel)),
        layout=layout, dtype=dtype,
    )  # fmt: skip
    plant(logs / "log.jsonl", [workload], baseline_us=1e6, template_layout=layout)
    dwconv.reset()


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_tuned_kernels_run_it_without_copies(logs, case, layout):
    shape, kernel, padding = case
    tune(logs, *case, layout)
    x, kernels = tensors_of(shape, kernel)
    x = channels_last(x) if layout == "nhwc" else x
    leaves = [x.requires_grad_(), kernels.requires_grad_()]
    dy = torch.ones_like(by_hand(x, kernels, padding=padding))
    dy = channels_last(dy) if layout == "nhwc" else dy
    for _ in range(2):  # as it is learnt, and as it is known
        with profile() as profiled:
            y = dwconv.cross_correlation(x, kernels, padding=padding)
            gradients = torch.autograd.grad(y, leaves, dy)
    expected = by_hand(x, kernels, padding=padding)
    for one, other in zip((y, *gradients), (expected, *torch.autograd.grad(expected, leaves, dy)), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert any(("DwconvImageByImage" if layout == "nhwc" else "DwconvConvolution") in name for name in nodes(y))
    assert y.stride(1) == (1 if layout == "nhwc" else y[0, 0].numel()) and gradients[0].stride() == x.stride()
    (plan,) = plans()
    assert {each.provider for each in plan.decisions.values()} == {"dwconv"}
    copies = {each.key for each in profiled.key_averages()} & {"aten::copy_", "aten::clone", "aten::cat"}
    assert not copies


def test_images_that_begin_at_any_byte_are_copied(logs):
    shape, kernel, padding = case = CASES["2-D"]
    tune(logs, *case, "nhwc")
    given, kernels = tensors_of(shape, kernel)
    buffer = bytearray(1 + 4 * given.numel())
    batch, channels, height, width = shape
    flat = torch.frombuffer(buffer, dtype=torch.float32, offset=1)
    x = flat.view(batch, height, width, channels).permute(0, 3, 1, 2).copy_(given)
    assert x.data_ptr() % 4
    y = dwconv.cross_correlation(x, kernels, padding=padding)
    torch.testing.assert_close(y, by_hand(given, kernels, padding=padding))
    assert {each.provider for each in plans()[0].decisions.values()} == {"dwconv"}


def test_what_hooks_bring_back_is_checked(logs):
    case = CASES["2-D"]
    tune(logs, *case, "nhwc")
    x, kernels = (each.requires_grad_() for each in tensors_of(*case[:2]))
    for unpack, words in ((lambda saved: saved.double(), "torch.float64"), (lambda saved: saved[:1], "1×8×")):
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, unpack):
            y = dwconv.cross_correlation(channels_last(x), kernels, padding=1)
            with pytest.raises(InvalidWorkload, match=f"a hook of saved tensors brought back .*{words}"):
                y.sum().backward()
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda saved: saved.contiguous()):
        dwconv.cross_correlation(channels_last(x), kernels, padding=1).sum().backward()
    expected = torch.autograd.grad(by_hand(x, kernels, padding=1).sum(), (x, kernels))
    torch.testing.assert_close((x.grad, kernels.grad), expected)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("way", ["compiled", "autocast", "inference"])
def test_ways(logs, way, layout):
    case = CASES["2-D"]
    tune(logs, *case, layout, dtype="bfloat16" if way == "autocast" else "float32")
    x, kernels = tensors_of(*case[:2])
    x = channels_last(x) if layout == "nhwc" else x
    expected = by_hand(x, kernels, padding=1)
    if way == "compiled":
        compiled = torch.compile(dwconv.cross_correlation, backend="aot_eager", fullgraph=True)
        y = compiled(x, kernels, padding=1)
    elif way == "autocast":
        with torch.autocast("cpu", torch.bfloat16):
            y = dwconv.cross_correlation(x.requires_grad_(), kernels, padding=1)
        assert y.dtype == torch.bfloat16
        y.sum().backward()
        assert x.grad.dtype == torch.float32
    else:
        with torch.inference_mode():
            y = dwconv.cross_correlation(x, kernels, padding=1)
    torch.testing.assert_close(y.float(), expected)
    assert y.stride() == (expected if layout == "nchw" else channels_last(expected)).stride()


def test_no_images_are_no_error():
    x, kernels = torch.randn(0, 4, 6, 6, requires_grad=True), torch.randn(0, 4, 3, 3, requires_grad=True)
    y = dwconv.cross_correlation(x, kernels)
    assert y.shape == (0, 4, 4, 4)
    y.sum().backward()
    assert x.grad.shape == x.shape and kernels.grad.shape == kernels.shape


def test_a_proxy_traces_it():
    traced = torch.fx.symbolic_trace(lambda x, kernels: dwconv.cross_correlation(x, kernels, padding=1))
    x, kernels = tensors_of(*CASES["2-D"][:2])
    assert torch.equal(traced(x, kernels), by_hand(x, kernels, padding=1))
    assert "cross_correlation" in traced.code


class Tracker(nn.Module):
    """(N, 3, H, W) images and templates, correlated as trackers do by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 8, 1)

    def forward(self, images, templates):
        return by_hand(self.features(images), self.features(templates))


def test_what_users_write_runs_under_convert(logs):
    given = torch.randn(2, 3, 9, 7), torch.randn(2, 3, 3, 3)
    plant(
        logs / "log.jsonl",
        [workload_of(shape=(1, 16, 9, 7), padding=0, layout="nchw")],
        template_layout="nchw",
        baseline_us=1e6,
    )
    model = Tracker()
    (layer,) = discover(model, given).layers
    assert (layer.problem.input_shape, layer.passes, layer.is_functional) == (
        (1, 16, 9, 7),
        ("fprop", "dgrad", "wgrad"),
        True,
    )
    expected = model(*given)
    y = dwconv.convert(model, given, seconds=0)(*given)
    torch.testing.assert_close(y, expected)
    assert any("DwconvConvolution" in name for name in nodes(y))
    with dwconv.active():
        assert any("DwconvConvolution" in name for name in nodes(Tracker()(*given)))


def test_an_example_shows_images_one_by_one():
    class Model(nn.Module):
        def forward(self, x, kernels):
            return dwconv.cross_correlation(x, kernels)

    x, kernels = channels_last(torch.randn(3, 8, 9, 7)).requires_grad_(), torch.randn(3, 8, 3, 3)
    (layer,) = discover(Model(), (x, kernels)).layers
    assert (layer.problem.input_shape, layer.problem.layout, layer.calls) == ((1, 8, 9, 7), "nhwc", 3)
    (layer,) = discover(Model(), (x.contiguous(), kernels)).layers
    assert (layer.problem.input_shape, layer.problem.layout, layer.calls) == ((1, 24, 9, 7), "nchw", 1)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"x": torch.randn(4, 4)}, "x of shape 4×4 is not"),
        ({"kernels": torch.randn(2, 4, 3)}, "kernels of shape 2×4×3 are not"),
        ({"kernels": torch.randn(3, 4, 3, 3)}, "kernels of shape 3×4×3×3 are not"),
        ({"kernels": torch.randn(2, 4, 9, 9)}, "kernel=9×9"),
        ({"kernels": torch.randn(2, 4, 3, 3).double()}, "float64"),
        ({"stride": 0}, "stride=0"),
        ({"padding": "a"}, "padding='a'"),
        ({"x": None}, "x must be a Tensor"),
        ({"kernels": 3}, "kernels must be a Tensor"),
    ],
)
def test_what_does_not_fit(wrong, words):
    good = {"x": torch.randn(2, 4, 6, 6), "kernels": torch.randn(2, 4, 3, 3)}
    for last in (False, True):
        given = {**good, **({"x": channels_last(good["x"])} if last else {}), **wrong}
        with pytest.raises(InvalidWorkload, match=words) as raised:
            dwconv.cross_correlation(**given)
        assert isinstance(raised.value, (RuntimeError, TypeError))
