"""bench train: what is compared, and how a step is taken apart."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from models import TinyNet
from torch import nn

import dwconv
from bench import race, train
from bench.networks import explain_layers
from bench.step_profile import profiles, ratio_at_most, table
from dwconv.measure.timing import Lap

pytestmark = [
    pytest.mark.usefixtures("threads_as_asked"),
    pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning"),
]


def laps(lost=(0.0, 0.0, 0.0), **seconds):
    """The last of ``seconds`` lose most."""
    return {name: [Lap(seconds=s, lost=share) for s, share in zip(taken, lost, strict=True)]
            for name, taken in seconds.items()}  # fmt: skip


def test_ratios_are_of_steps_taken_in_turn():
    found = race.summary(laps(plain=[2.0, 4.0, 60.0], converted=[1.0, 2.0, 10.0]))
    assert found["ratio"]["median"] == 2.0 and found["ratio"]["quartiles"] == [2.0, 4.0]
    assert found["median_ms"] == {"plain": 4000.0, "converted": 2000.0}
    assert found["contention"] == 0


def test_steps_that_other_work_disturbed_do_not_count_unless_most_are():
    times = {"plain": [2.0, 4.0, 60.0], "converted": [1.0, 2.0, 10.0]}
    one_disturbed, most_disturbed = (race.summary(laps(lost, **times)) for lost in ((0, 0, 0.5), (0, 0.4, 0.5)))
    assert one_disturbed["median_ms"]["plain"] == 3000.0 and one_disturbed["contention"] == 0
    assert most_disturbed["median_ms"]["plain"] == 4000.0 and most_disturbed["contention"] == 0.3


def test_a_race_says_where_layers_ran_and_how_far_the_losses_are_apart(logs, tmp_path, capsys):
    out = tmp_path / "figures.json"
    options = ["--model", "models:TinyNet", "--batch", "2", "--image", "12", "--steps", "3", "--warmup", "2"]
    assert race.main([*options, "--profile", "--out", str(out)]) == 0
    figures = json.loads(out.read_text())
    assert figures["layers"] == {f"{pass_} pytorch": 3 for pass_ in ("fprop", "dgrad", "wgrad")}
    assert figures["loss_difference"]["converted"] == 0.0  # nothing is tuned: both run the same ops
    assert figures["steps"] == 3
    assert figures["ratio"]["at_most"] == ratio_at_most(figures["profile_ms"]["plain"]) > 1
    row = {"network": "TinyNet", "goal": 1.0, "allocator": "memory kept", **figures}
    assert "TinyNet" in train._line(row)
    assert "3 wgrad pytorch" in train._where([row, row])


def test_the_allocators_differ_in_nothing_else(logs, monkeypatch):
    monkeypatch.setenv("MALLOC_TOP_PAD_", "1")
    kept, usual = (train._environment(allocator, logs / "log.jsonl") for allocator in train.ALLOCATORS)
    assert {name for name in kept.keys() | usual.keys() if kept.get(name) != usual.get(name)} == set(
        train.settings.ALLOCATOR_ENVIRONMENT
    )
    assert usual["DWCONV_TUNING_LOGS"] == str(logs / "log.jsonl") and "MALLOC_TOP_PAD_" not in usual
    assert train._environment("memory kept", None)["DWCONV_TUNING_LOGS"] == str(logs), "as this process reads them"


def test_depthwise_layers_are_told_from_the_others():
    """One depthwise and one pointwise layer: each is found, and all of a step is accounted for."""
    model = nn.Sequential(nn.Conv2d(3, 16, 1), nn.Conv2d(16, 16, 5, padding=2, groups=16), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(image, labels):
        loss = model(image).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    found = profiles({"plain": step}, torch.randn(2, 3, 24, 24), torch.zeros(2), count=2)["plain"]
    for kind in ("depthwise fprop", "depthwise backward", "pointwise, dense", "activation", "optimizer"):
        assert found[kind] > 0, found
    assert sum(taken for kind, taken in found.items() if kind != "step") == pytest.approx(found["step"])
    assert table({"plain": found, "converted": found}).splitlines()[-1].startswith("  step ")


def test_what_can_be_won_at_most_is_what_the_depthwise_layers_take():
    profile = {"depthwise fprop": 10.0, "depthwise backward": 15.0, "pointwise, dense": 70.0, "step": 100.0}
    assert ratio_at_most(profile) == 100 / 75
    assert ratio_at_most({"pointwise, dense": 100.0, "step": 100.0}) == 1


@pytest.mark.slow
def test_the_profiler_writes_nothing_between_the_figures():
    program = (
        "import torch\n"
        "with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]): torch.ones(3) + 1\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], env=train._environment("glibc as it is", None),
                           capture_output=True, text=True, check=True)  # fmt: skip
    assert (ended.stdout, ended.stderr) == ("", "")


def test_layers_are_explained_without_running_the_model_for_real(logs):
    model = TinyNet()
    dwconv.convert(model)
    layers = explain_layers(model, torch.randn(2, 3, 12, 12))
    assert [layer.problem.weight_shape for layer in layers] == [(8, 1, 3, 3), (16, 1, 5, 5), (16, 1, 3, 3)]
    assert not any(module._forward_pre_hooks for module in model.modules())
