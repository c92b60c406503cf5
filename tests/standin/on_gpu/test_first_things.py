"""What a user of a GPU tries first, beside plain training: mixed precision, tensors that lie anywhere, compiling."""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import dwconv
from bench.launched import kernels_of, passes_of
from dwconv import native
from dwconv.call.call_plan import plans
from dwconv.dispatch.decide import decide
from dwconv.problems.workload import DType, Workload
from tests.standin.on_gpu.conftest import IS_STAND_IN
from tests.standin.on_gpu.kernels import Launches, plant
from tests.standin.on_gpu.models import WORKLOADS, data, loss_of, network

LAYER = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)


@pytest.fixture(autouse=True)
def tuned(logs: Path) -> Iterator[None]:
    dtypes: tuple[DType, ...] = ("float32", "bfloat16")
    plant(logs / "log.jsonl", [dataclasses.replace(each, dtype=dtype) for each in WORKLOADS for dtype in dtypes])
    yield


def test_autocast_runs_kernels_of_its_type_on_weights_of_float32() -> None:
    model, x = network(), data(0)
    ours = dwconv.convert(copy.deepcopy(model).to("cuda"))

    def step(of: nn.Module, given: torch.Tensor) -> torch.Tensor:
        with torch.autocast(given.device.type, torch.bfloat16):
            loss = loss_of(of, given)
        loss.backward()
        return loss.detach()

    step(ours, x.to("cuda"))  # kernels are checked at their first use
    ours.zero_grad()
    launches = Launches()
    assert passes_of(lambda: step(ours, x.to("cuda")), on_gpu=True) == {"fprop": 2, "dgrad": 1, "wgrad": 2}
    if launches.seen is not None:
        assert all("-bfloat16-" in launch["workload"] for launch in launches.seen) and len(launches.seen) >= 5
    step(model, x)
    for own, others in zip(ours.parameters(), model.parameters(), strict=True):
        assert own.grad is not None and others.grad is not None and own.grad.dtype == torch.float32
        torch.testing.assert_close(own.grad.cpu(), others.grad, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("batch", [1, 3])
def test_tensors_that_begin_anywhere_are_convolved(batch: int) -> None:
    """The stand-in refuses an address that is not a multiple of 16 bytes; a GPU would read it wrongly, or fail."""
    x = data(0)[:batch]
    lies = torch.empty(x.numel() + 1, device="cuda")[1:].view(x.shape)
    lies.copy_(x)
    assert lies.data_ptr() % 16 == 4
    lies.requires_grad_()
    layer = dwconv.convert(copy.deepcopy(LAYER).to("cuda"))
    launches = Launches()
    y = layer(lies)
    y.square().sum().backward()
    assert launches.seen is None or len(launches.seen) >= 3
    wanted_x = x.clone().requires_grad_()
    wanted = copy.deepcopy(LAYER)(wanted_x)
    wanted.square().sum().backward()
    torch.testing.assert_close(y.detach().cpu(), wanted.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(lies.grad.cpu(), wanted_x.grad, rtol=1e-4, atol=1e-4)  # type: ignore[union-attr]


@pytest.mark.parametrize("how", [{"backend": "aot_eager"}, {"mode": "reduce-overhead"}], ids=["eager", "graphs"])
def test_a_compiled_model_runs_the_kernels(how: dict[str, str]) -> None:
    if "mode" in how and (IS_STAND_IN or importlib.util.find_spec("triton") is None):
        pytest.skip("Inductor's graphs need PyTorch's build for CUDA, and Triton")
    x = data(0).to("cuda")
    ours = dwconv.convert(network().to("cuda"))
    loss_of(ours, x).backward()
    wanted = [copy.deepcopy(parameter.grad) for parameter in ours.parameters()]
    compiled = torch.compile(ours, **how)  # type: ignore[call-overload]

    def step() -> None:
        ours.zero_grad()
        loss_of(compiled, x).backward()

    for _ in range(3):
        step()
    for parameter, gradient in zip(ours.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-4)
    in_python = [dict(plan.tally.ops) for plan in plans()]
    launched = kernels_of(step, device="cuda")
    assert launched is not None and launched["main_kernel"] == 5
    assert native.module is None or [dict(plan.tally.ops) for plan in plans()] == in_python, "C++ runs the ops by now"


def test_what_has_too_many_elements_runs_on_pytorch() -> None:
    """Kernels count in 32 bits."""
    layer: Workload = WORKLOADS[0]
    many = layer.with_batch(2**31 // (layer.channels * layer.input_size[0] * layer.input_size[1]) + 1)
    assert decide(layer, torch.device("cuda")).provider == "dwconv"
    assert decide(many, torch.device("cuda")).provider == "pytorch"
