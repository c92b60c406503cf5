"""What C++ compares before it runs a call or a block that it knows: each guard alone keeps it from the wrong one."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import dwconv
from dwconv.call.call_plan import plans
from dwconv.call.frozen_forward import plain_class
from tests.call.block_checks import plant_block
from tests.call.block_parts import CHANNELS, SIZE, WHOLE, Parts, drawn, ran
from tests.native_needed import needs_native
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.filterwarnings("ignore:.* on PyTorch's own op")


@pytest.fixture
def model(logs) -> Parts:
    """Whose block C++ has learnt, and runs."""
    needs_native()
    plant_block(logs, WHOLE)
    made = Parts(WHOLE)
    for _ in range(2):
        z = made(drawn())
    assert ran()[0] == 2 and "CppNode" in z.grad_fn.name()
    return made


def test_what_was_forgotten_is_decided_anew(model, logs):
    (logs / "cpu.jsonl").unlink()
    dwconv.reset()
    z = model(drawn())
    assert "DwconvBlock" not in z.grad_fn.name() and not ran()[0]


@pytest.mark.parametrize("name", ["running_mean", "running_var"])
def test_a_norm_with_half_of_its_statistics_does_what_it_does_in_pytorch(model, name):
    setattr(model.bn2, name, None)
    plain = copy.deepcopy(model)
    plain.__class__ = plain_class(type(plain))
    results = []
    for each in (plain, model):
        try:
            results.append(each(drawn()).detach())
        except Exception as error:  # noqa: BLE001  whatever PyTorch raises
            results.append(type(error))
    assert results[0] is results[1] or torch.allclose(*results, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["momentum", "weight", "bias"])
def test_a_norm_that_has_lost_a_part_is_not_one(model, name):
    setattr(model.bn2, name, None)
    plain = copy.deepcopy(model)
    plain.__class__ = plain_class(type(plain))
    found, expected = model(drawn()), plain(drawn())
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    for ours, theirs in zip(model.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert ran()[0] == 2 + (name == "momentum")


@pytest.mark.parametrize("kind", ["layer", "block"])
def test_another_number_of_threads_is_another_call(model, logs, kind):
    plant(logs / "layer.jsonl", [workload_of(shape=SIZE)], baseline_us=1e6)
    dwconv.reset()
    layer = dwconv.convert(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False))
    run = layer if kind == "layer" else model
    usual = torch.get_num_threads()
    try:
        for threads in (usual, usual + 1):
            torch.set_num_threads(threads)
            for _ in range(2):
                run(drawn())
    finally:
        torch.set_num_threads(usual)
    made = {plan.target.threads for plan in plans() if bool(plan.problem.block) is (kind == "block")}
    assert made >= {usual, usual + 1}
