"""Arguments as F.conv2d takes them, with padding whose sides differ, too; and errors of the type that it raises: what
catches them for PyTorch's layers catches ours."""

from __future__ import annotations

import copy
import dataclasses
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import dwconv
from dwconv.discovery import discover
from dwconv.errors import InvalidArgument, InvalidCall, InvalidWorkload
from tests.native_needed import needs_native
from tests.planted_records import plant, workload_of

pytestmark = [
    pytest.mark.usefixtures("threads_as_asked"),
    pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning"),
]

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
    "three strides": ((X, W, B, (1, 1, 1)), "stride=(1, 1, 1) is not one number, or 2"),
    "stride 0": ((X, W, B, 0), "stride=0 must be at least 1"),
    "padding below 0": ((X, W, B, 1, -1), "padding=-1 must be at least 0"),
    "dilation 0": ((X, W, B, 1, 0, 0), "dilation=0 must be at least 1"),
    "a stride that is text": ((X, W, B, "same"), ""),
    "a stride with a fraction": ((X, W, B, 2.0), ""),
    "a tensor with a fraction": ((X, W, B, torch.tensor(2.0)), ""),
    "no number": ((X, W, B, None), ""),
    "unknown padding": ((X, W, B, 1, "full"), "padding='full' is unknown; use a number, 'same' or 'valid'"),
    "same with a stride": ((X, W, B, 2, "same"), "padding=same needs stride 1, not 2×2; give the padding as a number"),
    "other groups": (
        (X, W, B, 1, 0, 1, 4),
        "groups=4 with 8 input channels is not depthwise; use groups=8, or torch.nn.functional",
    ),
    "no groups": ((X, W, B, 1, 0, 1, 0), ""),
    "input of 2 axes": ((X[0, 0], W, B), "input of shape 9×7 is not (N, C, H, W) or (C, H, W)"),
    "input of 5 axes": ((X[None], W, B), "input of shape 1×2×8×9×7 is not (N, C, H, W) or (C, H, W)"),
    "input without channels": ((X[:, :0], W, B), ""),
    "empty input": ((X[:, :, :0], W, B), ""),
    "weight of 3 axes": ((X, W[0], B), "weight of shape 1×3×3 is not"),
    "weight of other channels": ((X, torch.randn(8, 2, 3, 3), B), "weight of shape 8×2×3×3 is not"),
    "weight that does not divide": (
        (X, torch.randn(6, 1, 3, 3), None),
        "weight of shape 6×1×3×3 is not (C·multiplier, 1, KH, KW) with C=8 input channels",
    ),
    "empty weight": ((X, torch.randn(0, 1, 3, 3), None), "weight of shape 0×1×3×3 is not"),
    "kernel too large": ((X, torch.randn(8, 1, 11, 3), B), ""),
    "dilation too large": (
        (X, W, B, 1, 0, 9),
        "kernel=3×3 with dilation=9×9 does not fit the input of 9×7 padded by 0×0×0×0",
    ),
    "bias too short": ((X, W, B[:4]), "bias of shape 4 does not fit 8 output channels"),
    "weight in double": (
        (X, W.double(), B),
        "input is torch.float32, weight torch.float64; convert one, or use torch.autocast",
    ),
    "bias in double": ((X, W, B.double()), "input is torch.float32, bias torch.float64"),
    "complex input": ((X + 0j, W, B), ""),
    "no input": ((None, W, B), ""),
    "input of numpy": ((X.numpy(), W, B), ""),
    "bias that is a number": ((X, W, 1.0), ""),
}
"""With what the error says, where that is more than PyTorch's own."""


@pytest.mark.parametrize(("arguments", "told"), BAD.values(), ids=BAD)
def test_errors_are_a_line_and_have_the_type_that_pytorchs_have(tuned, arguments, told):
    defaults = (1, 0, 1, 8)[len(arguments) - 3 :]
    with pytest.raises((RuntimeError, TypeError)) as theirs:
        F.conv2d(*arguments, *defaults)
    for call in (dwconv.conv2d, dwconv.conv2d, *([dwconv.explain] if told else [])):  # what is wrong is not remembered
        with pytest.raises((InvalidCall, InvalidArgument)) as ours:
            call(*arguments)
        assert isinstance(ours.value, theirs.type) and "\n" not in str(ours.value)
        if call is dwconv.conv2d or arguments[1].dim() == 4:
            assert told in str(ours.value)


VOLUME, OF_VOLUME = torch.zeros(2, 8, 4, 5, 6), torch.zeros(8, 1, 3, 3, 3)
LINE, OF_LINE = torch.zeros(2, 8, 6), torch.zeros(8, 1, 3)
OF_AXES = [
    (2, (X, W.to("meta")), "input is on cpu, weight on meta; move one of them"),  # PyTorch's op reads any memory there
    (3, (VOLUME[0, 0], OF_VOLUME), "input of shape 4×5×6 is not (N, C, D, H, W) or (C, D, H, W)"),
    (3, (VOLUME, W), "weight of shape 8×1×3×3 is not (C·multiplier, 1, KD, KH, KW) with C=8 input channels"),
    (3, (VOLUME, OF_VOLUME, None, (1, 2)), "stride=(1, 2) is not one number, or 3"),
    (
        3,
        (VOLUME, OF_VOLUME, None, 1, ((1, 1), (1, 1))),
        "is not one number, or 3, or ((front, back), (top, bottom), (left, right))",
    ),
    (
        3,
        (VOLUME, torch.zeros(8, 1, 7, 3, 3), None, 1, (1, 0, 0)),
        "input of 4×5×6 padded by 1×1×0×0×0×0 (front, back, top, bottom, left, right); use a smaller kernel",
    ),
    (1, (LINE, torch.zeros(12, 1, 3)), "weight of shape 12×1×3 is not (C·multiplier, 1, K) with C=8 input channels"),
    (1, (LINE, OF_LINE, None, 1, 0, 1, 4), "use groups=8, or torch.nn.functional.conv1d"),
    (1, (LINE, OF_LINE, None, (1, 2)), "stride=(1, 2) is not one number"),
]


@pytest.mark.parametrize(("axes", "arguments", "told"), OF_AXES)
def test_errors_name_their_own_axes(logs, axes, arguments, told):
    for call in (getattr(dwconv, f"conv{axes}d"), *([dwconv.explain] if axes > 1 else [])):
        with pytest.raises(InvalidCall) as raised:
            call(*arguments)
        assert "\n" not in str(raised.value)
        if call is not dwconv.explain or arguments[1].dim() == axes + 2:
            assert told in str(raised.value)


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


SIZES = {1: (9,), 2: (9, 7), 3: (5, 9, 7)}


def odd_inputs(axes: int) -> dict[str, object]:
    """What is no input of 8 channels in float32; placeholders, too."""
    x = torch.randn(2, 8, *SIZES[axes])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it is deprecated
        quantized = torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
    return {
        "none": None,
        "number": 1.5,
        "text": "x",
        "list": [1, 2],
        "numpy": x.numpy(),
        "channels": x[:, :7],
        "no channels": x[:, :0],
        "one axis": x.flatten(),
        "no axes": x.sum(),
        "an axis more": x[None, None],
        "empty": x[..., :0],
        "too small": x[..., :1],
        "integers": x.long(),
        "bytes": x.to(torch.uint8),
        "booleans": x > 0,
        "half": x.half(),
        "double": x.double(),
        "complex": x + 0j,
        "8 bits": x.to(torch.float8_e4m3fn),
        "quantized": quantized,
        "meta": x.to("meta"),
    }


def outcome(function, *arguments):
    """The error, or what the result is but for its numbers."""
    try:
        y = function(*arguments)
    except Exception as error:  # noqa: BLE001  whatever PyTorch raises
        return error
    return y.dtype, y.device, y.shape, y.stride()


@pytest.mark.parametrize("kind", odd_inputs(1))
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("is_causal", [False, True], ids=["", "padded as causal ones"])
def test_odd_inputs_do_what_they_do_with_pytorch(logs, axes, kind, is_causal):
    """Layers, functions, and functions that go to ours."""
    if is_causal and axes > 1:
        pytest.skip("causal convolutions are rows")
    for bias in (True, False):
        plain = getattr(torch.nn, f"Conv{axes}d")(8, 8, 3, padding=2 * is_causal, groups=8, bias=bias)
        converted = dwconv.convert(copy.deepcopy(plain))
        given = odd_inputs(axes)[kind], plain.weight, plain.bias, 1, plain.padding, 1, 8
        ours, theirs = getattr(dwconv, f"conv{axes}d"), getattr(F, f"conv{axes}d")
        wanted = outcome(theirs, *given)
        with dwconv.active():
            within = outcome(theirs, *given)
        for found in (outcome(ours, *given), outcome(converted, given[0]), within):
            if isinstance(wanted, Exception):
                assert isinstance(found, type(wanted)), (found, wanted)
            else:
                assert found == wanted


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("kind", ["channels", "one axis", "integers", "empty", "too small", "double", "none", "meta"])
def test_odd_inputs_under_a_compiler_raise_what_they_raise_with_pytorch(logs, axes, kind):
    if axes == 3 and kind not in ("channels", "meta"):
        pytest.skip("compiled for one of each kind")
    plain = getattr(torch.nn, f"Conv{axes}d")(8, 8, 3, groups=8)
    outcomes = []
    for layer in (plain, dwconv.convert(copy.deepcopy(plain))):
        torch._dynamo.reset()
        outcomes.append(outcome(torch.compile(layer, backend="eager"), odd_inputs(axes)[kind]))
    wanted, found = outcomes
    assert isinstance(found, type(wanted)), (found, wanted)
    assert isinstance(wanted, Exception) or found == wanted


@pytest.mark.parametrize("groups", ["a", 8.0, [8]])
def test_groups_that_are_no_number_have_pytorchs_error(logs, groups):
    with pytest.raises(TypeError):
        F.conv2d(X, W, B, 1, 0, 1, groups)
    dwconv.conv2d(X, W, B, groups=8)  # to Python 8.0 is the same
    with pytest.raises(InvalidArgument, match="groups="):
        dwconv.conv2d(X, W, B, groups=groups)


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


# -- padding whose sides differ, which PyTorch's convolution does not take ---------------------------------------------


SIDES = ((0, 1), (2, 0))
"""((top, bottom), (left, right))"""


def leaves(shape=(2, 8, 9, 7)):
    torch.manual_seed(0)
    x = torch.randn(shape).to(memory_format=torch.channels_last).requires_grad_()
    return x, torch.randn(8, 1, 3, 3, requires_grad=True), torch.randn(8, requires_grad=True)


def check(padding=SIDES):
    x, w, bias = leaves()
    expected = F.conv2d(F.pad(x, (2, 0, 0, 1)), w, bias, stride=2, groups=8)
    actual = dwconv.conv2d(x, w, bias, stride=2, padding=padding)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    gradients = [torch.autograd.grad(y.pow(2).sum(), (x, w, bias)) for y in (actual, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
    return actual.grad_fn.name()


@pytest.fixture
def planted(logs):
    workload = dataclasses.replace(workload_of(stride=2, bias=True), padding=SIDES)
    plant(logs / "log.jsonl", [workload], baseline_us=1e6)


def test_it_runs_on_kernels(planted):
    needs_native()
    assert "Dwconv" in check()
    assert "CppNode" in check()


@pytest.mark.parametrize("padding", [SIDES, [[0, 1], [2, 0]], ([0, 1], [2, 0])])
def test_pytorchs_op_gets_a_padded_input(logs, padding):
    assert "Convolution" in check(padding)
    assert "Convolution" in check(padding), "once more, as it is remembered"


def test_it_can_be_compiled(planted):
    x, w, bias = leaves()
    function = torch.compile(lambda x: dwconv.conv2d(x, w, bias, 2, SIDES), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(function(x), dwconv.conv2d(x, w, bias, 2, SIDES))


def test_a_line_has_two_sides(logs):
    x, w = torch.randn(2, 8, 9), torch.randn(8, 1, 3)
    for given in (x, x[0]):
        torch.testing.assert_close(
            dwconv.conv1d(given, w, padding=((2, 0),)), F.conv1d(F.pad(given, (2, 0)), w, groups=8)
        )


@pytest.mark.parametrize(
    ("padding", "told"),
    [
        (((1, 2),), "is not one number, or 2, or"),
        (((1, 2), 3), "is not one number, or 2, or"),
        (((1, 2, 3), (1, 2)), "is not one number, or 2, or"),
        (((0, -1), (0, 0)), "padding=-1 must be at least 0"),
    ],
)
def test_the_error_names_a_wrong_padding(logs, padding, told):
    x, w, _ = leaves()
    with pytest.raises(InvalidWorkload, match=told):
        dwconv.conv2d(x, w, padding=padding)
