"""A block as modules, in the forward pass that was traced, trained a step or in evaluation, and the same in double, in
which nothing is one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

import dwconv
from dwconv.call import block_ops, guarded_forward
from dwconv.call.call_plan import plans
from dwconv.call.frozen_forward import plain_class
from dwconv.discovery.find_blocks import FoundBlocks
from dwconv.model.converted_classes import traced_class
from dwconv.problems.block import Block, Norm
from dwconv.problems.problem import memory_format
from dwconv.problems.workload import Pass

CHANNELS, SIZE = 8, (2, 8, 9, 7)
SIZE_3D = (2, 8, 5, 6, 7)
WHOLE = "bn+relu6,bn+hardswish"
MODES = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
"""In which a block in evaluation may be one."""
ACTIVATIONS = {"relu": nn.ReLU, "relu6": nn.ReLU6, "hardswish": nn.Hardswish, "silu": nn.SiLU, "identity": nn.Identity}
PARTS = ("bn1", "act1", "conv", "bn2", "act2")


class Between(nn.Module):
    """Code between two parts: ``do`` of its class."""

    def forward(self, h: Tensor) -> Tensor:
        return self.do(h)

    @staticmethod
    def of(do: Callable[[Tensor], Tensor]) -> nn.Module:
        return type("Between", (Between,), {"do": staticmethod(do)})()


class Parts(nn.Module):
    """The modules of a block, one after the other, traced as soon as they are there. ``between``: what is done with
    what a part gives."""

    def __init__(
        self,
        block: str,
        *,
        inplace: bool = False,
        bias: bool = False,
        stride: int = 1,
        between: Mapping[str, Callable[[Tensor], Tensor]] = {},
        training: bool = True,
        axes: int = 2,
    ) -> None:
        super().__init__()
        given = {"inplace": True} if inplace else {}
        torch.manual_seed(0)
        parsed = Block.parse(block)
        self.bn1 = norm_of(parsed.norm1, axes)
        self.act1 = ACTIVATIONS[parsed.act1](**given)
        convolution = dwconv.nn.DepthwiseConv3d if axes == 3 else dwconv.nn.DepthwiseConv2d
        self.conv = convolution(CHANNELS, 3, stride=stride, padding=1, bias=bias)
        self.bn2 = norm_of(parsed.norm2, axes)
        self.act2 = ACTIVATIONS[parsed.act2](**given)
        learnt = [parameter for norm in (self.bn1, self.bn2) for parameter in norm.parameters()]
        for parameter in (*learnt, *([self.conv.bias] if bias else [])):
            nn.init.normal_(parameter)
        for name in PARTS:
            setattr(self, f"after_{name}", Between.of(between[name]) if name in between else nn.Identity())
        self.train(training)
        for norm, kind in ((self.bn1, parsed.norm1), (self.bn2, parsed.norm2)):
            if kind and kind.is_frozen:
                freeze(norm)
        trace(self)

    def forward(self, x: Tensor) -> Tensor:
        for name in ("bn1", "act1", "conv", "bn2", "act2"):
            x = getattr(self, f"after_{name}")(getattr(self, name)(x))
        return x


def norm_of(kind: Norm | None, axes: int) -> nn.Module:
    if kind is None:
        return nn.Identity()
    if kind.is_of_images:
        return nn.GroupNorm(CHANNELS, CHANNELS, kind.eps)
    return (nn.BatchNorm3d if axes == 3 else nn.BatchNorm2d)(CHANNELS, kind.eps)


class FrozenNorm(nn.Module):
    """As libraries of models have it: four buffers, a scale and a shift."""

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        generator = torch.Generator().manual_seed(4)
        for name in ("weight", "bias", "running_mean", "running_var"):
            self.register_buffer(name, torch.rand(channels, generator=generator) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight.reshape(1, -1, 1, 1) * (self.running_var.reshape(1, -1, 1, 1) + self.eps).rsqrt()
        return x * scale + (self.bias.reshape(1, -1, 1, 1) - self.running_mean.reshape(1, -1, 1, 1) * scale)


def freeze(norm: _BatchNorm) -> None:
    """With statistics that differ from channel to channel."""
    norm.eval()
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2.0)


def trace(model: nn.Module) -> None:
    """The model runs its block as one where that was measured to be faster, as after ``convert``, without a race."""
    model.__class__ = plain_class(type(model))
    traces = FoundBlocks(model, ["conv"]).traces(["conv"])
    if traces:
        model.__class__ = traced_class(type(model), traces[""])


def in_double(model: nn.Module) -> nn.Module:
    """A copy in double, in which nothing is one, as its own code runs it."""
    exact = copy.deepcopy(model).double()
    exact.__class__ = plain_class(type(exact))
    return exact


def written(model: Parts) -> dwconv.nn.DepthwiseBlock:
    """Its parts as the block that dwconv has."""
    parts = {name: getattr(model, name) for name in PARTS}
    return dwconv.nn.DepthwiseBlock(**{n: None if type(each) is nn.Identity else each for n, each in parts.items()})


def python_runs_no_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on C++ has to."""
    monkeypatch.setattr(guarded_forward.BoundBlock, "_as_one", None)
    for name in ("_block_forward", "_block_backward", "block_forward", "block_backward", "inference"):
        monkeypatch.setattr(block_ops, name, None)


def in_evaluation(block: str = WHOLE, *, kind: type[Parts] = Parts, **options: Any) -> Parts:
    """With statistics that differ from channel to channel."""
    model = kind(block, training=False, **options)
    for norm in (model.bn1, model.bn2):
        if isinstance(norm, _BatchNorm):
            freeze(norm)
    return model


def drawn(shape: tuple[int, ...] = SIZE) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(shape).to(memory_format=memory_format("nhwc", axes=len(shape) - 2)).requires_grad_()


def step(model: nn.Module, x: Tensor) -> list[Tensor]:
    """The result, every gradient, and every buffer after a step. What the model reads is no leaf, as in models."""
    z = model(x * 1)
    weights = torch.linspace(-1, 1, z.numel(), dtype=torch.float64).view(z.shape).to(z.dtype)
    parameters = [each for each in model.parameters() if each.requires_grad]
    found = torch.autograd.grad((z * weights).sum(), [x, *parameters])
    return [z.detach(), *found, *(buffer.clone() for buffer in model.buffers())]


def assert_same(model: nn.Module, x: Tensor, *, exact: nn.Module | None = None, steps: int = 2) -> None:
    """Steps give what they give in double, where nothing is one. C++ learns in the first what it runs in the next."""
    exact = in_double(model) if exact is None else exact
    for _ in range(steps):
        found, expected = step(model, x), step(exact, x.detach().double().requires_grad_())
        for got, wanted in zip(found, expected, strict=True):
            assert type(got) is Tensor
            torch.testing.assert_close(got.double(), wanted.double(), rtol=1e-3, atol=2e-4)


def assert_infers_the_same(
    model: nn.Module, mode: Callable[[], Any] = torch.no_grad, *, rtol: float = 1e-4, x: Tensor | None = None
) -> None:
    """``model`` gives what it gives in double, where nothing is one."""
    x = drawn().detach() if x is None else x
    exact = in_double(model)
    for _ in range(2):
        with mode():
            found, expected = model(x * 1), exact(x.double())
        assert type(found) is Tensor and found.is_inference() == expected.is_inference() and not found.requires_grad
        torch.testing.assert_close(found.double(), expected, rtol=rtol, atol=rtol)
    for got, wanted in zip(model.buffers(), exact.buffers(), strict=True):
        torch.testing.assert_close(got.double(), wanted.double())


def ran() -> tuple[int, int]:
    """How many forward and backward passes of blocks in training ran as one."""
    return _counted("forward"), _counted("backward")


def blocks_in_evaluation() -> int:
    """That ran as one."""
    return _counted("inference")


def _counted(pass_: Pass) -> int:
    return sum(plan.tally.counted_ops()[pass_] for plan in plans() if plan.problem.block)


def assert_same_where_saved_tensors_lie_otherwise(model: nn.Module) -> None:
    """As hooks of saved tensors may give them back."""

    def packed(tensor: Tensor) -> Tensor:
        return torch.empty(tensor.shape[::-1]).permute(*reversed(range(tensor.dim()))).copy_(tensor.detach())

    x = drawn()
    expected = step(copy.deepcopy(model), x)
    for _ in range(2):
        with torch.autograd.graph.saved_tensors_hooks(packed, lambda tensor: tensor):
            z = model(x * 1)
        weights = torch.linspace(-1, 1, z.numel(), dtype=torch.float64).view(z.shape).to(z.dtype)
        found = torch.autograd.grad((z * weights).sum(), [x, *model.parameters()])
        for got, wanted in zip(found, expected[1:], strict=False):
            torch.testing.assert_close(got, wanted)


# -- what code may do between the parts --------------------------------------------------------------------------------


class Doubled(torch.autograd.Function):
    """Code whose gradient is another than PyTorch would find."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


def kept_and_overwritten(h: Tensor) -> Tensor:
    F.relu6(h, inplace=True)
    return h


def without_gradient(h: Tensor) -> Tensor:
    with torch.no_grad():
        scale = h.mean() + 2
    return h * scale


def scaled_where_recorded(h: Tensor) -> Tensor:
    return h * 2 if torch.is_grad_enabled() else h


def scaled_if_a_tensor(h: Tensor) -> Tensor:
    return h * 2 if isinstance(h, Tensor) else h


OTHERS = {
    "another activation": ("bn1", F.elu),
    "a function": ("act1", lambda h: h + 1),
    "twice": ("act1", lambda h: h + F.relu(h)),
    "a custom function": ("act1", Doubled.apply),
    "a custom function of a norm": ("bn1", Doubled.apply),
    "a custom function of sums": ("conv", Doubled.apply),
    "a custom function of the second norm": ("bn2", Doubled.apply),
    "an operator": ("bn1", torch.ops.aten.relu.default),
    "in place": ("conv", lambda y: y.mul_(2)),
    "in place, by its old name": ("bn1", kept_and_overwritten),
    "in place, of the last norm": ("bn2", lambda y: (F.hardswish(y, inplace=True), y)[1]),
    "twice, of the last norm": ("bn2", lambda y: (F.hardswish(y), y)[1]),
    "dropped out": ("act1", lambda h: F.dropout(h, 0.0)),
    "looked at": ("conv", lambda y: (y.detach().mean(), y)[1]),
    "looked at by Python": ("conv", lambda y: y * (1 if float(y.detach().mean()) < 9 else 2)),
    "part of it": ("act1", lambda h: torch.cat([h[:, :4], h[:, 4:]], 1)),
    "clamped": ("bn1", lambda h: F.hardtanh(h, 0.0, 3.0)),
    "a view": ("act1", lambda h: h.flatten(2).unflatten(2, (9, 7))),
    "not recorded": ("conv", without_gradient),
    "another where it is recorded": ("conv", scaled_where_recorded),
    "another by its class": ("conv", scaled_if_a_tensor),
}
"""After which part, and what."""
