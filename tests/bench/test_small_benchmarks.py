"""Benchmarks with few tests each: of the search, of models' coverage, and of untuned layers."""

from __future__ import annotations

import argparse
import json

import pytest
import torch
from torch import nn

import dwconv
from bench import coverage, first_steps, search
from bench.__main__ import main
from bench.cases import Layer
from bench.untuned import draws, summary
from dwconv.problems.layer_files import shipped_networks
from dwconv.problems.workload import PASSES

TINY = (Layer(network="Tiny", batch=1, channels=16, size=8, kernel=3),)


def test_when_the_minutes_are_over_what_is_left_is_said(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(search, "CPU_LAYERS", TINY)
    monkeypatch.setattr(search, "with_limits", lambda target: target)
    assert main(["search", "--minutes", "0", "--logs", str(tmp_path), "--out", str(tmp_path)]) == 0
    assert "time is up, 3 passes are left" in capsys.readouterr().out
    (written,) = tmp_path.glob("search-nhwc-*.json")
    assert json.loads(written.read_text())["rows"] == []


@pytest.mark.slow
@pytest.mark.usefixtures("short_ranking", "brief_timing")
def test_two_searches_are_compared(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(search, "CPU_LAYERS", TINY)
    monkeypatch.setattr(search, "with_limits", lambda target: target)
    options = ["--trials", "2", "--random", "3", "--only", "wgrad", "--logs", str(tmp_path), "--out", str(tmp_path)]
    assert main(["search", *options]) == 0
    assert sorted("random" in path.name for path in tmp_path.glob("*.jsonl")) == [False, True]
    (written,) = tmp_path.glob("search-nhwc-*.json")
    (row,) = json.loads(written.read_text())["rows"]
    assert row["pass"] == "wgrad" and row["ratio"] == row["us"][0] / row["us"][1]
    assert row["trials"] == [2, 3]


# -- well-known models whose depthwise layers all run on dwconv --------------------------------------------------------


SOME = (
    "timm:mobilenetv3_small_100", "timm:tf_efficientnet_lite0", "timm:convnext_atto", "timm:lcnet_050",
    "timm:mixnet_s", "timm:repvit_m0_9", "torchvision:mobilenet_v2", "torchvision:shufflenet_v2_x0_5",
    "transformers:mobilenet_v1", "transformers:mamba", "transformers:mamba2", "transformers:lfm2",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SOME)
def test_all_depthwise_layers_of_a_model_run_on_dwconv(name, logs):
    pytest.importorskip(name.partition(":")[0])
    (model,) = (each for each in coverage.MODELS if each.name == name)
    found = coverage.cover(model)
    assert found.depthwise > 0 and found.converted == found.run == found.depthwise and not found.missed
    assert found.equal


class Bypassing(nn.Module):
    """Its second layer is not called; its weight is used, once by PyTorch's function, once by a copy of that."""

    def __init__(self):
        super().__init__()
        self.called = nn.Conv1d(4, 4, 3, groups=4)
        self.used = nn.Conv1d(4, 4, 3, groups=4)

    def forward(self, x):
        return nn.functional.conv1d(self.called(x), self.used.weight, groups=4)


@pytest.mark.filterwarnings("ignore:.* run on PyTorch's own op")
def test_calls_are_distinguished(monkeypatch, logs):
    monkeypatch.setattr(coverage.Model, "make", lambda self: Bypassing())
    monkeypatch.setattr(coverage.Model, "example", lambda self: torch.randn(2, 4, 16))
    found = coverage.cover(coverage.Model(name="made up"))
    assert (found.depthwise, found.converted, found.run, found.functional) == (2, 2, 2, 1)
    assert found.equal and found.missed == 0
    monkeypatch.setattr(dwconv, "convert", lambda model, functional=None: model)
    left = coverage.cover(coverage.Model(name="made up"))
    assert (left.converted, left.functional) == (0, 0)


def test_a_model_that_fails_costs_no_other(monkeypatch, capsys, tmp_path, logs):
    def cover(model):
        if model.name == "bad":
            raise RuntimeError("no such model\nsecond line")
        return coverage.Coverage(model=model.name, depthwise=1, converted=1, run=1, functional=0, missed=0, equal=True)

    monkeypatch.setattr(coverage, "MODELS", (coverage.Model(name="bad"), coverage.Model(name="good")))
    monkeypatch.setattr(coverage, "cover", cover)
    assert coverage.main(["--model", "bad"]) == 1
    assert capsys.readouterr().err == "bad: RuntimeError: no such model second line\n"
    assert coverage.main(["--model", "good"]) == 0
    assert "| `good` | 1 | 1 | 1 | 0 |" in capsys.readouterr().out


# -- untuned layers: what is drawn, and how rows are summed up ---------------------------------------------------------


NETWORKS = shipped_networks()


def test_the_same_seed_draws_the_same_passes():
    one, again = (draws(NETWORKS, count=40, seed=14) for _ in range(2))
    assert one == again != draws(NETWORKS, count=40, seed=15)
    assert one[:7] == draws(NETWORKS, count=7, seed=14)
    assert {draw.workload.pass_ for draw in one} == set(PASSES)
    assert {draw.workload.layout for draw in one} == {"nchw", "nhwc"}
    assert {draw.network for draw in one} <= set(NETWORKS)


def test_draws_have_sizes_that_no_network_has():
    drawn = [draw.workload for draw in draws(NETWORKS, count=60, seed=3)]
    assert all(size == 1 or size % 2 for workload in drawn for size in workload.input_size)
    assert any(workload.channels % 2 for workload in drawn)
    assert len({workload.batch for workload in drawn}) > 10
    shapes = {(layer.channels, layer.input_size) for layers in NETWORKS.values() for layer in layers}
    assert not any((workload.channels, workload.input_size) in shapes for workload in drawn)


def row(*, predicted_us: float, race_us: float, runs: str = "dwconv") -> dict[str, object]:
    return {
        "pytorch_us": 200.0, "search_us": 100.0, "predicted_us": predicted_us, "race_us": race_us,
        "runs": {"predicted": runs, "race": "dwconv"},
    }  # fmt: skip


def test_speeds_are_shares_of_what_the_search_found():
    lines = summary([row(predicted_us=125.0, race_us=100.0), row(predicted_us=80.0, race_us=100.0)]).splitlines()
    predicted = next(line for line in lines if line.startswith("predicted, its configurations"))
    raced = next(line for line in lines if line.startswith("race, its configurations"))
    assert float(predicted.split()[3]) == pytest.approx(1.0)
    assert "1.60" in predicted and "(0 below)" in predicted
    assert float(raced.split()[3]) == pytest.approx(1.0)


def test_what_is_not_claimed_runs_on_pytorch():
    lines = summary([row(predicted_us=400.0, race_us=250.0, runs="pytorch")]).splitlines()
    runs = next(line for line in lines if line.startswith("predicted, what runs"))
    assert float(runs.split()[3]) == pytest.approx(0.5)
    raced = next(line for line in lines if line.startswith("race, its configurations"))
    assert "0.80" in raced and "(1 below)" in raced


@pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning")
def test_first_steps_are_held_against_plain_ones(monkeypatch):
    model, (x, *_) = first_steps.SmallLayers(), [torch.randn(1, 3, 48, 48)]
    assert len(model.layers) == 177 and model(x).shape == (177,)
    tiny = lambda: (torch.nn.Conv2d(4, 4, 3, groups=4), [torch.randn(1, 4, 9, 9)] * 3)  # noqa: E731
    monkeypatch.setattr(first_steps, "CASES", {"tiny": tiny})
    row = first_steps._measured(argparse.Namespace(case="tiny", seconds=0))
    assert row["kernels"] == 0 and row["times"] > 0 and row["then_times"] > 0
    row = {"process": "first", **row, "first_s": 1.0, "plain_first_s": 0.5, "times": 1.02, "then_times": 1.0}
    assert not any(first_steps.misses(row).values()) and "MISSED" not in first_steps.line(row)
    row |= {"first_s": 3.6, "times": 1.04, "then_times": 1.1}
    assert first_steps.line(row).endswith("; MISSED: the first step, 40 steps, the steps with kernels")
