"""A forward pass is traced only where Python decides nothing in it that can change unseen; the summary says what."""

from __future__ import annotations

import copy
import cProfile
import pstats
import random
import re
import time
from time import time as now

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch import is_grad_enabled as learns

import dwconv
from dwconv.call.call_plan import plans
from dwconv.discovery import discover
from dwconv.discovery.python_decisions import Decided
from dwconv.tuner import model_race
from tests.model.test_subclasses import Conv2dSame
from tests.planted_records import plant

pytestmark = pytest.mark.filterwarnings("ignore:.* on PyTorch's own op")
CHANNELS, SIZE = 8, (2, 8, 9, 7)
FLAG = False
is_a = isinstance
TABLE = {"scale": 1.0}


class Net(nn.Module):
    """A block, and what a case does with it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.bn1, self.act = nn.BatchNorm2d(CHANNELS), nn.ReLU6()
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False)
        self.bn2 = nn.BatchNorm2d(CHANNELS)
        self.flag, self.order, self.table, self.steps = False, [0, 2, 3, 1], {"scale": 1.0}, 0

    def block(self, x: Tensor) -> Tensor:
        return self.bn2(self.conv(self.act(self.bn1(x))))


def net(forward, **members) -> nn.Module:
    model = type("Net", (Net,), {"forward": forward})()
    for name, member in members.items():
        setattr(model, name, member)
    return model.to(memory_format=torch.channels_last)


def writes(self: Net, x: Tensor) -> Tensor:
    self.steps += 1
    return self.block(x)


def caught(self: Net, x: Tensor) -> Tensor:
    try:
        times = 2 if x.shape[0] > 1 else 3
    except Exception:  # noqa: BLE001  also the tracer's
        times = 1
    return self.block(x) * times


def matched(self: Net, x: Tensor) -> Tensor:
    match x.shape:
        case (_, _, _, _):
            return self.block(x) * 2
    return self.block(x)


def closure():
    scale = [1.0]
    return lambda self, x: self.block(x) * scale[0]


LEFT = {
    "random": (lambda self, x: self.block(x) if random.random() < 2 else x, "draws numbers at random|reads random"),
    "numpy": (lambda self, x: self.block(x) * float(numpy.random.rand() < 2), "draws numbers at random|reads numpy"),
    "torch.rand": (lambda self, x: self.block(x) if float(torch.rand(1)) < 2 else x, "draws numbers at random"),
    "a global": (lambda self, x: x if FLAG else self.block(x), "reads FLAG, which may change"),
    "a global dictionary": (lambda self, x: self.block(x) * TABLE["scale"], "reads TABLE, which may change"),
    "an attribute that it writes": (writes, "writes steps in its forward pass"),
    "a closure": (closure(), "reads scale, which may change"),
    "a dictionary": (lambda self, x: self.block(x) * self.table["scale"], "reads table, which may change"),
    "the time": (lambda self, x: self.block(x) if time.time() > 0 else x, "reads time, which may change"),
    "an attribute by its name": (
        lambda self, x: (setattr(self, "steps", self.steps + 1), self.block(x))[1], "calls setattr in its forward pass",
    ),
    "what it prints": (  # or what a stream of Python's own reads, as that of a test runner
        lambda self, x: (print(end=""), self.block(x))[1], "calls print in its forward pass|reads sys",
    ),
    "the time by another name": (lambda self, x: self.block(x) if now() > 0 else x, "calls time in its forward pass"),
    "a mode by another name": (lambda self, x: self.block(x) * (1 + learns()), "decides by is_grad_enabled"),
    "a type by another name": (lambda self, x: self.block(x) * (1 + is_a(x, Tensor)), "decides by isinstance"),
    "torch.is_tensor": (lambda self, x: self.block(x) * (1 + torch.is_tensor(x)), "decides by is_tensor"),
    "which object it is": (
        lambda self, x: self.block(x) * (1 + (x.dtype is torch.float32)), "decides by whether two objects are one",
    ),
    "an error": (caught, "catches errors in its forward pass"),
    "a pattern": (matched, "decides by the kind of what it matches"),
    "what computed it": (lambda self, x: self.block(x) * (1 + (x.grad_fn is None)), "reads grad_fn of a tensor"),
    "an attribute of a tensor": (
        lambda self, x: self.block(x) * (1 + (getattr(x, "mask", None) is None)), "reads mask of a tensor",
    ),
    "a table of types": (lambda self, x: self.block(x) * {torch.float32: 2}.get(x.dtype, 1), "looks up what depends"),
    "a table of sizes": (lambda self, x: self.block(x) * {9: 2}.get(x.shape[2], 1), "looks up what depends"),
    "a branch on sizes": (lambda self, x: self.block(x) if x.shape[2] > 2 else x, "cannot be traced"),
    "a branch on numbers": (lambda self, x: self.block(x) if x.sum() > -1e9 else x, "cannot be traced"),
}  # fmt: skip


class Rows(nn.Module):
    """Axes in an order that an attribute says."""

    def __init__(self) -> None:
        super().__init__()
        self.order = [0, 2, 3, 1]

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(self.order).permute(0, 3, 1, 2)


class DropPath(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if not self.training else x * x.new_ones((x.shape[0],) + (1,) * (x.ndim - 1))


class Squeeze(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.narrow = nn.Conv2d(CHANNELS, CHANNELS, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.narrow(x.mean((2, 3), keepdim=True)))


class BatchNormAct2d(nn.BatchNorm2d):
    """As timm has it."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.drop, self.act = nn.Identity(), nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        torch._assert(x.ndim == 4, f"expected 4D input (got {x.ndim}D input)")
        factor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        trains = self.training or (self.running_mean is None and self.running_var is None)
        known = (self.running_mean, self.running_var) if not self.training or self.track_running_stats else (None, None)
        x = F.batch_norm(x, *known, self.weight, self.bias, trains, factor, self.eps)
        return self.act(self.drop(x))


class LayerNorm2d(nn.LayerNorm):
    """As torchvision has it."""

    def forward(self, x: Tensor) -> Tensor:
        x = F.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


TRACED = {
    "flags": lambda: net(lambda self, x: x if self.flag else self.block(x)),
    "drop path": lambda: net(lambda self, x: x + self.path(self.block(x)), path=DropPath()),
    "squeeze and excite": lambda: net(lambda self, x: self.squeeze(self.block(x)), squeeze=Squeeze()),
    "a residual": lambda: net(lambda self, x: x + self.block(x)),
    "padded by size": lambda: net(lambda self, x: self.block(x), conv=Conv2dSame(8, 8, 3, groups=8, bias=False)),
    "sequences": lambda: net(
        lambda self, x: self.rest(self.start(x)), start=nn.Sequential(nn.Sequential(nn.BatchNorm2d(8)), nn.ReLU()),
        rest=nn.Sequential(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)), nn.BatchNorm2d(8)),
    ),
    "a list": lambda: net(lambda self, x: self.rows(self.block(x)), rows=Rows()),
    "timm's norm": lambda: net(
        lambda self, x: self.block(x), bn1=BatchNormAct2d(8), bn2=BatchNormAct2d(8), act=nn.Identity()
    ),
    "a LayerNorm": lambda: net(lambda self, x: self.norm(self.conv(x)), norm=LayerNorm2d(8)),
}  # fmt: skip


def learnt(model: nn.Module) -> list[Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    dtype, results = next(model.parameters()).dtype, []
    for _ in range(2):
        torch.manual_seed(1)
        x = torch.randn(SIZE).to(dtype, memory_format=torch.channels_last)
        optimizer.zero_grad()
        results.append(model(x))
        results[-1].square().mean().backward()
        optimizer.step()
    return [*results, *model.state_dict().values()]


@pytest.mark.parametrize("case", TRACED)
def test_it_is_traced(logs, monkeypatch, case):
    """Both steps run the block as one, and learn the same."""
    model = TRACED[case]()
    monkeypatch.setattr(model_race, "race_for", lambda *args, **kwargs: [])
    exact = copy.deepcopy(model).double()
    dwconv.convert(model, torch.randn(SIZE).to(memory_format=torch.channels_last), blocks=True)
    blocks = [each.problem for each in dwconv.summary(model).discovery.blocks if each.problem]
    plant(logs / "cpu.jsonl", [problem.workload("forward") for problem in blocks])
    dwconv.reset()
    for got, wanted in zip(learnt(model), learnt(exact), strict=True):
        torch.testing.assert_close(got.double(), wanted.double(), rtol=1e-3, atol=2e-4)
    assert sum(plan.tally.counted_ops()["forward"] for plan in plans() if plan.problem.block) == 2


@pytest.mark.parametrize("case", LEFT)
def test_what_is_decided_unseen_stays(case):
    forward, why = LEFT[case]
    (block,) = discover(net(forward), torch.randn(SIZE).to(memory_format=torch.channels_last)).blocks
    assert block.problem is None and re.search(why, block.why_not), block.why_not


class Slow(nn.BatchNorm2d):
    """Its momentum is in its code."""

    def forward(self, x: Tensor) -> Tensor:
        known = self.running_mean, self.running_var, self.weight, self.bias
        return F.batch_norm(x, *known, self.training, 0.7, self.eps)


def test_a_norm_with_a_momentum_in_its_code_is_no_part():
    model = net(lambda self, x: self.block(x), bn1=Slow(CHANNELS))
    (block,) = discover(model, torch.randn(SIZE).to(memory_format=torch.channels_last)).blocks
    assert str(block.problem.block) == "none,bn"


def test_a_profiler_in_c_goes_on():
    def called_later():
        pass

    profiler = cProfile.Profile()
    profiler.enable()
    try:
        with Decided(set()):
            pass
        called_later()
    finally:
        profiler.disable()
    assert "called_later" in {function for _, _, function in pstats.Stats(profiler).stats}
