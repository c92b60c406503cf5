"""A LayerNorm after a convolution, of a view with the channels last, trains as one with it where that is faster; in
every other case the numbers and gradients are the same."""

from __future__ import annotations

import copy
from functools import lru_cache

import pytest
import torch
from torch import Tensor, nn

import dwconv
from dwconv.call import blocks
from dwconv.call.awaited_block import started
from dwconv.call.place import Place
from dwconv.discovery import discover
from dwconv.problems.block import Block
from tests.call.block_parts import CHANNELS, SIZE, Packed, assert_same, drawn, learnt, passes_that_ran, step
from tests.native_needed import both_ways, needs_native
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.filterwarnings("ignore:.* on PyTorch's own op")  # the convolution alone is not planted

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

    def __init__(self, *, bias: bool = True, waits: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.place = _place(bias)
        self.conv = dwconv.nn.DepthwiseConv2d(CHANNELS, 3, padding=1, bias=bias)
        self.norm = nn.LayerNorm(CHANNELS, eps=1e-6)
        self.linear = nn.Linear(CHANNELS, 4)
        self.waits, self.between = waits, [nn.Identity(), nn.Identity()]
        for parameter in self.norm.parameters():
            nn.init.normal_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        waits = self.waits and self.conv.weight.dtype is not torch.float64
        x = started(x, self.place) if waits else x
        y = self.between[0](self.conv(x))
        return self.linear(self.norm(self.between[1](y.permute(0, 2, 3, 1))))


@lru_cache
def _place(bias: bool) -> Place:
    return Place(
        block=Block.parse(BLOCK),
        weight_shape=(CHANNELS, 1, 3, 3),
        stride=(1, 1),
        padding=(1, 1, 1, 1),
        dilation=(1, 1),
        bias=bias,
    )


@pytest.fixture
def tuned(logs):
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=BLOCK, bias=bias) for bias in (False, True)])


@pytest.fixture(params=["", "learnt"])
def planted(tuned, request):
    """Whether Python follows such blocks for the first time, or C++ does, as far as they are the same."""
    if not request.param:
        yield
        return
    needs_native()
    with learnt(Net(), Net(bias=False)):
        yield


@both_ways
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
def test_it_runs_as_one(planted, bias, way, monkeypatch):
    """Past Python where C++ can."""
    if way == "compiled":
        for name in ("_block_forward", "_block_backward", "block_forward", "block_backward"):
            monkeypatch.setattr(blocks, name, None)
    model = Net(bias=bias)
    assert_same(model, drawn())
    assert passes_that_ran() == {"forward": 2, "backward": 2}


@both_ways
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
def test_saved_tensors_may_come_back_lying_otherwise(planted, bias, way):
    model, x = Net(bias=bias), drawn()
    expected = step(copy.deepcopy(model), x)
    with torch.autograd.graph.saved_tensors_hooks(Packed, lambda packed: packed.copy):
        z = model(x * 1)
    weights = torch.linspace(-1, 1, z.numel(), dtype=torch.float64).view(z.shape).to(z.dtype)
    found = torch.autograd.grad((z * weights).sum(), [x, *model.parameters()])
    for got, wanted in zip(found, expected[1:], strict=True):
        torch.testing.assert_close(got, wanted)


@both_ways
def test_a_bias_of_another_type_or_class_gives_the_same(planted, way):
    """Of which C++ knows nothing: Python runs it, as one or not."""

    class Own(nn.Parameter):
        pass

    model = Net()
    model.conv.bias = Own(model.conv.bias.detach())
    assert_same(model, drawn())


def test_what_runs_one_by_one_gives_the_same(logs):
    """Without a record nothing is one; a bias that was not expected, and a missing one, neither."""
    assert_same(Net(), drawn())
    assert passes_that_ran() == {"forward": 0, "backward": 0}
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=BLOCK, bias=True)])
    dwconv.reset()
    model = Net()
    model.conv.bias = None
    assert_same(model, drawn())
    assert passes_that_ran() == {"forward": 0, "backward": 0}


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class Kept(nn.Module):
    """Looks at what it is given, and hands it on."""

    def forward(self, x: Tensor) -> Tensor:
        self.sum = float(x.detach().sum())
        return x


class Turned(nn.Module):
    """Rows and columns exchanged twice."""

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 1, 3).contiguous().permute(0, 2, 1, 3)


@pytest.mark.parametrize("between", [Doubled, Kept, Turned])
@pytest.mark.parametrize("place", [0, 1], ids=["after the convolution", "after the view"])
def test_whatever_comes_between_gives_the_same(planted, between, place):
    model = Net()
    model.between[place] = between()
    assert_same(model, drawn())
    assert passes_that_ran() == {"forward": 0, "backward": 0}


@pytest.mark.parametrize("change", ["eps", "no bias", "the last axes", "no gradient"])
def test_another_norm_gives_the_same(planted, change):
    model = Net()
    if change == "eps":
        model.norm.eps = 1e-2
    elif change == "no bias":
        model.norm.bias = None
    elif change == "the last axes":
        model.norm = nn.LayerNorm((SIZE[3], CHANNELS))
    if change == "no gradient":
        with torch.no_grad():
            found, expected = model(drawn()), copy.deepcopy(model).double()(drawn().double())
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
    else:
        assert_same(model, drawn())
    assert passes_that_ran() == {"forward": 0, "backward": 0}


@both_ways
def test_second_derivatives(planted, way):
    model, x = Net(), drawn()
    exact = copy.deepcopy(model).double()
    found = []
    for net, given in ((model, x), (exact, x.detach().double().requires_grad_())):
        (first,) = torch.autograd.grad(net(given * 1).square().sum(), given, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), given)[0].double())
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-2)
    assert passes_that_ran()["forward"] == 1


def test_under_autocast_it_is_not_one(planted):
    """A LayerNorm then gives float32, whatever it is given."""
    model, x = Net(), drawn()
    with torch.autocast("cpu", torch.bfloat16):
        found = model(x)
    plain = copy.deepcopy(model)
    plain.waits = False
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(plain(x), found)
    assert passes_that_ran()["forward"] == 0


NETS = {
    "timm's LayerNorm2d": lambda: nn.Sequential(
        nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS), LayerNorm2d(CHANNELS, eps=1e-6)
    ),
    "torchvision's": lambda: nn.Sequential(
        nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS), Permute(), nn.LayerNorm(CHANNELS, eps=1e-6)
    ),
    "timm's ConvNeXt": lambda: Net(waits=False),
}  # fmt: skip


@pytest.mark.parametrize("make", NETS.values(), ids=NETS)
def test_a_model_shows_it_and_converts(tuned, make):
    model, x = make().to(memory_format=torch.channels_last), drawn()
    (block,) = discover(model, x).blocks
    assert str(block.problem.block) == BLOCK and block.problem.bias
    dwconv.convert(model, x, blocks=True, seconds=0)
    assert f"block {BLOCK} from" in str(dwconv.summary(model)) and "runs as one" in str(dwconv.summary(model))
    assert_same_as_plain(model, make().to(memory_format=torch.channels_last), x)
    assert passes_that_ran()["forward"] == 1


def assert_same_as_plain(model: nn.Module, plain: nn.Module, x: Tensor) -> None:
    plain.load_state_dict(model.state_dict())
    for found, expected in zip(step(model, x), step(plain.double(), x.detach().double().requires_grad_()), strict=True):
        torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=2e-4)


def test_a_result_that_is_used_twice_ends_it(planted):
    class Shared(Net):
        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x).permute(0, 2, 3, 1)
            return self.norm(y) + y

    (block,) = discover(Shared(waits=False).to(memory_format=torch.channels_last), drawn()).blocks
    assert block.problem is None and "used 2 times" in block.why_not


def test_compiled_it_is_one_function(tuned):
    torch._dynamo.reset()
    model, x = NETS["timm's ConvNeXt"](), drawn()
    dwconv.convert(model, x, blocks=True, seconds=0)
    found = step(torch.compile(model, dynamic=False), x)
    assert passes_that_ran() == {"forward": 1, "backward": 1}
    for got, expected in zip(
        found, step(copy.deepcopy(model).double(), x.detach().double().requires_grad_()), strict=True
    ):
        torch.testing.assert_close(got.double(), expected, rtol=1e-3, atol=2e-4)
