"""Causal convolutions with SiLU after them, as Mamba's code has them, run as one kernel; everything else that code may
do with their result gives the same numbers and gradients."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import dwconv
from dwconv.call.deferred import Deferred
from tests.call.test_causal import CHANNELS, TAPS, in_double, inputs_of, kernels_that_ran, plant_all, problem_of

pytestmark = pytest.mark.filterwarnings("ignore:.* on PyTorch's own op")  # other sizes than those planted
LENGTH = 37
FUSED = {("fprop", "silu"), ("fprop", "silu_gradient")}


@pytest.fixture
def tensors(request, logs) -> list[Tensor]:
    """x, weight and bias, whose convolution and SiLU were measured to be faster as one."""
    problem = problem_of(layout=getattr(request, "param", "nhwc"))
    plant_all(logs, problem)
    x, weight, bias = inputs_of(problem, torch.float32)
    return [x, weight.detach().unsqueeze(1).requires_grad_(), bias]


def convolved(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.conv1d(x, weight, bias, padding=TAPS - 1, groups=CHANNELS)


PATTERNS = {
    "mamba": lambda z: F.silu(z[:, :, :LENGTH]),
    "before": lambda z: nn.SiLU()(z[..., :LENGTH]),
    "mamba-2": lambda z: F.silu(z[..., :LENGTH].transpose(1, 2)),
    "from the end": lambda z: F.silu(z[..., : 1 - TAPS].transpose(-1, -2)),
}


class Swish(torch.autograd.Function):
    """As models bring it that save memory: no function of PyTorch's sees its argument."""

    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return z * z.sigmoid()

    @staticmethod
    def backward(ctx, dy):
        (z,) = ctx.saved_tensors
        return dy * (z.sigmoid() * (1 + z * (1 - z.sigmoid())))


def in_place(z: Tensor) -> Tensor:
    z = z[..., :LENGTH]
    same = z
    z += 1
    return F.silu(same) * z


def below_functions(z: Tensor) -> Tensor:
    with torch._C.DisableTorchFunctionSubclass():
        return torch.add(z, z, alpha=2)


OTHERS = {
    "another slice": lambda z: F.silu(z[..., 1 : LENGTH + 1]),
    "all of it": F.silu,
    "twice": lambda z: F.silu(z[..., :LENGTH]) + z[..., :LENGTH],
    "another activation": lambda z: F.gelu(z[..., :LENGTH]),
    "a custom function": lambda z: Swish.apply(z[..., :LENGTH]),
    "a custom function of all": Swish.apply,
    "a custom function of the transpose": lambda z: Swish.apply(z[..., :LENGTH].transpose(1, 2)),
    "in place": in_place,
    "an operator": lambda z: torch.ops.aten.silu(z[..., :LENGTH]),
    "an operator with a keyword, below functions": below_functions,
    "other axes": lambda z: F.silu(z[..., :LENGTH].transpose(0, 1)),
    "a batch": lambda z: F.silu(torch.cat([z, z])[..., :LENGTH]),
    "without gradients first": lambda z: (z.detach().sum(), F.silu(z[..., :LENGTH]))[1],
    "silu_": lambda z: F.silu(z[..., :LENGTH], inplace=True),
    "of a batch": lambda z: F.silu(z[0, :, :LENGTH]),
}


def step(tensors: list[Tensor], pattern) -> list[Tensor]:
    """The result and the gradients of everything."""
    y = pattern(convolved(*tensors))
    weights = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view(y.shape).to(y.dtype)
    return [y.detach(), *torch.autograd.grad((y * weights).sum(), tensors)]


def assert_same(tensors: list[Tensor], pattern) -> None:
    expected = step(in_double(*tensors), pattern)
    with dwconv.active():
        found = step(tensors, pattern)
    for got, wanted in zip(found, expected, strict=True):
        assert type(got) is Tensor
        torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tensors", ["nchw", "nhwc"], indirect=True)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_pattern_runs_as_one(tensors, pattern):
    assert_same(tensors, PATTERNS[pattern])
    assert kernels_that_ran() >= FUSED and ("fprop", "none") not in kernels_that_ran()


@pytest.mark.parametrize("other", OTHERS)
def test_whatever_else_is_done_is_right(tensors, other):
    assert_same(tensors, OTHERS[other])


def test_without_gradients(tensors):
    expected = PATTERNS["mamba"](convolved(*tensors)).detach()
    with torch.no_grad(), dwconv.active():
        y = PATTERNS["mamba"](convolved(*tensors))
    assert ("fprop", "silu") in kernels_that_ran() and not y.requires_grad
    torch.testing.assert_close(y, expected)


def test_what_was_first_used_without_gradients_has_them(tensors):
    with dwconv.active():
        z = convolved(*tensors)
        with torch.no_grad():
            z.sum()
        assert z.requires_grad and (z + 1).grad_fn is not None


def test_it_is_what_it_stands_for(tensors):
    with dwconv.active():
        z = convolved(*tensors)
    expected = convolved(*tensors)
    assert isinstance(z, Deferred) and z.shape == expected.shape and z.dtype is expected.dtype
    assert (z.dim(), z.size(2), z.requires_grad) == (3, LENGTH + TAPS - 1, True)
    torch.testing.assert_close(copy.deepcopy(z.detach()), expected.detach())
    torch.testing.assert_close(pickle.loads(pickle.dumps(z.detach())), expected.detach())
    assert "Deferred" not in repr(z)


def test_twice_differentiable(tensors):
    def second(given):
        y = PATTERNS["mamba"](convolved(*given))
        first = torch.autograd.grad(y.pow(2).sum(), given, create_graph=True)
        return torch.autograd.grad(sum(each.pow(2).sum() for each in first), given)

    expected = second(in_double(*tensors))
    with dwconv.active():
        found = second(tensors)
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-3, atol=1e-3)


class Mixer(nn.Module):
    """Calls its layer, as models outside of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv1d = nn.Conv1d(CHANNELS, CHANNELS, TAPS, padding=TAPS - 1, groups=CHANNELS)
        self.act = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.conv1d(x)[..., : x.shape[-1]])


def test_a_converted_layer_waits_too(tensors):
    plain, converted = Mixer(), dwconv.convert(Mixer())
    for model in (plain, converted):
        model(tensors[0]).pow(2).sum().backward()
    assert kernels_that_ran() >= FUSED
    for ours, theirs in zip(converted.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-4)


def test_checkpointing_and_compiling(tensors):
    converted = dwconv.convert(Mixer())
    expected = converted(tensors[0]).detach()
    y = torch.utils.checkpoint.checkpoint(converted, tensors[0], use_reentrant=False)
    torch.testing.assert_close(y, expected)
    y.sum().backward()
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(converted, backend="aot_eager", fullgraph=True)(tensors[0]), expected)


def test_fx_traces_a_converted_layer(tensors):
    converted = dwconv.convert(nn.Sequential(Mixer().conv1d))
    traced = torch.fx.symbolic_trace(converted)
    assert any(node.target is dwconv.conv1d for node in traced.graph.nodes)
    torch.testing.assert_close(traced(tensors[0]), converted(tensors[0]) + 0)


@pytest.mark.parametrize(("changed", "waits"), [({}, True), ({"stride": 2}, False), ({"padding": 2}, False),
                                                ({"dilation": 2}, False)])  # fmt: skip
def test_other_calls_do_not_wait(tensors, changed, waits):
    with dwconv.active():
        z = F.conv1d(*tensors, **{"padding": TAPS - 1, "groups": CHANNELS} | changed)
    assert isinstance(z, Deferred) is waits


def test_autocast(logs, tensors):
    plant_all(logs, problem_of(dtype="bfloat16"))
    dwconv.reset()
    x, weight, bias = inputs_of(problem_of(), torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16), dwconv.active():
        z = F.conv1d(x, weight.unsqueeze(1), bias, padding=TAPS - 1, groups=CHANNELS)
        y = PATTERNS["mamba"](z)
        added = z + 1
    assert z.dtype is y.dtype is added.dtype is torch.bfloat16 and kernels_that_ran() >= {("fprop", "silu")}
    y.sum().backward()
    assert x.grad.dtype is torch.float32


def test_the_report_lists_what_runs(tensors):
    converted = dwconv.convert(Mixer())
    for _ in range(3):
        converted(tensors[0]).sum().backward()
    found = dwconv.report(converted, tensors[0].detach())
    listed = {(row.problem.epilogue, tuple(each.pass_ for each in row.passes)) for row in found.rows}
    assert listed == {("silu", ("fprop",)), ("silu_gradient", ("fprop",)), ("none", ("wgrad",))}
    assert "silu_gradient" in str(found)
