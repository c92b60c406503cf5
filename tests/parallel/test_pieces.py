"""A model in pieces computes what the model computes, with the model's own parameters."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import dwconv
from dwconv.errors import CannotBeCut
from dwconv.parallel.planning.pieces import pieces
from tests.models import TinyNet
from tests.parallel.small_models import SmallMobileNet, SmallResNet

IMAGES = torch.randn(4, 3, 12, 12, generator=torch.Generator().manual_seed(0))


def _names(cut: nn.Sequential) -> list[str]:
    return list(cut._modules)  # named_children leaves out what comes twice


def _plain() -> nn.Sequential:
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sequential(nn.ReLU(), nn.Conv2d(4, 4, 3))), nn.Flatten(), nn.Linear(256, 5)
    )


@pytest.mark.parametrize("make", [SmallResNet, SmallMobileNet, TinyNet, _plain], ids=lambda make: make.__name__)
def test_pieces_compute_what_the_model_does(make):
    model = make()
    twin = copy.deepcopy(model)
    cut = pieces(model, IMAGES)
    assert len(cut) >= 4
    assert {id(each) for each in cut.parameters()} == {id(each) for each in model.parameters()}
    assert {id(each) for each in cut.buffers()} == {id(each) for each in model.buffers()}
    assert all(map(torch.equal, model.state_dict().values(), twin.state_dict().values()))  # as it was
    outputs, expected = cut(IMAGES), twin(IMAGES)
    assert torch.equal(outputs, expected)
    outputs.square().sum().backward()
    expected.square().sum().backward()
    assert all(
        torch.equal(one.grad, other.grad) for one, other in zip(model.parameters(), twin.parameters(), strict=True)
    )
    assert all(torch.equal(one, other) for one, other in zip(model.buffers(), twin.buffers(), strict=True))


def test_a_sequence_in_a_sequence_falls_into_its_layers_and_one_that_is_called_twice_comes_twice():
    model = _plain()
    cut = pieces(model, IMAGES)
    assert _names(cut) == ["0_0", "0_1_0", "0_1_1", "1", "2"]
    assert list(cut) == [each for each in model.modules() if not list(each.children())]
    relu = nn.ReLU()
    cut = pieces(nn.Sequential(nn.Linear(3, 3), relu, nn.Linear(3, 3), relu), torch.randn(2, 3))
    assert _names(cut) == ["0", "1", "2", "3"]


def test_a_residual_block_is_one_piece_and_what_lies_between_blocks_is_cut():
    names = _names(pieces(SmallResNet(), IMAGES))
    assert names == ["conv1", "bn1", "layer1_0", "layer1_1", "layer2_0", "layer2_1", "avgpool", "flatten", "fc"]


def test_a_layer_that_changes_its_input_stays_with_the_one_before():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Identity(), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3))
    cut = pieces(model, IMAGES)
    assert _names(cut) == ["0", "3"]
    halfway = cut[0](IMAGES).detach().requires_grad_()
    cut[1](halfway).sum().backward()  # a stage's input is a leaf, which nothing may change
    assert halfway.grad is not None


def test_layers_that_share_a_parameter_are_one_piece():
    first, last = nn.Linear(6, 6), nn.Linear(6, 6)
    last.weight = first.weight
    cut = pieces(nn.Sequential(nn.Linear(3, 6), first, nn.ReLU(), last, nn.Linear(6, 2)), torch.randn(2, 3))
    assert _names(cut) == ["0", "1", "4"]


class Scaling(nn.Module):
    """Reads a parameter itself, and has arguments with defaults."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.full((3,), 2.0))

    def forward(self, x, mask=None, negative=True):
        y = self.linear(x) * self.scale
        return -y if negative and mask is None else y


def test_parameters_that_code_reads_are_shared_and_arguments_with_a_default_keep_it():
    model, x = Scaling(), torch.randn(2, 3)
    cut = pieces(model, x)
    assert len(cut) == 3
    assert torch.equal(cut(x), -2 * model.linear(x))
    with torch.no_grad():
        model.scale.fill_(0.0)
    assert not cut(x).any()


def test_what_two_results_carry_is_not_cut():
    class Halves(nn.Module):
        def forward(self, x):
            left, right = torch.chunk(x.tanh(), 2, dim=1)
            return left * right

    cut = pieces(Halves(), torch.randn(2, 4))
    assert _names(cut) == ["tanh", "chunk"]


def test_a_layer_with_hooks_is_called_as_a_whole():
    model = SmallResNet()
    calls = []
    model.layer1.register_forward_hook(lambda *_: calls.append("layer1"))
    cut = pieces(model, IMAGES)
    calls.clear()
    cut(IMAGES)
    assert calls == ["layer1"]
    assert "layer1" in _names(cut)


@pytest.mark.filterwarnings("ignore:.* run on PyTorch's own op")
def test_converted_layers_stay_converted():
    model = dwconv.convert(SmallMobileNet())
    cut = pieces(model, IMAGES)
    kinds = [type(each) for each in cut.modules()]
    assert dwconv.nn.DepthwiseConv2d in [base for kind in kinds for base in kind.__mro__]
    assert torch.equal(cut(IMAGES), model(IMAGES))


class CallsFunction(nn.Module):
    """A depthwise convolution without a layer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 1, 3, 3))
        self.before, self.after = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(nn.functional.conv2d(self.before(x), self.weight, padding=1, groups=8))


@pytest.mark.filterwarnings("ignore:.* run on PyTorch's own op")
def test_a_layer_whose_functions_are_converted_stays_whole():
    model = nn.Sequential(CallsFunction(), dwconv.convert(CallsFunction(), functional=True))
    assert list(pieces(model, IMAGES))[3:] == [model[1]]
    assert len(pieces(dwconv.revert(model), IMAGES)) == 6
    with pytest.raises(CannotBeCut, match=r"dwconv\.revert it, cut it, and dwconv\.convert its pieces"):
        pieces(dwconv.convert(CallsFunction(), functional=True), IMAGES)


# -- models that cannot be cut ---------------------------------------------------------------------------------------


class Branching(nn.Module):
    """Its code depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return y if y.sum() > 0 else -y


class AroundBranching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.branching, self.after = nn.Linear(3, 3), Branching(), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.branching(self.before(x)))


class Looping(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(x.shape[0]):
            x = x + 1
        return x


class Two(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, x + 2


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Branching(), ("Branching cannot be traced", "the value of gt", "test_pieces.py", "if y.sum() > 0")),
        (Looping(), ("Looping cannot be traced", "range(x.shape[0])", "test_pieces.py")),
        (Two(), ("Two takes 2 inputs (x, y)",)),
        (Pair(), ("Pair returns something other", "one tensor")),
        (nn.Sequential(nn.Linear(3, 3), Pair()), ("gives a tuple", "one tensor")),
    ],
    ids=["branch", "loop", "two inputs", "two outputs", "two outputs in the end"],
)
def test_one_line_says_why_a_model_cannot_be_cut(model, words):
    with pytest.raises(CannotBeCut) as raised:
        pieces(model, torch.randn(2, 3))
    message = str(raised.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


class Split(nn.Module):
    """Gives two tensors, which the next layer takes together."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.linear(x)
        return y[:, :2], y[:, 2:]


class Product(nn.Module):
    def forward(self, both: tuple[Tensor, Tensor]) -> Tensor:
        return both[0] * both[1]


def test_a_layer_that_gives_several_tensors_stays_with_the_one_that_takes_them():
    model, x = nn.Sequential(nn.Linear(3, 3), Split(), Product(), nn.Linear(2, 1)), torch.randn(2, 3)
    cut = pieces(model, x)
    assert _names(cut) == ["0", "1", "3"]
    assert torch.equal(cut(x), model(x))


@pytest.mark.parametrize("make", [AroundBranching, lambda: nn.Sequential(*AroundBranching().children())])
def test_a_layer_that_cannot_be_traced_stays_whole(make):
    cut = pieces(make(), torch.randn(2, 3))
    assert len(cut) == 3
    assert isinstance(cut[1], Branching)
