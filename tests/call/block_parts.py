"""A block as modules, trained a step or in evaluation, and the same in double, in which nothing is one."""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import dwconv
from dwconv.call.awaited_block import may_wait, started
from dwconv.call.call_plan import plans
from dwconv.call.place import Place
from dwconv.problems.block import Block
from dwconv.problems.workload import BLOCK_PASSES, EVAL_PASSES, Pass

CHANNELS, SIZE = 8, (2, 8, 9, 7)
WHOLE = "bn+relu6,bn+hardswish"
MODES = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
"""In which a block in evaluation may be one."""
ACTIVATIONS = {"relu": nn.ReLU, "relu6": nn.ReLU6, "hardswish": nn.Hardswish, "silu": nn.SiLU, "identity": nn.Identity}


class Parts(nn.Module):
    """The modules of a block, one after the other; ``between`` is done with what each of them gives."""

    def __init__(self, block: str, *, inplace: bool = False, bias: bool = False, stride: int = 1) -> None:
        super().__init__()
        given = {"inplace": True} if inplace else {}
        torch.manual_seed(0)
        self.place = _place(block, stride)
        parsed = self.place.block
        self.bn1 = nn.BatchNorm2d(CHANNELS) if parsed.norm1 else nn.Identity()
        self.act1 = ACTIVATIONS[parsed.act1](**given)
        self.conv = dwconv.nn.DepthwiseConv2d(CHANNELS, 3, stride=stride, padding=1, bias=bias)
        self.bn2 = nn.BatchNorm2d(CHANNELS) if parsed.norm2 else nn.Identity()
        self.act2 = ACTIVATIONS[parsed.act2](**given)
        learnt = [parameter for norm in (self.bn1, self.bn2) for parameter in norm.parameters()]
        for parameter in (*learnt, *([self.conv.bias] if bias else [])):
            nn.init.normal_(parameter)
        self.between = {}

    def forward(self, x: Tensor) -> Tensor:
        x = started(x, self.place) if may_wait(self) and self.conv.weight.dtype is not torch.float64 else x
        for name in ("bn1", "act1", "conv", "bn2", "act2"):
            x = getattr(self, name)(x)
            if name in self.between:
                x = self.between[name](x)
        return x


@lru_cache
def _place(block: str, stride: int) -> Place:
    """Alike layers of a model share one."""
    return Place(
        block=Block.parse(block),
        weight_shape=(CHANNELS, 1, 3, 3),
        stride=(stride, stride),
        padding=(1, 1, 1, 1),
        dilation=(1, 1),
    )


def in_evaluation(block: str = WHOLE, *, kind: type[Parts] = Parts, **options: bool) -> Parts:
    """With statistics that differ from channel to channel."""
    model = kind(block, **options).eval()
    for norm in (model.bn1, model.bn2):
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2.0)
    return model


def drawn(shape: tuple[int, ...] = SIZE) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(shape).to(memory_format=torch.channels_last).requires_grad_()


def step(model: nn.Module, x: Tensor) -> list[Tensor]:
    """The result, every gradient, and every buffer after a step. What the model reads is no leaf, as in models."""
    z = model(x * 1)
    weights = torch.linspace(-1, 1, z.numel(), dtype=torch.float64).view(z.shape).to(z.dtype)
    parameters = [each for each in model.parameters() if each.requires_grad]
    found = torch.autograd.grad((z * weights).sum(), [x, *parameters])
    return [z.detach(), *found, *(buffer.clone() for buffer in model.buffers())]


def assert_same(model: nn.Module, x: Tensor, *, steps: int = 2) -> None:
    """The same as in double, in which nothing waits."""
    exact = copy.deepcopy(model).double()
    for _ in range(steps):
        found, expected = step(model, x), step(exact, x.detach().double().requires_grad_())
        for got, wanted in zip(found, expected, strict=True):
            assert type(got) is Tensor
            torch.testing.assert_close(got.double(), wanted.double(), rtol=1e-3, atol=2e-4)


def assert_infers_the_same(
    model: Parts, mode: Callable[[], Any] = torch.no_grad, *, rtol: float = 1e-4, x: Tensor | None = None
) -> None:
    """The same as in double, in which nothing waits."""
    x = drawn().detach() if x is None else x
    exact = copy.deepcopy(model).double()
    with mode():
        found, expected = model(x * 1), exact(x.double())
    assert type(found) is Tensor and found.is_inference() == expected.is_inference() and not found.requires_grad
    torch.testing.assert_close(found.double(), expected, rtol=rtol, atol=rtol)
    for got, wanted in zip(model.buffers(), exact.buffers(), strict=True):
        torch.testing.assert_close(got.double(), wanted.double())


def passes_that_ran() -> dict[str, int]:
    """Of blocks, by op, besides those of ``learnt``."""
    return {pass_: _counted(pass_) - _to_learn[pass_] for pass_ in ("forward", "backward")}


def blocks_in_evaluation() -> int:
    """That ran as one, besides those of ``learnt``."""
    return _counted("inference") - _to_learn["inference"]


def _counted(pass_: Pass) -> int:
    return sum(plan.tally.counted_ops()[pass_] for plan in plans() if plan.problem.block)


@contextlib.contextmanager
def learnt(*models: nn.Module) -> Iterator[None]:
    """C++ follows the blocks of such models: each was trained a step, or was run in evaluation."""
    for model in models:
        if model.training:
            step(model, drawn())
        for mode in () if model.training else MODES.values():
            with mode():
                model(drawn().detach())
    _to_learn.update({pass_: _counted(pass_) for pass_ in (*BLOCK_PASSES, *EVAL_PASSES)})
    try:
        yield
    finally:
        _to_learn.clear()


_to_learn = Counter[str]()


class Packed:
    """What hooks of saved tensors make of one: a copy that lies otherwise."""

    def __init__(self, tensor: Tensor) -> None:
        self.copy = torch.empty(tensor.shape[::-1]).permute(*reversed(range(tensor.dim()))).copy_(tensor.detach())


# -- what code may do between the parts --------------------------------------------------------------------------------


class Doubled(torch.autograd.Function):
    """Code that asks no function of PyTorch's."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def kept_and_overwritten(h: Tensor) -> Tensor:
    F.relu6(h, inplace=True)
    return h


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
    "part of it": ("act1", lambda h: torch.cat([h[:, :4], h[:, 4:]], 1)),
    "clamped": ("bn1", lambda h: F.hardtanh(h, 0.0, 3.0)),
    "a view": ("act1", lambda h: h.flatten(2).unflatten(2, SIZE[2:])),
}
"""After which part, and what."""
