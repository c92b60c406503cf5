"""SiLU after a causal convolution is seen in a step, however the model writes it, and raced with it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import dwconv
from dwconv.discovery import discover

CHANNELS, TAPS, LENGTH = 8, 4, 19


class Mixer(nn.Module):
    """Makes of x what ``way`` says, with the weight of a layer of its own."""

    def __init__(self, way) -> None:
        super().__init__()
        self.conv1d = nn.Conv1d(CHANNELS, CHANNELS, TAPS, padding=TAPS - 1, groups=CHANNELS)
        self.way = way

    def forward(self, x: Tensor) -> Tensor:
        return self.way(self, x)


def function(mixer: Mixer, x: Tensor) -> Tensor:
    return F.conv1d(x, mixer.conv1d.weight, mixer.conv1d.bias, padding=TAPS - 1, groups=CHANNELS)


ACTIVATED = {
    "a layer": lambda mixer, x: nn.SiLU()(mixer.conv1d(x)[..., :LENGTH]),
    "a function": lambda mixer, x: F.silu(function(mixer, x)[:, :, :LENGTH]),
    "transposed": lambda mixer, x: F.silu(function(mixer, x)[..., :LENGTH].transpose(1, 2)),
    "causal_conv1d": lambda mixer, x: dwconv.causal_conv1d(
        x, mixer.conv1d.weight.squeeze(1), mixer.conv1d.bias, activation="silu"
    ),
}
OTHERS = {
    "no activation": lambda mixer, x: function(mixer, x)[..., :LENGTH],
    "another one": lambda mixer, x: F.gelu(function(mixer, x)[..., :LENGTH]),
    "another slice": lambda mixer, x: F.silu(function(mixer, x)[..., 1 : LENGTH + 1]),
    "no slice": lambda mixer, x: F.silu(function(mixer, x)),
    "of something else": lambda mixer, x: F.silu(function(mixer, x)[..., :LENGTH] + 1),
    "causal_conv1d": lambda mixer, x: dwconv.causal_conv1d(x, mixer.conv1d.weight.squeeze(1)),
}


def layer_of(way, *, trains: bool = True):
    (layer,) = discover(Mixer(way), torch.randn(2, CHANNELS, LENGTH), trains=trains).layers
    return layer


@pytest.mark.parametrize("way", ACTIVATED)
def test_it_is_seen(way):
    layer = layer_of(ACTIVATED[way])
    assert layer.silu_next and layer.name == "conv1d" and layer.passes == ("fprop", "wgrad")
    found = {(problem.epilogue, problem.padding[2:], passes) for problem, passes in layer.problems()}
    causal = {("silu", (3, 0), ("fprop",)), ("silu_gradient", (3, 0), ("fprop",))}
    assert found == causal | {("none", (padding, after), ("fprop", "wgrad")) for padding, after in ((3, 0), (3, 3))}


@pytest.mark.parametrize("way", OTHERS)
def test_nothing_else_is_taken_for_it(way):
    layer = layer_of(OTHERS[way])
    assert not layer.silu_next and layer.problems() == [(layer.problem, layer.passes)]


def test_without_a_backward_pass():
    layer = layer_of(ACTIVATED["a function"], trains=False)
    assert [(problem.epilogue, passes) for problem, passes in layer.problems()] == [
        ("none", ("fprop",)),
        ("silu", ("fprop",)),
    ]


def test_layers_that_are_listed_say_so(tmp_path):
    listed = dwconv.layers(Mixer(ACTIVATED["a function"]), torch.randn(2, CHANNELS, LENGTH))
    listed.save(tmp_path / "layers.json")
    from dwconv.problems.layer_files import read_layers

    assert [layer.epilogue for layer in read_layers(tmp_path / "layers.json", network="Mixer")] == [
        "none",
        "silu",
        "silu_gradient",
        "none",
    ]


@pytest.mark.filterwarnings("ignore:.* on PyTorch's own op")
@pytest.mark.usefixtures("brief_timing")
def test_converting_with_an_example_races_them(logs):
    model = dwconv.convert(Mixer(ACTIVATED["a function"]), torch.randn(2, CHANNELS, LENGTH), seconds=600)
    told = dwconv.summary(model)
    (race,) = told.races
    ended = [workload for end in (race.won, race.lost, race.inconclusive, race.failed) for workload in end]
    assert {workload.epilogue for workload in ended} == {"none", "silu", "silu_gradient"}, str(race)
    assert not race.failed
    assert "SiLU runs in the kernel where that is faster: conv1d" in str(told)
