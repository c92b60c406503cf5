"""The reference against PyTorch's convolutions in float64, and its bound against wrong answers."""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from dwconv.errors import InvalidWorkload
from dwconv.problems.kernel_inputs import operands
from dwconv.problems.reference import reference, terms
from dwconv.problems.right_answers import exact_answers, repeated, right_answers
from dwconv.problems.workload import PASSES, Workload

pytestmark = pytest.mark.usefixtures("one_thread")


@st.composite
def workloads(draw):
    def pair(low, high):
        return st.tuples(st.integers(low, high), st.integers(low, high))

    try:
        problem = Workload(
            pass_="fprop",
            batch=draw(st.integers(1, 3)),
            channels=draw(st.integers(1, 5)),
            multiplier=draw(st.integers(1, 3)),
            input_size=draw(pair(1, 9)),
            kernel=draw(pair(1, 5)),
            stride=draw(pair(1, 3)),
            padding=(draw(pair(0, 4)), draw(pair(0, 4))),
            dilation=draw(pair(1, 3)),
            layout=draw(st.sampled_from(["nchw", "nhwc"])),
            bias=draw(st.booleans()),
        )
        return problem.for_pass(draw(st.sampled_from(PASSES)))
    except InvalidWorkload:
        reject()


def by_pytorch(workload, *inputs):
    """The results of the pass by F.pad, F.conv2d and autograd, in float64."""
    given = dict(zip(workload.inputs, inputs, strict=True))
    x, w, bias = (
        given.get(name, torch.zeros(workload.shape_of(name))).double().requires_grad_() for name in ("x", "w", "bias")
    )
    (top, bottom), (left, right) = workload.padding
    padded = F.pad(x, (left, right, top, bottom))
    y = F.conv2d(padded, w, bias, workload.stride, 0, workload.dilation, workload.channels)
    if workload.pass_ == "fprop":
        return (y.detach(),)
    y.backward(given["dy"].double())
    gradients = {"dx": x.grad, "dw": w.grad, "dbias": bias.grad}
    return tuple(gradients[name] for name in workload.results)


@settings(max_examples=100, deadline=None)
@given(workloads())
def test_agrees_with_pytorch(workload):
    inputs = operands(workload, data="normal", seed=1)
    torch.testing.assert_close(reference(workload, *inputs), by_pytorch(workload, *inputs), rtol=1e-12, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(workloads(), st.sampled_from(["float32", "float16", "bfloat16"]))
def test_integers_are_exact_and_float32_gives_just_that(workload, dtype):
    workload = dataclasses.replace(workload, dtype=dtype)
    inputs = operands(workload, data="integers", seed=2)
    answers = right_answers(workload, *inputs)
    for answer, exact in zip(answers, by_pytorch(workload, *inputs), strict=True):
        assert answer.allowed is None
        assert answer.expected.dtype == getattr(torch, dtype)
        assert torch.equal(answer.expected, exact.float().to(answer.expected.dtype))


def layer(pass_="fprop", **changes):
    problem = {"batch": 4, "channels": 8, "input_size": (28, 28), "kernel": (5, 5), "padding": ((2, 2), (2, 2))}
    return Workload(pass_=pass_, **{**problem, **changes})


@pytest.mark.parametrize("pass_", ["fprop", "dgrad", "wgrad"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_bound_holds_for_float32_sums_and_not_for_a_lost_term(pass_, dtype):
    workload = layer(pass_, dtype=dtype)
    first, second = operands(workload, data="normal", seed=3)
    (answer,) = right_answers(workload, first, second)
    summed = reference_in_float32(workload, first, second)
    assert ((summed.to(first.dtype).double() - answer.expected).abs() <= answer.allowed).all()
    lost = second.clone()
    lost.view(-1)[lost.numel() // 2] = 0.0  # one weight, or one output's gradient
    (wrong,) = reference(workload, first, lost)
    assert ((wrong - answer.expected).abs() > answer.allowed).any()


def reference_in_float32(workload, first, second):
    """Worst order of summation: one term after the other."""
    x = {"fprop": first, "wgrad": first}.get(workload.pass_)
    (top, bottom), (left, right) = workload.padding
    if workload.pass_ == "dgrad":  # where the size stays: the forward pass with flipped weights
        return reference_in_float32(workload.for_pass("fprop"), first, second.flip(2, 3))
    padded = F.pad(x.float(), (left, right, top, bottom))
    patches = F.unfold(padded, workload.kernel).unflatten(1, (workload.channels, -1))
    if workload.pass_ == "fprop":
        total = torch.zeros(patches.shape[0], workload.channels, patches.shape[3])
        for tap in range(patches.shape[2]):
            total += patches[:, :, tap] * second.float().flatten(1)[None, :, tap, None]
        return total.view(workload.shape_of("y"))
    dy = second.float().flatten(2)
    total = torch.zeros(workload.channels, patches.shape[2])
    for image in range(workload.batch):
        for pixel in range(dy.shape[2]):
            total += patches[image, :, :, pixel] * dy[image, :, None, pixel]
    return total.view(workload.shape_of("dw"))


def test_a_lost_bias_or_a_lost_pixel_of_its_gradient_is_out_of_bounds():
    for workload in (layer(bias=True), layer("wgrad", bias=True)):
        inputs = operands(workload, data="normal", seed=7)
        answer = right_answers(workload, *inputs)[-1]
        lost = inputs[-1].clone()
        lost.view(-1)[3] = 0.0
        wrong = reference(workload, *inputs[:-1], lost)[-1]
        assert ((wrong - answer.expected).abs() > answer.allowed).any()


def test_long_sums_use_smaller_integers():
    workload = layer("wgrad", batch=64, input_size=(224, 224), channels=1)
    assert terms(workload) * 9 > 2**24
    first, second = operands(workload, data="integers", seed=4)
    assert first.abs().max() * second.abs().max() * terms(workload) < 2**24
    assert right_answers(workload, first, second)[0].allowed is None


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("data", ["integers", "normal", "extreme"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_images_that_repeat_are_computed_once_and_mean_the_same(pass_, data, layout):
    few = layer(pass_, batch=3, input_size=(9, 8), bias=pass_ != "dgrad", layout=layout)
    many = few.with_batch(7)
    inputs = operands(many, data=data, seed=1, images=3)
    whole = tuple(
        tensor[[0, 1, 2, 1, 2, 0, 2]] if name[-1] in "xy" else tensor
        for name, tensor in zip(many.inputs, inputs, strict=True)
    )
    for answer, expected in zip(right_answers(many, *inputs), right_answers(many, *whole), strict=True):
        assert (answer.allowed is None) == (expected.allowed is None) == (data == "integers")
        torch.testing.assert_close(answer.expected, expected.expected, rtol=1e-12, atol=0, equal_nan=True)
        if answer.allowed is not None:
            torch.testing.assert_close(answer.allowed, expected.allowed, rtol=1e-12, atol=0)
        assert (answer.may_be_nan is None) == (expected.may_be_nan is None)
        assert answer.may_be_nan is None or torch.equal(answer.may_be_nan, expected.may_be_nan)


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_one_reference_serves_many_batch_sizes(pass_, dtype, layout):
    of = layer(pass_, input_size=(9, 8), bias=pass_ != "dgrad", dtype=dtype, layout=layout)
    inputs, batches = operands(of.with_batch(33), data="integers", seed=1, images=8), (3, 8, 33)
    for batch, answers in zip(batches, exact_answers(of, batches, *inputs), strict=True):
        order = repeated(batch, 8)
        whole = [t[order] if name[-1] in "xy" else t for name, t in zip(of.inputs, inputs, strict=True)]
        for answer, expected in zip(answers, right_answers(of.with_batch(batch), *whole), strict=True):
            assert answer.allowed is None and expected.allowed is None
            assert torch.equal(answer.expected, expected.expected)
    assert exact_answers(of, batches, *(tensor / 3 for tensor in inputs)) is None


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_extreme_values_are_of_every_kind_and_keep_to_their_channels(pass_, dtype):
    workload = layer(pass_, batch=2, channels=15, multiplier=2, dtype=dtype)
    limits = torch.finfo(getattr(torch, dtype))
    first, second = operands(workload, data="extreme", seed=0)
    values = first[first.isfinite()].double().abs()
    assert (values > limits.max**0.75).any() and ((values > 0) & (values < limits.tiny)).any()
    for tensor in (first, second):
        assert tensor.isnan().any() and (tensor == torch.inf).any() and (tensor == -torch.inf).any()
    (answer,) = right_answers(workload, first, second)
    wanted = answer.expected
    assert wanted.isnan().any() and (wanted == torch.inf).any() and (wanted == -torch.inf).any()
    assert wanted.isfinite().any(dim=tuple(range(2, wanted.dim()))).double().mean() > 0.5
    if dtype != "float16":
        assert wanted[wanted.isfinite()].abs().max() < limits.max  # no sum overflows


@pytest.mark.parametrize("pass_", PASSES)
def test_bound_holds_for_float32_sums_of_extreme_values_and_not_for_lost_ones(pass_):
    workload = layer(pass_, batch=3, channels=15)
    first, second = operands(workload, data="extreme", seed=3)
    (answer,) = right_answers(workload, first, second)
    finite = answer.expected.isfinite()
    summed = reference_in_float32(workload, first, second).double()
    near = (summed - answer.expected).abs() <= answer.allowed
    meets_zeros = finite & summed.isnan()  # it multiplies by the zeros of the padding
    assert (near | ~finite | meets_zeros).all() and meets_zeros.double().mean() < 0.2
    for lost in (torch.finfo(torch.float32).tiny, 1e-10):
        (wrong,) = reference(workload, first.where(first.abs() > lost, 0.0), second)
        assert ((wrong - answer.expected).abs() > answer.allowed)[finite].any()


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("pass_", ["fprop", "dgrad"])
@pytest.mark.parametrize(
    ("stride", "dilation", "padding"), [(1, 1, (1, 1)), (2, 1, (2, 0)), (1, 2, (0, 3)), (3, 2, (1, 2))]
)
@pytest.mark.parametrize("tap_row", [0, 1])
def test_an_infinite_weight_may_meet_zeros_of_the_padding(pass_, stride, dilation, padding, kind, tap_row):
    """To the left and right in NCHW on the CPU, all around with CUDA."""
    workload = Workload(
        pass_=pass_, batch=1, channels=2, input_size=(4, 9), kernel=(2, 3), stride=(1, stride), dilation=(1, dilation),
        padding=((1, 1), padding),
    )  # fmt: skip
    images, weights = operands(workload, data="normal", seed=0)
    weights[1, 0, tap_row, [0, 2]] = torch.inf
    (answer,) = right_answers(workload, images, weights, kind=kind)
    _, _, rows, columns = answer.expected.shape
    size = workload.input_size if pass_ == "fprop" else workload.output_size

    def is_outside(axis, at, tap):
        """True if the tap reads zeros there; None if it reads nothing there."""
        step, spread, before = workload.stride[axis], workload.dilation[axis] * tap, workload.padding[axis][0]
        if pass_ == "fprop":
            return not 0 <= at * step + spread - before < size[axis]
        return None if (at + before - spread) % step else not 0 <= (at + before - spread) // step < size[axis]

    def may_be_nan(row, column):
        above_or_below = is_outside(0, row, tap_row)
        beside = [is_outside(1, column, tap) for tap in (0, 2)]
        if kind == "cuda":
            return any(each is not None and (above_or_below or each) for each in beside)
        return not above_or_below and any(beside)

    assert not answer.may_be_nan[:, 0].any() and answer.may_be_nan[0, 1].any()
    wanted = [[may_be_nan(row, column) for column in range(columns)] for row in range(rows)]
    assert answer.may_be_nan[0, 1].tolist() == wanted
    (elsewhere,) = right_answers(dataclasses.replace(workload, layout="nhwc"), images, weights)
    assert elsewhere.may_be_nan is None


@pytest.mark.parametrize("number", [0, 1])
def test_no_nan_is_excused_in_the_middle_of_an_image_or_without_padding(number):
    unpadded, padded = layer(padding=((0, 0), (0, 0))), layer("wgrad")
    x, w = operands(unpadded, data="normal", seed=0)
    w[3, 0, 2, 2] = torch.inf
    images = operands(padded, data="normal", seed=0)
    images[number][0, 3, 14, 14] = torch.inf
    for workload, inputs in [(unpadded, (x, w)), (padded, images)]:
        (answer,) = right_answers(workload, *inputs, kind="cuda")
        assert not answer.may_be_nan.any()


@pytest.mark.parametrize("pass_", ["fprop", "dgrad"])
def test_nan_may_stand_beside_in_the_same_rows_and_so_many_columns(pass_):
    """An infinity at row 3 and column 30 of the image: 3 rows meet it, and 5 columns. Others are excused no further
    than kernels on tensor cores reach, and only those of 16 bits for CUDA."""
    workload = layer(pass_, input_size=(8, 60), kernel=(3, 5), padding=((1, 1), (2, 2)), dtype="float16")
    first, second = operands(workload, data="normal", seed=0)
    first[0, 1, 3, 30] = math.inf
    (answer,) = right_answers(workload, first, second, kind="cuda")
    assert answer.may_be_nan_beside is not None
    rows, columns = answer.may_be_nan_beside[0, 1].nonzero().T
    assert set(rows.tolist()) == {2, 3, 4} and set(columns.tolist()) == set(range(30 - 2 - 14, 30 + 2 + 14 + 1))
    assert answer.may_be_nan_beside.sum() == len(rows)
    assert right_answers(workload, first, second, kind="cpu")[0].may_be_nan_beside is None
    other = dataclasses.replace(workload, dtype="float32")
    assert right_answers(other, first.float(), second.float(), kind="cuda")[0].may_be_nan_beside is None
