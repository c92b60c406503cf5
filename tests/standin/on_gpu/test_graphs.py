"""``dwconv.graphed``: steps as CUDA graphs are the same steps, with the kernels of dwconv in them."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import pickle
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dwconv
from dwconv.errors import CannotBeCaptured, DwconvWarning
from dwconv.model.graphed import GraphedForward
from dwconv.problems.block import Block
from dwconv.problems.problem import memory_format
from tests.standin.on_gpu.kernels import Launches, plant
from tests.standin.on_gpu.models import WORKLOADS, data, loss_of, network

BLOCK = dataclasses.replace(WORKLOADS[0], pass_="forward", layout="nhwc", block=Block.parse("bn+relu,bn+relu"))
LIES = memory_format("nhwc", axes=2)
ROUNDED = {"rtol": 2e-2, "atol": 1e-3}
"""PyTorch's convolutions in bfloat16 may sum in another order in a capture."""


@pytest.fixture(autouse=True)
def tuned(logs: Path) -> Iterator[None]:
    plant(logs / "log.jsonl", WORKLOADS)
    yield


def with_block() -> nn.Sequential:
    torch.manual_seed(0)
    convolution = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
    return nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU(), convolution, nn.BatchNorm2d(8), nn.ReLU())


def on_gpu(seed: int, **options: Any) -> Tensor:
    return data(seed).to("cuda", **options)


def graphed(model: nn.Module, *, seconds: float = 0) -> nn.Module:
    return dwconv.graphed(dwconv.convert(model.to("cuda")), on_gpu(0), seconds=seconds)


@contextlib.contextmanager
def always_warned() -> Iterator[None]:
    torch.set_warn_always(True)
    try:
        yield
    finally:
        torch.set_warn_always(False)


def same(model: nn.Module, other: nn.Module, *, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    for own, others in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(own.detach().cpu(), others.detach(), rtol=rtol, atol=atol)


def test_steps_are_right_with_gradients_that_add_up_and_a_scaled_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first step: what is captured was built, loaded and checked. Each step is of two batches."""
    monkeypatch.setenv("DWCONV_UNTUNED", "predict")
    model = network()
    launches, example = Launches(), on_gpu(0)
    ours = dwconv.graphed(dwconv.convert(copy.deepcopy(model).to("cuda")), example, seconds=0)
    same(ours, model)
    assert all(parameter.grad is None for parameter in ours.parameters()) and torch.equal(example.cpu(), data(0))
    if launches.seen is not None:
        captured = [each["workload"].partition("-")[0] for each in launches.seen if each["captured"]]
        assert list(dict.fromkeys(captured)) == ["fprop", "wgrad", "dgrad"]
    later, scaler = Launches(), torch.amp.GradScaler("cuda")
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.01, momentum=0.9) for each in (ours, model)]
    with warnings.catch_warnings(), always_warned():
        warnings.filterwarnings("error", "The AccumulateGrad node's stream")
        for seed, to_none in ((1, True), (2, False), (3, True)):
            for batch in (seed, 10 + seed):
                scaler.scale(loss_of(ours, on_gpu(batch))).backward()
                loss_of(model, data(batch)).backward()
            scaler.step(optimizers[0])
            scaler.update()
            optimizers[1].step()
            for optimizer in optimizers:
                optimizer.zero_grad(set_to_none=to_none)
            same(ours, model)
    assert not later.seen


def test_blocks_under_autocast_are_in_the_graphs(logs: Path) -> None:
    half = dataclasses.replace(BLOCK, dtype="bfloat16")
    plant(logs / "log.jsonl", [half], passes=("forward", "backward"))
    dwconv.reset()
    eager = with_block().to("cuda", memory_format=LIES)
    example, launches = on_gpu(0, memory_format=LIES), Launches()
    with torch.autocast("cuda", torch.bfloat16):
        models = [dwconv.convert(copy.deepcopy(eager), example, seconds=0, blocks=True) for _ in range(2)]
        before = copy.deepcopy(models[1].state_dict())
        dwconv.graphed(models[1], example, seconds=0)
    for name, value in models[1].state_dict().items():
        assert torch.equal(value, before[name]), "statistics are those of the batches"
    if launches.seen is not None:
        captured = {each["workload"].partition("-")[0] for each in launches.seen if each["captured"]}
        assert captured == {"forward", "backward"}
    for seed in (1, 2):
        losses = []
        for model in models:
            with torch.autocast("cuda", torch.bfloat16):
                losses.append(loss_of(model, on_gpu(seed, memory_format=LIES)))
            losses[-1].backward()
        torch.testing.assert_close(*losses, **ROUNDED)
    for one, other in zip(*(each.parameters() for each in models), strict=True):
        torch.testing.assert_close(one.grad, other.grad, **ROUNDED)
    same(models[1], copy.deepcopy(models[0]).to("cpu"), **ROUNDED)


def test_calls_unlike_the_example_run_as_they_were_written(logs: Path) -> None:
    plant(logs / "log.jsonl", [dataclasses.replace(each, dtype="bfloat16") for each in WORKLOADS])
    model = network()
    ours = graphed(copy.deepcopy(model))
    smaller, at_home = on_gpu(1)[:2], data(1)[:2]
    with pytest.warns(DwconvWarning, match="captured with 3×8×10×9 float32"):
        y = ours(smaller)
    torch.testing.assert_close(y.cpu(), model(at_home), rtol=1e-4, atol=1e-5)
    with pytest.warns(DwconvWarning, match="the argument input is passed by keyword"):
        ours(input=on_gpu(1))
    said = pytest.warns(DwconvWarning, match=r"called under autocast torch\.bfloat16, captured under off")
    with said, torch.autocast("cuda", torch.bfloat16):
        assert ours(on_gpu(1)).dtype == torch.bfloat16
    x = on_gpu(1).requires_grad_()
    with pytest.warns(DwconvWarning, match="that of the example did not"):
        loss_of(ours, x).backward()
    assert x.grad is not None
    launches = Launches()
    with torch.no_grad():
        ours(on_gpu(1))
    assert not launches.seen, "it was replayed"
    ours.eval()(on_gpu(1))
    with pytest.warns(DwconvWarning, match="parameters have moved"):
        ours.train().to(torch.float64).to(torch.float32)(on_gpu(1))
    for other in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours.to("cpu"))), dwconv.revert(ours)):
        assert not isinstance(vars(other).get("forward"), GraphedForward)


def test_what_is_in_a_graph_is_seen_in_a_report() -> None:
    ours = graphed(network())
    assert len(dwconv.report(ours, on_gpu(0)).rows) == len(WORKLOADS)
    launches = Launches()
    ours(on_gpu(1))
    assert not launches.seen


def test_a_graph_holds_one_call() -> None:
    ours = graphed(network())
    first, _ = loss_of(ours, on_gpu(1)), loss_of(ours, on_gpu(2))
    with pytest.raises(RuntimeError, match="backward pass of an earlier call of Sequential"):
        first.backward()


def test_a_model_is_captured_without_gradients_for_evaluation() -> None:
    model = network().eval()
    with torch.no_grad():
        ours = graphed(copy.deepcopy(model))
        launches = Launches()
        torch.testing.assert_close(ours(on_gpu(1)).cpu(), model(data(1)), rtol=1e-4, atol=1e-5)
    assert not launches.seen
    with pytest.warns(DwconvWarning, match="captured without gradients"):
        loss_of(ours, on_gpu(1)).backward()


class OnTheHost(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * float(x.sum().item() > 0)


def _hooked(model: nn.Module) -> None:
    model.register_forward_hook(lambda *_: None)


def _learning(model: nn.Module) -> None:
    model.register_buffer("scale", torch.ones(1, device="cuda", requires_grad=True))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda model: model.to("cpu"), "it is on cpu; move it and the example to a GPU"),
        (_hooked, "it has hooks, which a replay would skip; register them after the capture"),
        (_learning, "its buffer scale requires a gradient; make it a parameter"),
        (
            lambda model: model.requires_grad_(False),
            r"in training mode, and nothing requires a gradient; call eval\(\)",
        ),
        (lambda model: model.compile(), r"it is compiled; torch\.compile\(model, mode="),
        (lambda model: model.append(OnTheHost(8, 8, 1, device="cuda")), "captur.*capture a part that runs without it"),
    ],
)
def test_what_cannot_be_captured_is_said_and_stays_as_it_was(change: Callable[[Any], Any], why: str) -> None:
    model = network()[:2].to("cuda")
    change(model)
    x = data(0).to(model[0].weight.device)
    before, stream = copy.copy(vars(model)), torch.cuda.current_stream()
    with pytest.raises(CannotBeCaptured, match=f"^Sequential cannot be CUDA graphs: .*{why}") as caught:
        dwconv.graphed(model, x, seconds=0)
    assert "\n" not in str(caught.value)
    assert vars(model) == before and torch.cuda.current_stream() == stream
