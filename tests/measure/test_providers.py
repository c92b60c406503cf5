"""What candidates are compared to computes the same thing, in both layouts."""

import dataclasses

import pytest
import torch

from dwconv.measure.providers import around_call, pytorch_by_layout, pytorch_call, transposed_call
from dwconv.problems.block import Block
from dwconv.problems.kernel_inputs import operands
from dwconv.problems.reference import reference
from dwconv.problems.right_answers import right_answers
from tests.measure.planted_kernels import workload


@pytest.mark.parametrize("pass_", ["fprop", "dgrad", "wgrad"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"multiplier": 3, "stride": (2, 1), "dilation": (1, 2)},
        {"padding": ((1, 2), (0, 3)), "kernel": (4, 4)},  # 'same' with an even kernel
        {"padding": ((2, 1), (3, 0)), "stride": (2, 2)},
    ],
)
def test_both_layouts_agree_with_the_reference(pass_, changes, bias):
    of = workload(bias=bias, **changes).for_pass(pass_)
    inputs = operands(of, data="integers", seed=0)
    calls = pytorch_by_layout(of, *inputs)
    assert [name.rpartition("-")[2] for name in calls] == ["nchw", "nhwc"]
    for call in calls.values():
        results = call()
        for result, exact in zip(
            results if of.bias and pass_ == "wgrad" else (results,), reference(of, *inputs), strict=True
        ):
            assert torch.equal(result, exact.float())


def test_providers_have_the_name_of_the_library_that_runs():
    of = workload(channels=32)
    names = {name.rpartition("-")[0] for name in pytorch_by_layout(of, *operands(of, data="normal", seed=0))}
    assert names <= {"onednn", "pytorch"}


@pytest.mark.parametrize(
    ("changes", "is_other"),
    [
        ({"stride": (2, 2)}, True),
        ({"stride": (3, 2), "dilation": (1, 2), "padding": ((1, 1), (2, 2))}, True),
        ({"input_size": (1, 40), "kernel": (1, 16), "stride": (1, 8), "padding": ((0, 0), (4, 4))}, True),
        ({}, False),
        ({"stride": (2, 2), "padding": ((0, 1), (0, 1))}, False),
        ({"stride": (2, 2), "multiplier": 2}, False),
        ({"stride": (2, 2), "layout": "nchw"}, False),
    ],
)
def test_the_transposed_convolution_computes_dgrad_where_it_is_another_op(changes, is_other):
    of = workload(**{"layout": "nhwc", **changes})
    assert transposed_call(of, *operands(of, data="integers", seed=0)) is None
    inputs = operands(of.for_pass("dgrad"), data="integers", seed=0)
    call = transposed_call(of.for_pass("dgrad"), *inputs)
    assert (call is not None) is is_other
    if call:
        (exact,) = reference(of.for_pass("dgrad"), *inputs)
        assert torch.equal(call(), exact.float())
        assert call().is_contiguous(memory_format=torch.channels_last)


def test_results_lie_as_the_inputs_do():
    of = workload(channels=32)
    nchw, nhwc = pytorch_by_layout(of, *operands(of, data="normal", seed=0)).values()
    assert nchw().is_contiguous() and nhwc().is_contiguous(memory_format=torch.channels_last)


def test_a_slice_of_channels_counts_as_it_lies_as_for_pytorchs_op():
    asked = workload(layout="nchw")
    _, channels, *size = asked.input_shape
    wider = torch.randn(asked.batch, 2 * channels, *size).contiguous(memory_format=torch.channels_last)
    x, w = wider[:, :channels], torch.randn(asked.shape_of("w"))
    y = pytorch_call(dataclasses.replace(asked, pass_="fprop"), x, w)()
    exact = torch.nn.functional.conv2d(x, w, None, asked.stride, [1, 1], asked.dilation, channels)
    assert y.stride() == exact.stride() and y.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    "text",
    ["bn+relu6,bn+silu", "none,bn+relu", "relu,none", "frozen+relu6,frozen+relu6", "bn+relu,frozen", "frozen,bn+silu"],
)
@pytest.mark.parametrize(
    "changes",
    [
        {"padding": ((0, 1), (2, 1)), "stride": (2, 1)},  # as TensorFlow pads
        {"input_size": (1, 20), "kernel": (1, 4), "padding": ((0, 0), (3, 0))},  # causal
    ],
    ids=["2-D", "1-D"],
)
def test_blocks_are_those_of_the_workload(changes, text):
    """Whatever the padding: what is compared with a kernel computes the same."""
    forward = dataclasses.replace(workload(channels=5, batch=2, **changes), pass_="forward", block=Block.parse(text))
    inputs = operands(forward, data="normal", seed=1)
    (answer, *_) = right_answers(forward, *inputs)
    for call in pytorch_by_layout(forward, *inputs).values():
        assert torch.allclose(call().double(), answer.expected, atol=1e-4)
    inference = forward.for_pass("inference")
    inputs = operands(inference, data="normal", seed=1)
    (answer,) = right_answers(inference, *inputs)
    for call in pytorch_by_layout(inference, *inputs).values():
        assert torch.allclose(call().double(), answer.expected, atol=1e-4)
    backward = forward.for_pass("backward")  # of the y that PyTorch computes, not of the one that kernels are given
    for call in pytorch_by_layout(backward, *operands(backward, data="normal", seed=1)).values():
        found = call()
        assert [each.shape for each in found] == [backward.shape_of(name) for name in backward.results]
    for of in (forward, backward):
        if (around := around_call(of, *operands(of, data="normal", seed=1))) is not None:
            around()
