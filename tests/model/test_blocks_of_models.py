"""Blocks of well-known models: seen, run as one, and what the model learns is the same."""

from __future__ import annotations

import copy

import pytest
import torch

import dwconv
from dwconv.call.call_plan import plans
from dwconv.model.by_name import load_model
from dwconv.tuner import model_race
from tests.planted_records import plant

MODELS = {
    "timm:mobilenetv2_050": (17, "bn+relu6,bn+relu6"),
    "timm:tf_efficientnet_b0": (16, "bn@0.001+silu,bn@0.001+silu"),
    "torchvision:mobilenet_v3_small": (11, "bn@0.001+hardswish,bn@0.001+hardswish"),
    "transformers:mobilenet_v2": (17, "none,bn@0.001+relu6"),  # which pads x by itself, before the convolution
}
"""How many depthwise layers each has, and how most of their blocks are made."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_learns_the_same(name, logs, monkeypatch):
    pytest.importorskip(name.partition(":")[0])
    monkeypatch.setattr(model_race, "race_for", lambda *args, **kwargs: [])
    torch.manual_seed(0)
    model = load_model(name).to(memory_format=torch.channels_last).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    x = torch.randn(4, 3, 64, 64).to(memory_format=torch.channels_last)
    exact = copy.deepcopy(model).double()
    dwconv.convert(model, x, blocks=True)
    seen = [block for block in dwconv.summary(model).discovery.blocks if block.problem]
    depthwise, usual = MODELS[name]
    assert sum(block.calls for block in seen) == depthwise
    assert usual in {str(block.problem.block) for block in seen}
    some = [block for block in seen if str(block.problem.block) == usual][:3]
    plant(logs / "cpu.jsonl", [block.problem.workload("forward") for block in some])
    dwconv.reset()
    for each, given in ((model, x), (exact, x.double())):
        output = each(given)
        output = output if isinstance(output, torch.Tensor) else output.last_hidden_state
        output.square().sum().backward()
    ran = [plan.tally.counted_ops() for plan in plans() if plan.problem.block]
    assert sum(ops["forward"] for ops in ran) == sum(ops["backward"] for ops in ran) >= len(some)
    for got, wanted in zip(model.buffers(), exact.buffers(), strict=True):
        torch.testing.assert_close(got.double(), wanted.double(), rtol=1e-3, atol=1e-3)
    found = torch.cat([parameter.grad.double().flatten() for parameter in model.parameters()])
    right = torch.cat([parameter.grad.flatten() for parameter in exact.parameters()])
    assert (found - right).norm() < 0.01 * right.norm()
