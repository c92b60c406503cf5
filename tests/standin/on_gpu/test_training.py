"""A converted model on a GPU: the right numbers, from tuned kernels, on the stream that is current, and in a graph."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import dwconv
from dwconv import native
from dwconv.call import call_plan, process_kernels
from dwconv.errors import DwconvWarning
from dwconv.problems.block import Block
from dwconv.problems.problem import Problem, memory_format
from dwconv.problems.workload import LAYOUTS, PASSES, Layout
from dwconv.schedules.template import Candidate
from tests.planted_records import workload_of
from tests.standin.on_gpu.conftest import IS_STAND_IN
from tests.standin.on_gpu.kernels import Launches, plant
from tests.standin.on_gpu.models import WORKLOADS, data, loss_of, network

WARM_UPS = 2


@pytest.fixture(autouse=True)
def tuned(logs: Path) -> Iterator[None]:
    plant(logs / "log.jsonl", WORKLOADS)
    yield


def converted(model: nn.Module) -> nn.Module:
    model = copy.deepcopy(model).to("cuda")
    dwconv.convert(model)
    return model


def same(model: nn.Module, other: nn.Module) -> None:
    for own, others in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(own.detach().cpu(), others.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("side_stream", [False, True])
def test_a_step_is_right_and_runs_tuned_kernels_where_it_should(side_stream: bool) -> None:
    model = network()
    ours = converted(model)
    loss_of(ours, data(0).to("cuda")).backward()  # kernels are checked at their first use
    ours.zero_grad()
    launches = Launches()
    x, on_gpu = data(1).requires_grad_(), data(1).to("cuda").requires_grad_()
    stream = torch.cuda.Stream() if side_stream else torch.cuda.current_stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        loss_of(ours, on_gpu).backward()
    torch.cuda.synchronize()
    loss_of(model, x).backward()
    torch.testing.assert_close(on_gpu.grad.cpu(), x.grad, rtol=1e-4, atol=1e-5)
    for own, others in zip(ours.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(own.grad.cpu(), others.grad, rtol=1e-4, atol=1e-5)
    if launches.seen is not None:
        passes = [launch["workload"].partition("-")[0] for launch in launches.seen]
        assert list(dict.fromkeys(passes)) == ["fprop", "wgrad", "dgrad"]
        assert {launch["stream"] for launch in launches.seen} == {stream.cuda_stream}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_launch_gives_both_gradients_where_both_are_wanted(logs: Path, layout: Layout) -> None:
    """After the first layer, whose input needs none; and when a weight is frozen, later."""
    lies = memory_format(layout, axes=2)
    layers = [dataclasses.replace(workload, layout=layout) for workload in WORKLOADS]
    plant(logs / "log.jsonl", layers, passes=(*PASSES, "backward"))
    dwconv.reset()
    model = network().to(memory_format=lies)
    ours = converted(model)

    def passes_of_a_step() -> list[str] | None:
        loss_of(ours, on_gpu(0)).backward()  # kernels are checked at their first use
        for each in (ours, model):
            each.zero_grad()
        launches = Launches()
        for each, x in ((ours, on_gpu(1)), (model, data(1))):
            loss_of(each, x).backward()
        for own, others in zip(ours.parameters(), model.parameters(), strict=True):
            if own.requires_grad:
                torch.testing.assert_close(own.grad.cpu(), others.grad, rtol=1e-4, atol=1e-5)
        seen = launches.seen
        return seen and [key for key, _ in itertools.groupby(each["workload"].partition("-")[0] for each in seen)]

    def on_gpu(seed: int) -> torch.Tensor:
        return data(seed).to("cuda", memory_format=lies)

    assert passes_of_a_step() in (None, ["fprop", "backward", "wgrad"])
    for each in (ours, model):
        each[2].weight.requires_grad_(False)
    assert passes_of_a_step() in (None, ["fprop", "dgrad", "wgrad"])


@pytest.mark.parametrize(
    ("kind", "launches_of_a_step"),
    [("usual", 1), ("other momenta", 1), ("shared", 2), ("not counted", 1), ("with gaps", 1)],
)
def test_running_statistics_of_a_block_move_in_one_launch(logs: Path, kind: str, launches_of_a_step: int) -> None:
    """Norms that share buffers take turns; what the kernel does not know moves by PyTorch's ops."""
    of_block = dataclasses.replace(WORKLOADS[0], pass_="forward", layout="nhwc", block=Block.parse("bn+relu,bn+relu"))
    plant(logs / "log.jsonl", [of_block], passes=("forward", "backward"))
    dwconv.reset()
    torch.manual_seed(0)
    convolution = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
    model = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), convolution, nn.BatchNorm2d(8), nn.ReLU())
    lies = memory_format("nhwc", axes=2)
    ours = copy.deepcopy(model).to("cuda", memory_format=lies)
    for first, _, _, second, _ in (model, ours):
        if kind == "other momenta":
            second.momentum = 0.7
        if kind == "not counted":
            first.num_batches_tracked = second.num_batches_tracked = None
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            if kind == "shared":
                setattr(second, name, getattr(first, name))
            if kind == "with gaps" and name != "num_batches_tracked":
                setattr(second, name, getattr(second, name).repeat_interleave(2)[::2])
    native.native()
    ours = dwconv.convert(ours, data(0).to("cuda", memory_format=lies), seconds=0, blocks=True)
    versions, launches = ours[0].running_mean._version, Launches("statistics")
    steps = 4
    for seed in range(steps):
        for each, x in ((ours, data(seed).to("cuda", memory_format=lies)), (model, data(seed))):
            each(x.requires_grad_()).sum().backward()
    assert ours[0].running_mean._version > versions
    for name, wanted in model.named_buffers():
        torch.testing.assert_close(ours.get_buffer(name).cpu(), wanted, msg=name)
    if launches.seen is not None:
        assert len(launches.seen) == steps * launches_of_a_step


@pytest.mark.parametrize("at_once", [False, True])
def test_a_step_in_a_graph_is_the_same_step_on_other_data(logs: Path, at_once: bool) -> None:
    """Whether or not both gradients come from one kernel; the loss is scaled, and the optimizer is captured, too."""
    if at_once:
        plant(logs / "log.jsonl", WORKLOADS, passes=["backward"])
        dwconv.reset()
    model = network()
    ours, x = converted(model), data(0).to("cuda")
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.Adam(each.parameters(), lr=0.01, fused=True, capturable=each is ours) if at_once else
        torch.optim.SGD(each.parameters(), lr=0.01, momentum=0.9, fused=True)
        for each in (ours, model)
    ]  # fmt: skip
    scaler = torch.amp.GradScaler("cuda")

    def step(net: nn.Module, given: torch.Tensor, optimizer: torch.optim.Optimizer) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(net, given)
        if not given.is_cuda:
            loss.backward()
            optimizer.step()
            return loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    loss_of(ours, x).backward()  # kernels are checked at their first use
    eager = Launches()
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            step(ours, x, optimizers[0])
    torch.cuda.current_stream().wait_stream(stream)
    for _ in range(WARM_UPS):
        step(model, data(0), optimizers[1])
    seen = None if eager.seen is None else [launch["kernel"] + launch["workload"] for launch in eager.seen]

    graph, captured = torch.cuda.CUDAGraph(), Launches()
    with torch.cuda.graph(graph, stream=stream):
        loss = step(ours, x, optimizers[0])
    same(ours, model)  # nothing has run
    if captured.seen is not None and seen is not None:
        assert all(launch["captured"] for launch in captured.seen)
        assert any(launch["workload"].startswith("backward") for launch in captured.seen) == at_once
        assert WARM_UPS * [launch["kernel"] + launch["workload"] for launch in captured.seen] == seen

    for seed in (1, 2):
        x.copy_(data(seed))
        graph.replay()
        wanted = step(model, data(seed), optimizers[1])
        torch.testing.assert_close(loss.detach().cpu(), wanted.detach(), rtol=1e-4, atol=1e-5)
        same(ours, model)


def test_a_first_step_in_a_graph_runs_pytorchs_op_and_the_next_one_is_tuned() -> None:
    """Nothing can be loaded or checked while a graph is captured; a driver that loads a kernel spoils the capture."""
    model = network()
    ours, x = converted(model), data(0).to("cuda")
    loss_of(copy.deepcopy(model).to("cuda"), x).backward()  # PyTorch's own libraries load what they need
    stream, graph, captured = torch.cuda.Stream(), torch.cuda.CUDAGraph(), Launches()
    stream.wait_stream(torch.cuda.current_stream())
    with pytest.warns(DwconvWarning) as caught, torch.cuda.graph(graph, stream=stream):
        loss = loss_of(ours, x)
        loss.backward()
    (warning,) = caught
    assert "warm up first" in str(warning.message)
    assert not captured.seen and not process_kernels.state.broken
    x.copy_(data(1))
    graph.replay()
    wanted = loss_of(model, data(1))
    wanted.backward()
    torch.testing.assert_close(loss.detach().cpu(), wanted.detach(), rtol=1e-4, atol=1e-5)
    for own, others in zip(ours.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(own.grad.cpu(), others.grad, rtol=1e-4, atol=1e-5)

    loss_of(ours, x).backward()
    eager = Launches()
    y = ours(x)
    y.sum().backward()
    assert ("CppNode" in y.grad_fn.name()) == (native.module is not None)
    if eager.seen is not None:
        assert {launch["workload"].partition("-")[0] for launch in eager.seen} == {*PASSES}


@pytest.mark.parametrize(
    "waits",
    [
        lambda x: x.sum().item(),
        lambda x: x[x > 0],
        lambda x: torch.cuda.synchronize(),
    ],
)  # fmt: skip
def test_what_waits_cannot_be_captured(waits: Callable[[torch.Tensor], object]) -> None:
    """The stand-in must not allow more than a GPU does."""
    x = torch.ones(3, device="cuda", dtype=torch.int32)
    graph = torch.cuda.CUDAGraph()
    usual = torch.cuda.current_stream()
    with pytest.raises(RuntimeError, match="captur"), torch.cuda.graph(graph):
        waits(x)
    torch.cuda.set_stream(usual)  # a capture that fails leaves its own
    assert torch.equal(x.cpu(), torch.ones(3, dtype=torch.int32))


@pytest.mark.skipif(not IS_STAND_IN, reason="a GPU computes with whatever is there then")
def test_a_graph_keeps_what_was_allocated_in_its_capture_and_nothing_else() -> None:
    model, before, graph = converted(network()), data(0).to("cuda"), torch.cuda.CUDAGraph()
    with torch.no_grad():
        wanted = model(2 * before)  # loads and checks
        with torch.cuda.graph(graph):
            y = model(before + before)
    graph.replay()
    torch.testing.assert_close(y, wanted)
    del before
    with pytest.raises(torch.AcceleratorError, match="outside its pool that was freed"):
        graph.replay()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_kernel_serves_a_layer_at_every_size(logs: Path, monkeypatch: pytest.MonkeyPatch, layout: Layout) -> None:
    """It was measured at one size, where its own kernels run; two others have the kernels of any size built, the
    rest of them take those."""
    plant(logs / "log.jsonl", [workload_of(shape=(2, 8, 10, 9), layout=layout)])
    monkeypatch.setenv("DWCONV_UNTUNED", "wait")
    dwconv.reset()
    lies = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    loads: list[Candidate] = []
    load = process_kernels.load
    monkeypatch.setattr(
        process_kernels, "load", lambda candidate, *given: loads.append(candidate) or load(candidate, *given)
    )
    w = torch.randn(8, 1, 3, 3)
    for height, width in ((10, 9), (12, 12), (6, 7), (16, 21), (9, 20), (24, 8)):
        x = torch.randn(3, 8, height, width).to(memory_format=lies)
        results = []
        for device, convolve in (("cuda", dwconv.conv2d), ("cpu", partial(nn.functional.conv2d, groups=8))):
            given = [each.to(device).requires_grad_() for each in (x, w)]
            for _ in range(2):  # kernels arrive, and are checked at their first use
                y = convolve(*given, padding=1)
                gradients = torch.autograd.grad((y * y).sum() / 100, given)
            results.append([each.detach().cpu() for each in (y, *gradients)])
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
        decisions = call_plan.plan_for(
            Problem.of(workload_of(shape=(3, 8, height, width), layout=layout)), torch.device("cuda", 0)
        ).decisions
        assert {each.provider for each in decisions.values()} == {"dwconv"}
    assert len(loads) == 2 * len(PASSES), "the first size has kernels of its own"
    assert {each.workload.any_size for each in loads[3:]} == {True}
