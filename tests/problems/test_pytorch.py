"""PyTorch's own op, pass by pass: right for any padding, and the same op wherever it runs."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from dwconv.call import torch_ops as ops
from dwconv.measure.providers import around_call, laid_out, pytorch_call
from dwconv.problems import pytorch
from dwconv.problems.kernel_inputs import operands
from dwconv.problems.problem import Problem
from dwconv.problems.reference import reference
from dwconv.problems.workload import BLOCK_PASSES, EVAL_PASSES, LAYOUTS, PASSES
from tests.planted_records import workload_of

pytestmark = [
    pytest.mark.usefixtures("threads_as_asked"),
    pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning"),
]
PADDINGS = [((1, 1), (1, 1)), ((1, 2), (0, 3)), ((2, 1), (3, 0)), ((0, 0), (1, 2)), ((1, 0), (0, 2), (1, 1))]


def operators_of(call):
    """PyTorch's operators of a convolution that a call runs, in order, with the sizes of their tensors."""
    return [
        (name, sizes)
        for name, sizes in all_operators_of(call)
        if name in ("aten::constant_pad_nd", "aten::clone") or name.startswith("aten::conv")
    ]


def all_operators_of(call):
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
        call()
    return [(event.name, str(event.input_shapes)) for event in seen.events()]


def convolution(padding, *, pass_, layout):
    axes = len(padding)
    whole = workload_of(shape=(2, 8, 5, 9, 7)[:2] + (5, 9, 7)[-axes:], kernel=(4,) * axes, bias=True, layout=layout)
    return dataclasses.replace(whole, padding=padding).for_pass(pass_)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("padding", PADDINGS)
def test_every_pass_is_right_in_the_requested_layout(padding, layout):
    problem = Problem.of(convolution(padding, pass_="fprop", layout=layout))
    for pass_ in PASSES:
        of = convolution(padding, pass_=pass_, layout=layout)
        inputs = operands(of, data="integers", seed=0)
        run = {"fprop": pytorch.fprop, "dgrad": pytorch.dgrad, "wgrad": pytorch.wgrad_bias}[pass_]
        for other in LAYOUTS:
            results = run(problem, *laid_out(of, *inputs, layout=other))
            for result, exact in zip(results if pass_ == "wgrad" else (results,), reference(of, *inputs), strict=True):
                assert torch.equal(result, exact.float())
                assert pass_ == "wgrad" or result.is_contiguous(memory_format=problem.memory_format)
        if pass_ == "wgrad":
            assert torch.equal(pytorch.wgrad(problem, *inputs), results[0])


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("padding", PADDINGS)
def test_what_is_measured_is_what_runs(logs, padding, pass_):
    """The baseline of tuning, and an untuned call: the same operators on the same sizes."""
    of = convolution(padding, pass_=pass_, layout="nhwc")
    inputs = laid_out(of, *operands(of, data="normal", seed=0), layout="nhwc")
    geometry = (of.stride, [side for sides in of.padding for side in sides], of.dilation, "nhwc")
    more = {"fprop": [], "dgrad": [of.shape_of("x")], "wgrad": [of.kernel]}[pass_]
    op = {"fprop": ops.fprop, "dgrad": ops.dgrad, "wgrad": ops.wgrad_bias}[pass_]
    baseline = pytorch_call(of, *inputs)
    ran = operators_of(lambda: op(*inputs, *more, *geometry))
    measured = operators_of(baseline)
    assert any("convolution" in name for name, _ in ran)
    assert ran == measured
    results = baseline(), op(*inputs, *more, *geometry)
    torch.testing.assert_close(*results, rtol=0, atol=0)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("epilogue", ["none", "silu", "silu_gradient"])
def test_a_causal_convolution_is_measured_without_a_copy(epilogue, layout):
    row = workload_of(shape=(2, 8, 1, 20), kernel=(1, 4), bias=True, layout=layout, padding=0)
    row = dataclasses.replace(row, padding=((0, 0), (3, 0)), epilogue=epilogue)
    for of in [row] + [row.for_pass(pass_) for pass_ in PASSES[1:] if epilogue == "none"]:
        inputs = operands(of, data="integers", seed=0)
        call = pytorch_call(of, *inputs)
        ran = {name for name, _ in operators_of(call)}
        assert "aten::constant_pad_nd" not in ran
        assert ("aten::convolution" in ran or "aten::convolution_backward" in ran) is (epilogue != "silu_gradient")
        results = call()
        for result, exact in zip(results if of.pass_ == "wgrad" else (results,), reference(of, *inputs), strict=True):
            torch.testing.assert_close(result.double(), exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("pass_", [*BLOCK_PASSES, *EVAL_PASSES])
@pytest.mark.parametrize("text", ["bn+relu6,bn+silu", "none,bn+hardswish", "bn+relu,none", "relu,bn", "none,ln"])
def test_what_is_around_a_convolution_is_all_of_its_block_besides_it(text, pass_):
    """As often, and on as many numbers: norms before and after a strided convolution have different sizes."""
    if text == "none,ln" and pass_ == "inference":
        pytest.skip("it has no such pass")
    of = workload_of(shape=(2, 8, 9, 7), stride=2, block=text).for_pass(pass_)
    inputs = operands(of, data="normal", seed=0)
    around = around_call(of, *inputs)
    counted = []
    for call in (pytorch_call(of, *laid_out(of, *inputs, layout="nhwc")), around):
        ran = all_operators_of(call)
        counted.append(Counter(each for each in ran if _is_around(each[0])))
        has_convolution = any("convolution" in name for name, _ in ran)
        assert has_convolution == (call is not around)
    assert counted[0] == counted[1] and counted[1]


def _is_around(name: str) -> bool:
    return any(word in name for word in ("norm", "relu", "hardtanh", "hardswish", "silu", "threshold"))


def test_only_what_one_side_has_more_is_padded_before():
    assert pytorch.split_padding((1, 2, 3, 0)) == ((1, 0), (3, 0, 0, 1))
    assert pytorch.split_padding((1, 1, 2, 2)) == ((1, 2), (0, 0, 0, 0))
