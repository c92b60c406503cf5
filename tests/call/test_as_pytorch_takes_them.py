"""Arguments as F.conv2d takes them, and errors of the type that it raises: who catches them for PyTorch's layers
catches ours."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import dwconv
from dwconv.discovery import discover
from dwconv.errors import InvalidArgument, InvalidCall
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning")
X, W, B = torch.randn(2, 8, 9, 7), torch.randn(8, 1, 3, 3), torch.randn(8)


@pytest.fixture(params=[False, True], ids=["pytorch", "dwconv"])
def tuned(request, logs):
    if request.param:
        sizes = [workload_of(layout="nchw", stride=stride) for stride in (1, 2)]
        plant(logs / "log.jsonl", sizes, template_layout="nchw", baseline_us=1e6)


INTEGERS = {
    "numpy": (np.int64(2), np.int32(1)),
    "0-d": (torch.tensor(2), torch.tensor(1)),
    "1-d": (torch.tensor([2]), torch.tensor([1])),
    "list": ([2], [1, 1]),
    "tuple of numpy": ((np.int64(2), np.int64(2)), (np.int64(1),)),
    "tuple of 0-d": ((torch.tensor(2), torch.tensor(2)), (torch.tensor(1), 1)),
    "Size": (torch.Size([2, 2]), torch.Size([1])),
}


@pytest.mark.parametrize("way", ["eager", "watched"])
@pytest.mark.parametrize(("stride", "padding"), INTEGERS.values(), ids=INTEGERS)
def test_whole_numbers_of_any_kind(tuned, stride, padding, way):
    expected = F.conv2d(X, W, B, stride, padding, groups=8)
    with torch.autocast("cpu", enabled=way == "watched"):
        calls = [dwconv.conv2d(X, W, B, stride, padding) for _ in range(3)]
    tolerance = {"rtol": 0.05, "atol": 0.05} if way == "watched" else {"rtol": 1e-4, "atol": 1e-5}
    for y in calls:
        torch.testing.assert_close(y.float(), expected, **tolerance)


BAD = {
    "three strides": (X, W, B, (1, 1, 1)),
    "no stride": (X, W, B, ()),
    "stride 0": (X, W, B, 0),
    "padding below 0": (X, W, B, 1, -1),
    "dilation 0": (X, W, B, 1, 0, 0),
    "a stride that is text": (X, W, B, "same"),
    "a stride with a fraction": (X, W, B, 2.0),
    "numpy with a fraction": (X, W, B, np.float64(2)),
    "a tensor with a fraction": (X, W, B, torch.tensor(2.0)),
    "no number": (X, W, B, None),
    "padding in pieces": (X, W, B, 1, ["same"]),
    "unknown padding": (X, W, B, 1, "some"),
    "same with a stride": (X, W, B, 2, "same"),
    "other groups": (X, W, B, 1, 0, 1, 4),
    "no groups": (X, W, B, 1, 0, 1, 0),
    "input of 2 axes": (X[0, 0], W, B),
    "input of 5 axes": (X[None], W, B),
    "input without channels": (X[:, :0], W, B),
    "empty input": (X[:, :, :0], W, B),
    "weight of 3 axes": (X, W[0], B),
    "weight of other channels": (X, torch.randn(8, 2, 3, 3), B),
    "weight that does not divide": (X, torch.randn(6, 1, 3, 3), None),
    "empty weight": (X, torch.randn(0, 1, 3, 3), None),
    "kernel too large": (X, torch.randn(8, 1, 11, 3), B),
    "dilation too large": (X, W, B, 1, 0, 9),
    "bias too short": (X, W, B[:4]),
    "bias of 2 axes": (X, W, B[None]),
    "weight in double": (X, W.double(), B),
    "bias in double": (X, W, B.double()),
    "input in half": (X.half(), W, B),
    "input of integers": (X.int(), W, B),
    "complex input": (X + 0j, W, B),
    "no input": (None, W, B),
    "input of numpy": (X.numpy(), W, B),
    "no weight": (X, None, B),
    "bias that is a number": (X, W, 1.0),
}


@pytest.mark.parametrize("arguments", BAD.values(), ids=BAD)
def test_errors_have_the_type_that_pytorchs_have(tuned, arguments):
    defaults = (1, 0, 1, 8)[len(arguments) - 3 :]
    with pytest.raises((RuntimeError, TypeError)) as theirs:
        F.conv2d(*arguments, *defaults)
    for _ in range(2):  # what cannot be run is not remembered
        with pytest.raises(theirs.type) as ours:
            dwconv.conv2d(*arguments)
    assert isinstance(ours.value, (InvalidCall, InvalidArgument))
    assert "\n" not in str(ours.value)


def test_a_layer_raises_what_pytorchs_raises(logs):
    layer = torch.nn.Conv2d(8, 8, 3, groups=8)
    dwconv.convert(layer)
    for wrong, error, told in (
        (torch.randn(2, 6, 9, 7), RuntimeError, "6 input channels"),
        (X.double(), RuntimeError, "torch.float64"),
        (X.numpy(), TypeError, "must be a Tensor, not ndarray"),
    ):
        with pytest.raises(error, match=told):
            layer(wrong)


ABSURD = {
    "stride": {"stride": 2**40},
    "stride of one axis": {"stride": (1, 1, 2**20)},
    "stride and padding": {"stride": 2**24, "padding": 2**24},
    "dilation": {"dilation": 2**40},
    "dilation, stride and padding": {"dilation": 2**24, "stride": 2**24, "padding": 2**24},
}


@pytest.mark.parametrize("numbers", ABSURD.values(), ids=ABSURD)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_absurd_sizes_are_pytorchs_and_no_loop_runs_over_them(logs, monkeypatch, axes, numbers):
    """A prediction took a second for each million."""
    asked = []
    monkeypatch.setattr("dwconv.dispatch.decide._by_expectation", lambda *_: asked.append(1))
    numbers = {name: each[-axes:] if isinstance(each, tuple) else each for name, each in numbers.items()}
    x = torch.randn(2, 8, *[5] * axes, requires_grad=True)
    layer = getattr(torch.nn, f"Conv{axes}d")(8, 8, 1 if set(numbers) == {"dilation"} else 3, groups=8, **numbers)
    expected = [layer(x), *torch.autograd.grad(layer(x).sum(), (x, layer.weight))]
    dwconv.convert(layer)
    torch._dynamo.reset()
    for run in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager") if axes == 2 else layer):
        y = run(x)
        torch.testing.assert_close([y, *torch.autograd.grad(y.sum(), (x, layer.weight))], expected)
    (left,) = discover(layer, x).left_out
    assert "dwconv has no kernels for a" in left.why_no_kernels and not asked


@pytest.mark.parametrize("numbers", [{"stride": 2**63}, {"padding": 2**63}, {"dilation": 2**64}, {"padding": 2**40}])
def test_numbers_that_pytorch_cannot_take_raise_what_it_raises(logs, numbers):
    with pytest.raises((RuntimeError, ValueError)) as theirs:
        F.conv2d(X, W, B, groups=8, **numbers)
    with pytest.raises(theirs.type):
        dwconv.conv2d(X, W, B, **numbers)
