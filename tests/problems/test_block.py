"""Blocks: how they are named, what their passes take and give, and the right answer."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from dwconv.errors import InvalidWorkload
from dwconv.problems import block_reference, pytorch
from dwconv.problems.as_written import workload_options
from dwconv.problems.block import ACTIVATIONS, Block
from dwconv.problems.kernel_inputs import operands
from dwconv.problems.problem import Problem
from dwconv.problems.reference import reference
from dwconv.problems.right_answers import right_answers
from dwconv.problems.workload import BLOCK_PASSES, EVAL_PASSES, PASSES, Pass, Workload


def layer(pass_: Pass = "forward", text: str = "bn+relu6,bn+silu", **other: Any) -> Workload:
    fields: dict[str, Any] = {
        "batch": 3, "channels": 5, "input_size": (6, 7), "kernel": (3, 3), "stride": (2, 1),
        "padding": ((1, 1), (1, 1)), "layout": "nhwc",
    }  # fmt: skip
    return Workload(pass_=pass_, block=Block.parse(text), **{**fields, **other})


@pytest.mark.parametrize(
    "text",
    [
        "bn+relu6,bn+relu6",
        "bn@0.001+hardswish,bn@0.001",
        "gelu,none",
        "bn,bn@1e-06+silu",
        "frozen@0.001+relu,frozen",
        "in@0.001+relu,in",
        "none,ln",
        "none,ln@1e-06",
    ],
)
def test_a_name_is_read_back(text: str) -> None:
    assert str(Block.parse(text)) == text
    workload = layer(text=text)
    assert workload.key.endswith(f"-float32-nhwc-{text}")
    assert Workload.from_dict(workload.to_dict()) == workload
    assert workload_options(workload).endswith(f"--block {text}")


def test_a_block_without_anything_is_another_workload_than_its_convolution() -> None:
    assert layer(text="none,none").convolution("fprop").key == layer().convolution("fprop").key
    assert "block" not in layer().convolution("fprop").to_dict()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("bn+tanh,bn", "tanh is not an activation; use one of identity, relu"),
        ("bn", "is not what comes before the convolution and after it"),
        ("bn@small,bn", "bn@small is not a norm with its eps after @"),
        ("bn@0,bn", "bn@0 is not a norm with its eps after @"),
        ("ln,none", "a LayerNorm comes after the convolution"),
        ("bn,ln", "block=bn,ln: beside a LayerNorm there is nothing else"),
        ("none,ln+relu", "beside a LayerNorm there is nothing else"),
        ("none,ln@-1", "ln@-1 is not a norm with its eps after @"),
        ("bn+relu,in", "block=bn\\+relu,in: beside an InstanceNorm there is no BatchNorm"),
        ("in,frozen", "beside an InstanceNorm there is no BatchNorm"),
        ("bn,relu", "act2=relu needs a norm before it"),
    ],
)
def test_what_is_no_block_says_why(text: str, reason: str) -> None:
    with pytest.raises(InvalidWorkload, match=reason):
        Block.parse(text)


def test_passes_belong_to_blocks_and_to_convolutions() -> None:
    with pytest.raises(InvalidWorkload, match="pass=fprop is unknown; use one of forward, backward, inference"):
        layer("fprop")
    with pytest.raises(InvalidWorkload, match="pass=forward is unknown; use one of fprop, dgrad, wgrad"):
        dataclasses.replace(layer(), block=None)
    with pytest.raises(InvalidWorkload, match=r"bias=True: the block bn\+relu6,bn\+silu has none"):
        layer(bias=True)
    assert Problem.of(layer()).passes == BLOCK_PASSES
    evaluation = Problem.of(layer("inference"))
    assert evaluation.passes == ("inference",) and evaluation == Problem.of(layer()).in_evaluation
    assert evaluation.workload("inference") == layer("inference") and "in evaluation" in str(evaluation)
    assert evaluation.alone.passes == PASSES and evaluation.alone == Problem.of(layer()).alone


def test_what_passes_take_and_give() -> None:
    forward, backward = layer(), layer("backward")
    assert forward.inputs == ("x", "w", "gamma1", "beta1", "gamma2", "beta2")
    assert forward.results == ("z", "y", "mean1", "var1", "mean2", "var2")
    assert backward.inputs == (
        "dz", "x", "y", "w", "gamma1", "beta1", "mean1", "var1", "gamma2", "beta2", "mean2", "var2",
    )  # fmt: skip
    assert backward.results == ("dx", "dw", "dgamma1", "dbeta1", "dgamma2", "dbeta2")
    inference = layer("inference")
    assert inference.inputs == ("x", "w", "gamma1", "beta1", "mean1", "var1", "gamma2", "beta2", "mean2", "var2")
    assert inference.results == ("z",) and layer("inference", "bn+relu,none").results == ("y",)
    assert layer(text="relu,none").results == ("y",)
    frozen = layer(text="frozen+relu,frozen+relu6")
    assert frozen.inputs == inference.inputs and frozen.results == ("z",)
    assert frozen.for_pass("backward").inputs == ("dz", "x", "z", "w", *inference.inputs[2:])
    assert frozen.for_pass("backward").results == backward.results
    assert layer("backward", "frozen,frozen").inputs[:3] == ("dz", "x", "w")
    assert layer(text="bn,frozen+silu").results == ("z", "y", "mean1", "var1")
    assert layer(text="bn,frozen+silu").inputs == ("x", "w", "gamma1", "beta1", "gamma2", "beta2", "mean2", "var2")
    assert layer(text="frozen,bn").results == ("z", "y", "mean2", "var2")
    assert layer("backward", "relu,none").inputs == ("dy", "x", "w")
    of_images = layer(text="in+relu,in+relu6")
    assert of_images.inputs == forward.inputs and of_images.results == ("z", "y")
    assert of_images.for_pass("backward").inputs == ("dz", "x", "y", *of_images.inputs[1:])
    assert of_images.for_pass("backward").results == backward.results
    with_bias = layer(text="none,ln", bias=True)
    assert with_bias.inputs == ("x", "w", "bias", "gamma2", "beta2") and with_bias.results == ("z", "y")
    assert with_bias.for_pass("backward").inputs == ("dz", "x", "y", "w", "gamma2")
    assert with_bias.for_pass("backward").results == ("dx", "dw", "dbias", "dgamma2", "dbeta2")
    assert [with_bias.convolution(pass_).bias for pass_ in PASSES] == [True, False, True]
    assert [forward.shape_of(name) for name in ("x", "z", "w", "gamma2")] == [
        (3, 5, 6, 7), (3, 5, 3, 7), (5, 1, 3, 3), (5,)
    ]  # fmt: skip


def test_a_block_moves_five_images_forward_and_nine_back() -> None:
    """What the page on blocks says; without norms two, and three. In evaluation two, whatever the norms; with frozen
    ones two, and four. An image of an InstanceNorm stays in the cache."""
    image = 4 * math.prod((3, 5, 6, 7))
    for text, passes in (
        ("bn+relu,bn+relu", (5, 9, 2)),
        ("none,bn+relu", (4, 6, 2)),
        ("none,none", (2, 3, 2)),
        ("frozen+relu,frozen+relu", (2, 4, 2)),
        ("frozen+relu,frozen", (2, 3, 2)),
        ("frozen+relu,frozen+silu", (3, 4, 2)),
        ("in+relu,in+relu", (3, 4, 2)),
        ("none,ln", (3, 4, 2)),
    ):
        same = layer(text=text, stride=(1, 1))
        found = [same.for_pass(pass_).bytes / image for pass_ in (*BLOCK_PASSES, *EVAL_PASSES)]
        assert [round(each, 1) for each in found] == pytest.approx(passes, abs=0.4), text


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_the_right_answer_is_pytorchs_in_float64(act: str) -> None:
    """Of both passes, with every result; the page of PyTorch's ops says how they are called."""
    forward = layer(text=f"bn@0.001+{act},bn+{act}".replace("+identity", ""))
    _assert_pytorchs(forward)


@pytest.mark.parametrize("act", ACTIVATIONS)
@pytest.mark.parametrize("text", ["frozen@0.001+{},frozen+{}", "bn+{},frozen+{}", "frozen+{},bn+{}", "frozen+{},none"])
def test_the_right_answer_of_frozen_norms_is_pytorchs_in_float64(text: str, act: str) -> None:
    _assert_pytorchs(layer(text=text.format(act, act).replace("+identity", "")))


@pytest.mark.parametrize("act", ACTIVATIONS)
@pytest.mark.parametrize("text", ["in@0.001+{},in+{}", "none,in+{}", "in+{},none"])
def test_the_right_answer_of_instance_norms_is_pytorchs_in_float64(text: str, act: str) -> None:
    _assert_pytorchs(layer(text=text.format(act, act).replace("+identity", "")))


@pytest.mark.parametrize("bias", [False, True])
def test_the_right_answer_of_a_layer_norm_is_pytorchs_in_float64(*, bias: bool) -> None:
    _assert_pytorchs(layer(text="none,ln@1e-06", bias=bias))


def _assert_pytorchs(forward: Workload) -> None:
    assert forward.block is not None
    drawn = [tensor.double() for tensor in operands(forward, data="normal", seed=1)]
    x, w, *others = (
        tensor.requires_grad_(not name.startswith(("mean", "var")))
        for name, tensor in zip(forward.inputs, drawn, strict=True)
    )
    bias, norms = (others[0], others[1:]) if forward.bias else (None, others)
    found: dict[str, torch.Tensor] = {}

    def convolve(a: torch.Tensor) -> torch.Tensor:
        found["y"] = F.conv2d(a, w, bias, forward.stride, 1, 1, forward.channels)  # type: ignore[arg-type]
        return found["y"]

    z = pytorch.block_forward(forward.block, convolve, x, *norms)
    dz = torch.randn(z.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    gradients = torch.autograd.grad(z, [each for each in (x, w, *others) if each.requires_grad], dz)

    def answers(workload: Workload, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        results = block_reference.results(workload, *inputs, convolve=lambda *given: reference(*given)[0])
        return {name: about.value for name, about in results.items()}

    mine = answers(forward, *(each.detach() for each in (x, w, *others)))
    assert torch.allclose(mine["z" if forward.block.norm2 else "y"], z) and torch.allclose(mine["y"], found["y"])
    if forward.block.norm1 and forward.block.norm1.statistics == "batch":
        assert torch.allclose(mine["var1"], x.var((0, 2, 3), correction=0))
    backward = forward.for_pass("backward")
    named = {**mine, "x": x, "w": w, "dz": dz, **dict(zip(forward.inputs[2:], others, strict=True))}
    named["dy"] = dz
    back = answers(backward, *(named[name].detach() for name in backward.inputs))
    for name, gradient in zip(backward.results, gradients, strict=True):
        assert torch.allclose(back[name], gradient, atol=1e-9), name


@pytest.mark.parametrize("text", ["bn@0.1+gelu,bn+silu", "none,bn+hardswish", "bn+relu6,none", "bn,bn@0.1"])
def test_the_right_answer_in_evaluation_is_pytorchs_in_float64(text: str) -> None:
    workload = layer("inference", text)
    inputs = operands(workload, data="normal", seed=1)
    assert workload.block is not None

    def convolve(a: torch.Tensor) -> torch.Tensor:
        return F.conv2d(a, inputs[1].double(), None, workload.stride, 1, 1, workload.channels)  # type: ignore[arg-type]

    x, _, *norms = (each.double() for each in inputs)
    z = pytorch.block_inference(workload.block, convolve, x, *norms)
    (answer,) = right_answers(workload, *inputs)
    assert torch.allclose(answer.expected, z, rtol=1e-12, atol=1e-12)
    in_training = pytorch.block_forward(workload.block, convolve, x, *_learnt(workload, norms))
    assert not torch.allclose(answer.expected, in_training)


def _learnt(workload: Workload, norms: list[torch.Tensor]) -> list[torch.Tensor]:
    pairs = zip(workload.inputs[2:], norms, strict=True)
    return [tensor for name, tensor in pairs if name.startswith(("gamma", "beta"))]


@pytest.mark.parametrize("pass_", (*BLOCK_PASSES, *EVAL_PASSES))
def test_pytorchs_float32_is_within_what_kernels_are_allowed(pass_: Pass) -> None:
    """And not far within: the bound is of use."""
    workload = layer(pass_, "bn+hardswish,bn+silu", channels=16, input_size=(20, 21), stride=(1, 1))
    inputs = operands(workload, data="normal", seed=3)
    answers = right_answers(workload, *inputs)
    single = [answer.expected.float().double() for answer in answers]
    for name, answer, value in zip(workload.results, answers, single, strict=True):
        assert answer.allowed is not None
        assert ((value - answer.expected).abs() <= answer.allowed).all(), name
        typical = answer.allowed.median() / answer.expected.abs().median()
        assert typical < 5e-3, (name, float(typical))
