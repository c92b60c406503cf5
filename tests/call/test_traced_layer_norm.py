"""A LayerNorm after a convolution, of a view with the channels last, trains as one with it where that is faster; in
every other case the numbers and gradients are the same."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import dwconv
from dwconv.call import block_call
from dwconv.call.frozen_forward import plain_class
from dwconv.discovery import discover
from tests.call.block_checks import alone_is_not_planted, plant_block
from tests.call.block_parts import (
    CHANNELS,
    SIZE,
    Between,
    assert_same,
    assert_same_where_saved_tensors_lie_otherwise,
    drawn,
    in_double,
    python_runs_no_block,
    ran,
    step,
    trace,
)
from tests.native_needed import both_ways

pytestmark = alone_is_not_planted

BLOCK = "none,ln@1e-06"


class LayerNorm2d(nn.LayerNorm):
    """As timm's: what it gives lies as a convolution's result."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Permute(nn.Module):
    """As torchvision's."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.permute(x, [0, 2, 3, 1])


class Net(nn.Module):
    """A convolution, its LayerNorm, and a linear layer, as ConvNeXt has them. ``between``: done with what the
    convolution gives, and with its view."""

    def __init__(
        self, *, bias: bool = True, traces: bool = True, between: tuple[nn.Module | None, ...] = (None, None)
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = dwconv.nn.DepthwiseConv2d(CHANNELS, 3, padding=1, bias=bias)
        self.norm = nn.LayerNorm(CHANNELS, eps=1e-6)
        self.linear = nn.Linear(CHANNELS, 4)
        self.before, self.after = between
        for parameter in self.norm.parameters():
            nn.init.normal_(parameter)
        if traces:
            trace(self)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        y = (y if self.before is None else self.before(y)).permute(0, 2, 3, 1)
        return self.linear(self.norm(y if self.after is None else self.after(y)))


@pytest.fixture
def planted(logs):
    for bias in (False, True):
        plant_block(logs, BLOCK, bias=bias)


@both_ways
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
def test_it_runs_as_one(planted, bias, way, monkeypatch):
    """Past Python where C++ can."""
    model = Net(bias=bias)
    assert_same(model, drawn())
    if way == "compiled":
        python_runs_no_block(monkeypatch)
    step(model, drawn())
    assert ran() == (3, 3)


@both_ways
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
def test_saved_tensors_may_come_back_lying_otherwise(planted, bias, way):
    assert_same_where_saved_tensors_lie_otherwise(Net(bias=bias))


@both_ways
def test_a_bias_of_another_class_gives_the_same(planted, way):
    """Of which C++ knows nothing: Python runs it, as one or not."""
    model = Net()
    model.conv.bias = type("Own", (nn.Parameter,), {})(model.conv.bias.detach())
    assert_same(model, drawn())


@both_ways
@pytest.mark.parametrize("bias", [False, True], ids=["one is there now", "it is gone"])
def test_another_bias_than_was_traced_gives_the_same(logs, bias, way):
    plant_block(logs, BLOCK, bias=bias)
    model = Net(bias=bias)
    model.conv.bias = None if bias else nn.Parameter(torch.ones(CHANNELS))
    assert_same(model, drawn())
    assert ran() == (0, 0)


BETWEEN = {
    "doubled": lambda y: y * 2,
    "looked at": lambda y: (y.detach().sum(), y)[1],
    "turned": lambda y: y.permute(0, 2, 1, 3).contiguous().permute(0, 2, 1, 3),
}


@pytest.mark.parametrize("what", BETWEEN)
@pytest.mark.parametrize("place", [0, 1], ids=["after the convolution", "after the view"])
def test_whatever_comes_between_gives_the_same(planted, what, place):
    made = Between.of(BETWEEN[what])
    assert_same(Net(between=(made, None) if place == 0 else (None, made)), drawn())
    assert ran() == (0, 0)


CHANGES = {
    "eps": lambda model: setattr(model.norm, "eps", 1e-2),
    "no bias": lambda model: setattr(model.norm, "bias", None),
    "the last axes": lambda model: setattr(model, "norm", nn.LayerNorm((SIZE[3], CHANNELS))),
}


@both_ways
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("is_later", [False, True], ids=["before it runs", "between two steps"])
def test_another_norm_gives_the_same(planted, change, is_later, way):
    model = Net()
    if is_later:
        assert_same(model, drawn())
    CHANGES[change](model)
    assert_same(model, drawn())
    assert ran() == (2 * is_later, 2 * is_later)


def test_without_gradients_and_in_evaluation_it_is_right(planted):
    model = Net()
    exact = in_double(model)
    for each in (model, model.eval()):
        with torch.no_grad():
            torch.testing.assert_close(each(drawn()).double(), exact(drawn().double()), rtol=1e-4, atol=1e-4)
    assert ran() == (0, 0)


@both_ways
def test_second_derivatives(planted, way):
    model, x = Net(), drawn()
    exact, found = in_double(model), []
    for net, given in ((model, x), (exact, x.detach().double().requires_grad_())):
        (first,) = torch.autograd.grad(net(given * 1).square().sum(), given, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), given)[0].double())
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-2)
    assert ran()[0] == 1


@both_ways
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_under_autocast_it_is_one_where_x_has_the_type_of_autocast(logs, name, bias, way):
    """And gives what PyTorch's ops give; elsewhere these run. What a norm holds stays float32."""
    for each in ("float32", name):
        plant_block(logs, BLOCK, bias=bias, dtype=each)
    dtype = getattr(torch, name)
    model, x = Net(bias=bias), drawn().detach().to(dtype).requires_grad_()
    model.linear = nn.Identity()
    trace(model)
    plain, exact = copy.deepcopy(model), in_double(model)
    plain.__class__ = plain_class(type(plain))
    allowed = {"bfloat16": 3e-2, "float16": 4e-3}[name]
    for _ in range(2):
        with torch.autocast("cpu", dtype):
            found, z = step(model, x), plain(x)
        assert found[0].dtype is z.dtype and found[0].stride() == z.stride() and found[1].dtype is dtype
        for got, wanted in zip(found, step(exact, x.detach().double().requires_grad_()), strict=True):
            assert float((got.double() - wanted).norm()) <= allowed * float(wanted.norm()) + 2 * allowed
    assert ran() == (2, 2)
    with torch.autocast("cpu", dtype):
        assert torch.equal(plain(drawn()), model(drawn()))
    assert ran() == (2, 2)


def test_under_autocast_it_is_not_one_where_pytorchs_gives_float32(logs, monkeypatch):
    """As on a GPU."""
    plant_block(logs, BLOCK, bias=True, dtype="bfloat16")
    monkeypatch.setattr(block_call, "_keeps", lambda statistics, kind, dtype: False)
    with torch.autocast("cpu", torch.bfloat16):
        Net()(drawn().detach().bfloat16())
    assert ran() == (0, 0)


NETS = {
    "timm's LayerNorm2d": lambda: nn.Sequential(
        nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS), LayerNorm2d(CHANNELS, eps=1e-6)
    ),
    "torchvision's": lambda: nn.Sequential(
        nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS), Permute(), nn.LayerNorm(CHANNELS, eps=1e-6)
    ),
    "timm's ConvNeXt": lambda: Net(traces=False),
}


@pytest.mark.parametrize("make", NETS.values(), ids=NETS)
def test_a_model_shows_it_and_converts(planted, make):
    model, x = make().to(memory_format=torch.channels_last), drawn()
    (block,) = discover(model, x).blocks
    assert str(block.problem.block) == BLOCK and block.problem.bias
    dwconv.convert(model, x, blocks=True, seconds=0)
    assert f"block {BLOCK} from" in str(dwconv.summary(model)) and "runs as one" in str(dwconv.summary(model))
    assert_same(model, x)
    assert ran() == (2, 2)
