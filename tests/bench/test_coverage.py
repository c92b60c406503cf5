"""``bench coverage``: well-known models, what of them runs on dwconv, and what is said of those that fail."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dwconv
from bench import coverage

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
    assert found["depthwise"] > 0 and found["converted"] == found["run"] == found["depthwise"]
    assert found["equal"] and not found["missed"]


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
    assert found == {
        "model": "made up", "depthwise": 2, "converted": 2, "run": 2, "functional": 1, "missed": 0, "equal": True,
    }  # fmt: skip
    monkeypatch.setattr(dwconv, "convert", lambda model, functional=None: model)
    left = coverage.cover(coverage.Model(name="made up"))
    assert (left["converted"], left["functional"]) == (0, 0)


def test_a_model_that_fails_costs_no_other(monkeypatch, capsys, tmp_path, logs):
    def cover(model):
        if model.name == "bad":
            raise RuntimeError("no such model\nsecond line")
        return {"model": model.name, "depthwise": 1, "equal": True}

    monkeypatch.setattr(coverage, "MODELS", (coverage.Model(name="bad"), coverage.Model(name="good")))
    monkeypatch.setattr(coverage, "cover", cover)
    assert coverage.command(["--model", "bad"]) == 1
    assert capsys.readouterr().err == "bad: RuntimeError: no such model second line\n"
    assert coverage.command(["--model", "good"]) == 0
    assert '"model": "good", "depthwise": 1' in capsys.readouterr().out
