"""Any schedule gives what the backend aot_eager gives, bit by bit: results, gradients, buffers, random numbers; where
compiled code runs it, in its order or as lanes decide, and where Python does."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dwconv.concurrency import backend, compiled_graph, explain, operator_groups
from tests.native_needed import go_through_python, needs_native

STEPS = 2
WAYS = ("interpreted", "compiled", "decided")
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def every_operator_is_a_task(tmp_path, monkeypatch):
    """Every operator is a task. Nothing is measured, nothing kept."""
    monkeypatch.setenv("DWCONV_CONCURRENCY_LOGS", str(tmp_path))
    monkeypatch.setattr(backend, "choose", None)
    monkeypatch.setattr(operator_groups, "SMALL_US", 0.0)
    monkeypatch.setattr(operator_groups, "LARGE_US", 0.0)
    yield
    torch._dynamo.reset()
    assert list(tmp_path.iterdir()) == []


class Convolutions(nn.Module):
    """Branches of every sort of convolution, batch norms, and a dropout in each."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([
            nn.Conv2d(8, 8, 1, bias=False), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 5, padding=2, groups=8),
            nn.ConvTranspose2d(8, 8, 3, padding=1),
        ])  # fmt: skip
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in self.convs)
        self.drops = nn.ModuleList(nn.Dropout(0.2 + 0.1 * place) for place in range(len(self.convs)))
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        branches = zip(self.convs, self.norms, self.drops, strict=True)
        return self.head(torch.cat([drop(norm(conv(x)).relu()) for conv, norm, drop in branches], 1).mean((2, 3)))

    example = staticmethod(lambda: torch.randn(3, 8, 7, 7))


class Cells(nn.Module):
    """An LSTM written out, two directions that share their weights, dropout between the steps."""

    def __init__(self):
        super().__init__()
        self.there = nn.LSTMCell(6, 7)
        self.back, self.drop, self.decode = self.there, nn.Dropout(0.3), nn.Linear(14, 6)
        self.decode_again = nn.Linear(14, 6)
        self.decode_again.weight = self.decode.weight

    def forward(self, x):
        ends = []
        for cell, steps in ((self.there, x.unbind(1)), (self.back, x.flip(1).unbind(1))):
            state = None
            for step in steps:
                state = cell(self.drop(step), state)
            ends.append(state[0])
        y = torch.cat(ends, 1)
        return self.decode(y) * self.decode_again(self.drop(y))

    example = staticmethod(lambda: torch.randn(3, 4, 6))


class Checkpointed(nn.Module):
    """What is computed again in the backward pass draws what it drew, beside dropout that is not."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (
            nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.4), nn.Linear(32, 16)) for _ in range(2)
        )
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        y = checkpoint(self.first, x, use_reentrant=False)
        return self.drop(y) + checkpoint(self.second, x.sin(), use_reentrant=False) * self.second(self.drop(x))

    example = staticmethod(lambda: torch.randn(8, 16))


class Recomputed(nn.Module):
    """A checkpoint that draws nothing can be cut."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16)) for _ in range(2))

    def forward(self, x):
        return checkpoint(self.first, x, use_reentrant=False) * checkpoint(self.second, x, use_reentrant=False)

    example = staticmethod(Checkpointed.example)


class Changing(nn.Module):
    """Buffers and a part of the input are written to; some results are views or not used."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x):
        state = x.detach().clone()
        self.seen.mul_(0.5).add_(state.mean(0))
        state[:, 0] += 1
        y, unused = self.first(state).relu(), self.second(x).tanh()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = (y * self.second(unused)).float() + self.seen
        return z[:, 1:].t() + unused.view(-1)[0]

    example = staticmethod(lambda: torch.randn(4, 6))


MODELS = [Convolutions, Cells, Checkpointed, Recomputed, Changing]


def trained(model, run, start, example):
    """Everything that some steps from ``start`` give and leave behind."""
    model.load_state_dict(start)
    torch.manual_seed(7)
    found = []
    x = example.clone().requires_grad_()
    for _ in range(STEPS):
        y = run(x)
        y.square().mean().backward()
        found += [y.detach(), x.grad.clone(), *(parameter.grad.clone() for parameter in model.parameters())]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
    return [*found, *(tensor.clone() for tensor in model.state_dict().values()), torch.get_rng_state()]


def graphs_of(model):
    mine = {id(parameter) for parameter in model.parameters()}
    return [graph for graph in backend.graphs if not mine.isdisjoint(graph.parameters)]


def force(model, schedule, *, workers):
    """Have the graphs of the model, which is compiled, run by another schedule."""
    for graph in graphs_of(model):
        graph.options = replace(graph.options, schedule=schedule, workers=workers)
        graph.choice = None


def check(make, schedules, monkeypatch, *, workers):
    needs_native()
    torch.manual_seed(0)
    model = make()
    start, example = copy.deepcopy(model.state_dict()), model.example()
    torch._dynamo.reset()
    expected = trained(model, torch.compile(model, backend="aot_eager"), start, example)
    torch._dynamo.reset()
    twin = copy.deepcopy(model)
    options = {"schedule": schedules[0], "workers": workers}
    run = torch.compile(twin, backend="dwconv_concurrent", options=options)
    for schedule, way in product(schedules, WAYS):
        if way == "decided" and not schedule.startswith("random"):
            continue
        force(twin, schedule, workers=workers)
        with monkeypatch.context() as patch:
            if way == "interpreted":
                go_through_python(patch)
            if way == "decided":  # by the lanes at run time, as with S3
                patch.setattr(compiled_graph, "decides_at_run_time", lambda schedule: True)
            found = trained(twin, run, start, example)
        assert all(map(torch.equal, found, expected)), (schedule, way)
        (graph,) = graphs_of(twin)
        if isinstance(model, Checkpointed):
            assert "run_and_save_rng_state" in graph.why_plain
            continue
        assert explain(twin).graphs[0].runs == schedule
        for program in (graph.forward, graph.backward):
            runs = program.engine._compiled if program.engine else program._in_order
            assert (runs._program is None) == (way == "interpreted"), (schedule, way)
            if schedule.startswith("random"):
                assert len({each.worker for each in program.engine.schedule.placements}) > 1


@pytest.mark.filterwarnings("ignore:run_and_save_rng_state is a higher-order operator")
@pytest.mark.parametrize("make", MODELS)
def test_any_schedule_computes_what_aot_eager_computes(make, monkeypatch):
    check(make, ["random:0", "plain", "random:1", "random:2", "S1+S3"], monkeypatch, workers=3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:run_and_save_rng_state is a higher-order operator")
@pytest.mark.parametrize("make", MODELS)
def test_many_schedules_compute_what_aot_eager_computes(make, monkeypatch):
    check(make, ["S1", "S2", "S3", "S2+S3", *(f"random:{seed}" for seed in range(3, 53))], monkeypatch, workers=4)
