"""The costs of a model's pieces: bytes by hand, times against the clock."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dwconv.errors import CannotBeCut, DwconvWarning
from dwconv.parallel.planning import cost_of_layers
from dwconv.parallel.planning.cost_of_layers import layer_costs
from dwconv.parallel.planning.pieces import pieces
from dwconv.records.record import Measurement
from tests.parallel.small_models import SmallResNet

FEW_S = 0.05


US = {"forward": 10.0, "dgrad": 20.0, "backward": 50.0, "split": 57.0}


def _made_up(*, step_takes: float = 1.0, contention: float = 0.0):
    """A clock on which every pass takes as many microseconds as above; the whole step ``step_takes`` times as long as
    all of them. The calls really run."""

    def timed(calls, *, clock, effort):
        for call in calls.values():
            call()
        us = {name: US[name.partition(" ")[0]] for name in calls if not name.startswith("whole")}
        whole = {name: each for name, each in us.items() if not name.startswith("split")}
        backward = {name.partition(" ")[2]: each for name, each in whole.items() if not name.startswith("forward")}
        forward_us = sum(each for name, each in us.items() if name.startswith("forward"))
        us["whole forward"] = step_takes * forward_us
        us["whole step"] = step_takes * (forward_us + sum(backward.values()))
        return {
            name: Measurement(median_us=each, spread_us=0.0, rounds=3, contention=contention)
            for name, each in us.items()
        }

    return timed


@pytest.fixture
def made_up_times(monkeypatch):
    monkeypatch.setattr(cost_of_layers, "time_in_turns", _made_up())


def _plain() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5))


def test_bytes_by_hand(made_up_times):
    conv, relu, flatten, linear = layer_costs(_plain(), torch.randn(2, 3, 6, 6))
    image, activation = 2 * 3 * 36 * 4, 2 * 4 * 36 * 4
    assert [each.output_bytes for each in (conv, relu, flatten, linear)] == [activation] * 3 + [2 * 5 * 4]
    assert [each.parameter_bytes for each in (conv, relu, flatten, linear)] == [
        3 * 4 * 9 * 4, 0, 0, (4 * 36 * 5 + 5) * 4
    ]  # fmt: skip
    assert conv.saved_bytes == image
    assert relu.saved_bytes == activation  # its result, which the linear layer saves too: counted once
    assert flatten.saved_bytes == 0
    assert linear.saved_bytes == 0


def test_what_is_frozen_has_no_wgrad(made_up_times):
    model = _plain()
    model[0].requires_grad_(False)
    frozen, _, _, linear = layer_costs(model, torch.randn(2, 3, 6, 6))
    assert (frozen.dgrad_us, frozen.wgrad_us, frozen.parameter_bytes) == (0, 0, 0)
    assert linear.wgrad_us == 30


def test_names_and_inputs_that_are_no_numbers(made_up_times):
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 2))
    embedding, linear = layer_costs(pieces(model, torch.zeros(3, dtype=torch.long)), torch.zeros(3, dtype=torch.long))
    assert (embedding.name, linear.name) == ("0", "1")
    assert (embedding.dgrad_us, embedding.wgrad_us) == (0, 50)
    assert linear.dgrad_us == 20


@pytest.mark.filterwarnings("ignore:other work took")
def test_measured_for_real_and_the_model_is_as_before():
    model, images = SmallResNet(), torch.randn(2, 3, 16, 16)
    cut = pieces(model, images)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    layers = layer_costs(cut, images, seconds=FEW_S)
    assert [layer.name for layer in layers] == list(cut._modules)
    assert all(layer.forward_us > 0 for layer in layers)
    assert all(layer.dgrad_us > 0 for layer in layers[1:])
    assert sum(layer.parameter_bytes for layer in layers) == sum(4 * each.numel() for each in model.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(each.grad is None for each in model.parameters())


@pytest.mark.parametrize("step_takes", [1.0, 1.5])
def test_wgrad_is_what_both_take_longer_and_what_a_step_takes_longer_is_shared_out(monkeypatch, step_takes):
    """The data needs no gradient. What two passes apart take longer than one is known where both are needed."""
    monkeypatch.setattr(cost_of_layers, "time_in_turns", _made_up(step_takes=step_takes))
    conv, relu, _, linear = layer_costs(_plain(), torch.randn(2, 3, 6, 6))
    for found, us in ((conv, (10, 0, 50, 0)), (relu, (10, 20, 0, 0)), (linear, (10, 20, 30, 7))):
        expected = [step_takes * each for each in us]
        assert [found.forward_us, found.dgrad_us, found.wgrad_us, found.split_us] == pytest.approx(expected)


def test_passes_apart_give_the_gradients_of_one_pass(monkeypatch):
    """Those of norms, too, whose backward pass then runs twice; and a tensor that two pieces share stays whole."""
    model, images, found = SmallResNet(), torch.randn(2, 3, 16, 16), {}
    cut = pieces(model, images)

    def timed(calls, *, clock, effort):
        torch.manual_seed(0)
        for name in calls:
            kind, _, piece = name.partition(" ")
            if kind in ("backward", "split") and f"split {piece}" in calls:
                cut.zero_grad()
                calls[name]()
                module = cut.get_submodule(piece)
                found[name] = [each.grad.clone() for each in module.parameters()]
        return _made_up()(calls, clock=clock, effort=effort)

    monkeypatch.setattr(cost_of_layers, "time_in_turns", timed)
    monkeypatch.setattr(torch, "randn_like", torch.ones_like)
    layer_costs(cut, images)
    splits = [name.partition(" ")[2] for name in found if name.startswith("split")]
    assert len(splits) > 2
    for piece in splits:
        torch.testing.assert_close(found[f"split {piece}"], found[f"backward {piece}"])


def test_gradients_are_added_to_what_is_there_as_in_a_step(monkeypatch):
    """Of parameters alone, in the passes of pieces and of the whole step."""
    model, images = _plain(), torch.randn(2, 3, 6, 6)
    linear, added = model[3], []

    def timed(calls, *, clock, effort):
        for name in ("backward 3", "whole step"):
            calls[name]()
            before = linear.weight.grad.clone()
            calls[name]()
            added.append(not torch.equal(linear.weight.grad, before))
        return _made_up()(calls, clock=clock, effort=effort)

    monkeypatch.setattr(cost_of_layers, "time_in_turns", timed)
    layer_costs(model, images)
    assert added == [True, True] and linear.weight.grad is None


def test_times_from_a_busy_machine_are_said_to_be(monkeypatch):
    monkeypatch.setattr(cost_of_layers, "time_in_turns", _made_up(contention=0.4))
    with pytest.warns(DwconvWarning, match="other work took 40% of the time while layers were timed"):
        layer_costs(_plain(), torch.randn(2, 3, 6, 6))


def test_a_piece_that_does_not_run_is_named():
    with pytest.raises(CannotBeCut, match="1 does not run on 2×3: RuntimeError: "):
        layer_costs(nn.Sequential(nn.Linear(3, 4), nn.Linear(3, 4)), torch.randn(2, 3))
