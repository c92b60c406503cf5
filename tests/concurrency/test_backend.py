"""The backend: results and gradients are those of plain execution, whatever runs, and nothing else changes."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dwconv
from dwconv.concurrency import backend, explain, task_timer, timeline
from dwconv.concurrency import choose_schedule as choosing
from dwconv.concurrency.choose_schedule import Trial
from dwconv.concurrency.counters import Available
from dwconv.concurrency.task_graph import Machine
from dwconv.errors import DwconvWarning, InvalidChoice, InvalidWorkload
from dwconv.measure.clock.timing import Lap
from dwconv.records.record import Measurement

ALWAYS = {"fall_back": False, "seconds": 60}


class StillClock:
    """Every lap takes as long, of the time that there is for measuring too, and other work takes ``lost`` of it. Laps
    are so short that however many schedules a machine has, there is time for all."""

    lost = 0.0
    now_s = 0.0

    def lap(self, call, *, times):
        call()
        StillClock.now_s += 0.001
        return Lap(seconds=1e-3, lost=self.lost)

    def enough(self, effort):
        return effort

    def overall(self):
        return lambda: 0.0


def once(calls, *, clock, effort):
    """Made-up times of tasks: each is run, none is waited for."""
    for call in calls.values():
        call()
    longest = max(len(name) for name in calls)
    return {name: Measurement(median_us=10.0 * len(name) / longest, spread_us=0.0, rounds=1) for name in calls}


@pytest.fixture(autouse=True)
def quick_and_alone(tmp_path, monkeypatch):
    """Nothing of other tests is known, times are made up, and results are the same bit by bit."""
    monkeypatch.setenv("DWCONV_CONCURRENCY_LOGS", str(tmp_path))
    monkeypatch.setattr(choosing, "clock_of_steps", StillClock)
    monkeypatch.setattr(StillClock, "now_s", 0.0)
    monkeypatch.setattr(task_timer, "now_s", lambda: StillClock.now_s)
    monkeypatch.setattr(task_timer, "time_in_turns", once)
    torch._dynamo.reset()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
    torch._dynamo.reset()


@pytest.fixture
def lanes_pay(monkeypatch):
    """Threads cost nothing, and tasks take in steps what they take alone: several schedules are worth a measurement."""
    monkeypatch.setattr(choosing, "this_machine", lambda cores, *, budget: Machine(cores=cores))
    monkeypatch.setattr(timeline, "corrected", lambda curves, ran: {**curves})


class Branches(nn.Module):
    """An Inception block with everything that keeps a state: running statistics and random numbers."""

    def __init__(self):
        super().__init__()
        self.one, self.three = nn.Conv2d(8, 8, 1, bias=False), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.drop, self.head = nn.BatchNorm2d(8), nn.Dropout(0.4), nn.Linear(24, 5)

    def forward(self, x):
        y = torch.cat([self.norm(self.one(x)).relu(), self.three(x).relu(), F.max_pool2d(x, 3, 1, 1)], 1)
        return self.head(self.drop(y).mean((2, 3)))


def steps(model, run, x, *, count=3):
    """The losses of some training steps, and all that they leave behind."""
    torch.manual_seed(5)
    losses = []
    for _ in range(count):
        model.zero_grad()
        loss = run(x).square().mean()
        loss.backward()
        losses.append(loss.detach())
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
    grads = [parameter.grad for parameter in model.parameters()]
    return [*losses, *grads, *(tensor.detach().clone() for tensor in model.state_dict().values()), torch.rand(1)]


def train_both(model, x, options, *, like=None):
    """``steps`` of the model as it is, or with the backend ``like``; of a copy that is compiled; and what runs that."""
    twin = copy.deepcopy(model)
    expected = steps(model, torch.compile(model, backend=like) if like else model, x)
    torch._dynamo.reset()
    compiled = torch.compile(twin, backend="dwconv_concurrent", options=options)
    return expected, steps(twin, compiled, x), explain(compiled)


def placed(schedule):
    return {(each.task, each.worker, each.threads) for each in schedule.placements}


def test_pytorch_knows_the_backend_by_name():
    assert "dwconv_concurrent" in torch._dynamo.list_backends()


def test_training_is_that_of_plain_execution_and_its_choice_is_found_by_the_next_process(monkeypatch):
    torch.manual_seed(0)
    x, model = torch.randn(4, 8, 9, 9), Branches()
    expected, found, what = train_both(copy.deepcopy(model), x, ALWAYS)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    (graph,) = what.graphs
    assert graph.runs != "plain" and len(graph.tasks) == 2
    assert "plain" in graph.steps and graph.peaks["plain"] > 0
    assert f"runs {graph.runs}" in str(what) and "a step, results take up to" in str(what)
    torch._dynamo.reset()
    with monkeypatch.context() as patched:
        patched.setattr(backend, "choose", None)  # would fail
        _, found, second = train_both(copy.deepcopy(model), x, ALWAYS)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    one, other = graph.choice, second.graphs[0].choice
    rounded = {"schedules": (), "timeline": ()}
    assert replace(other, **rounded) == replace(one, **rounded) and ".jsonl" in second.graphs[0].source
    assert [each.name for each in second.graphs[0].operations] == [each.name for each in graph.operations] != []
    assert [placed(each) for each in other.schedules] == [placed(each) for each in one.schedules]
    assert explain().graphs[-1].runs == second.graphs[0].runs != "plain"
    latest = max(backend.graphs, key=lambda graph: graph.number)
    ran = [program.engine.schedule for program in (latest.forward, latest.backward)]
    assert [placed(each) for each in ran] == [placed(each) for each in other.schedules]
    # A kept schedule of another graph is measured again.
    short = replace(one.schedules[0], placements=one.schedules[0].placements[1:])
    monkeypatch.setattr(backend, "kept", lambda **asked: replace(one, schedules=(short, *one.schedules[1:])))
    torch._dynamo.reset()
    _, found, third = train_both(model, x, ALWAYS)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert "measured in this process" in third.graphs[0].source


@pytest.mark.parametrize("fall_back", [True, False])
def test_explain_shows_each_operation_and_what_the_machine_lacks(monkeypatch, tmp_path, fall_back):
    """Of plain execution, too, as one operation at a time."""
    monkeypatch.setattr(choosing, "this_machine", lambda cores, *, budget: Machine(cores=cores))
    lacking = Available(kind="software", events=(), note="no hardware counters here, as planted")
    monkeypatch.setattr(choosing, "available", lambda: lacking)
    options = {"fall_back": fall_back, "seconds": 60, "strategies": ("S3", "S4"), "model": "regression", "log": False}
    _, _, what = train_both(Branches(), torch.randn(4, 8, 9, 9), options)
    (graph,) = what.graphs
    assert (graph.runs == "plain") == fall_back and len(graph.operations) == sum(graph.tasks)
    assert {each.graph for each in graph.operations} == {"forward", "backward"}
    assert all(each.seen_us > 0 < each.predicted_us and each.threads in (1, 2) for each in graph.operations)
    assert not fall_back or {(each.lane, each.threads, each.neighbours) for each in graph.operations} == {(0, 2, ())}
    for said in (lacking.note, "no second hardware threads to use here: S4 runs", "times predicted by", "beside"):
        assert said in str(what)


@pytest.mark.usefixtures("lanes_pay")
def test_measuring_changes_nothing_and_a_choice_that_is_not_trusted_is_not_kept(monkeypatch, tmp_path):
    """Where plain execution is chosen, steps after it was all measured are those of aot_eager."""
    monkeypatch.setattr(StillClock, "lost", 0.2)
    torch.manual_seed(0)
    expected, found, what = train_both(Branches(), torch.randn(4, 8, 9, 9), ALWAYS, like="aot_eager")
    (graph,) = what.graphs
    assert graph.runs == "plain" and len(graph.steps) > 2 and list(tmp_path.iterdir()) == []
    assert "other work took 20% of the time" in str(what) and "not kept" in str(what)
    assert all(map(torch.equal, found, expected))


@pytest.mark.filterwarnings("ignore:.* run on PyTorch's own op")
def test_converted_depthwise_layers_train_as_plain_ones(logs):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU(), nn.Conv2d(8, 8, 5, padding=2, groups=8))
    plain = copy.deepcopy(model)
    compiled = torch.compile(dwconv.convert(model), backend="dwconv_concurrent", options=ALWAYS)
    x = torch.randn(2, 8, 12, 12, requires_grad=True)
    expected, found = steps(plain, plain, x), steps(model, compiled, x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    (graph,) = explain(compiled).graphs
    assert graph.runs != "plain"
    latest = max(backend.graphs, key=lambda graph: graph.number)
    names = [str(node.target) for nodes in latest.backward.cut.nodes for node in nodes]
    assert sum("dwconv.dgrad" in name for name in names) == sum("dwconv.wgrad" in name for name in names) == 2


def test_a_broken_graph_and_inference_run_too():
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x):
            x = self.first(x).relu() + self.first(x * 2)
            torch._dynamo.graph_break()
            return self.second(x).tanh() + self.second(x * 3)

    torch.manual_seed(0)
    model = Broken()
    x = torch.randn(5, 6)
    expected, found, what = train_both(model, x, ALWAYS)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert len(what.graphs) == 2
    compiled = torch.compile(model, backend="dwconv_concurrent", options=ALWAYS)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            torch.testing.assert_close(compiled(x), model(x))


def test_another_number_of_threads_is_another_choice():
    torch.manual_seed(0)
    model = Branches().eval()
    compiled = torch.compile(model, backend="dwconv_concurrent", options=ALWAYS)
    x = torch.randn(4, 8, 9, 9)
    for threads in (2, 1, 2):
        torch.set_num_threads(threads)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x))
    assert [graph.choice.cores for graph in explain(compiled).graphs] == [2, 1]


def test_unknown_options_are_refused_as_they_are():
    with pytest.raises(InvalidChoice, match="strategy 'S7' is unknown"):
        torch.compile(nn.Linear(2, 2), backend="dwconv_concurrent", options={"strategies": "S7"})(torch.randn(1, 2))
    torch._dynamo.reset()
    with pytest.raises(InvalidChoice, match="mode 'max-autotune' is unknown"):
        torch.compile(nn.Linear(2, 2), backend="dwconv_concurrent", mode="max-autotune")(torch.randn(1, 2))


def test_changing_sizes_run_plainly_and_that_is_said_once():
    model = nn.Linear(3, 3)
    compiled = torch.compile(model, backend="dwconv_concurrent", options=ALWAYS, dynamic=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for rows in (4, 5, 7):
            x = torch.randn(rows, 3)
            torch.testing.assert_close(compiled(x), model(x))
    said = [str(each.message) for each in caught if issubclass(each.category, DwconvWarning)]
    assert len(said) <= 1 and all("dynamic=False" in each for each in said)
    (graph, *_) = explain(model).graphs
    assert graph.runs == "plain" and "sizes that change" in graph.reason


def test_a_graph_on_another_device_runs_plainly_and_that_is_said():
    model = nn.Linear(3, 3, device="meta")
    compiled = torch.compile(model, backend="dwconv_concurrent", options=ALWAYS)
    with pytest.warns(DwconvWarning, match="a graph on meta runs plainly; schedules are for the CPU and CUDA devices"):
        assert compiled(torch.randn(2, 3, device="meta")).shape == (2, 3)


def test_an_operator_that_cannot_be_traced_is_named_and_runs_plainly(monkeypatch):
    monkeypatch.setattr(backend, "digest_of", _fails)
    model = nn.Linear(3, 3)
    compiled = torch.compile(model, backend="dwconv_concurrent", options=ALWAYS)
    x = torch.randn(2, 3)
    with pytest.warns(DwconvWarning, match="aten.strange.default has no meaning here"):
        torch.testing.assert_close(compiled(x), model(x))
    torch.testing.assert_close(compiled(x), model(x))


def _fails(module):
    raise NotImplementedError("aten.strange.default has no meaning here")


def test_where_measuring_fails_the_graph_runs_plainly(monkeypatch):
    def no_memory(*args, **kwargs):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp] not enough memory")

    monkeypatch.setattr(backend, "choose", no_memory)
    torch.manual_seed(0)
    expected, found, what = train_both(Branches(), torch.randn(4, 8, 9, 9), ALWAYS, like="aot_eager")
    assert all(map(torch.equal, found, expected))
    assert what.graphs[0].runs == "plain" and "not enough memory" in what.graphs[0].reason


def test_choosing_takes_no_longer_than_it_may(monkeypatch, tmp_path):
    """On a machine under load every step takes 1.8 s, and every task 0.1 s."""

    def slow(make, seconds):
        def made(*args, **kwargs):
            call = make(*args, **kwargs)

            def run():
                StillClock.now_s += seconds
                return call()

            return run

        return made

    monkeypatch.setattr(Trial, "step", slow(Trial.step, 1.8))
    timed = slow(lambda *args, **how: lambda: once(*args, **how), 0.1)
    monkeypatch.setattr(task_timer, "time_in_turns", lambda *args, **how: timed(*args, **how)())
    torch.manual_seed(0)
    expected, found, what = train_both(Branches(), torch.randn(4, 8, 9, 9), {**ALWAYS, "seconds": 2}, like="aot_eager")
    (graph,) = what.graphs
    assert 2 <= StillClock.now_s <= 1.8 + 2 + 1.8  # the first step compiles the backward graph
    assert (graph.runs, graph.reason) == ("plain", "seconds=2 are too few to measure it here; give it more")
    assert "not kept" in graph.source and list(tmp_path.iterdir()) == []
    assert all(map(torch.equal, found, expected))


def test_tasks_that_there_is_no_time_for_are_estimated(monkeypatch):
    """Tasks take so long that the time does for few of them; steps are measured all the same."""
    timed = []

    def slow(calls, *, clock, effort):
        timed.append(StillClock.now_s)
        StillClock.now_s += 0.3
        return once(calls, clock=clock, effort=effort)

    monkeypatch.setattr(task_timer, "time_in_turns", slow)
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Conv2d(width, width + 1, 3, padding=1) for width in range(8, 14)))
    expected, found, what = train_both(model, torch.randn(4, 8, 9, 9), {**ALWAYS, "seconds": 2})
    (graph,) = what.graphs
    assert graph.runs != "plain" and len(graph.steps) >= 2
    assert len(timed) == 2 and StillClock.now_s < 2.1
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "options, first",
    [({"schedule": "plain"}, True), ({"schedule": "random:1"}, False), (ALWAYS, True)],
)
def test_a_backward_pass_may_run_again_whatever_runs(options, first):
    torch.manual_seed(0)
    model, x = Branches(), torch.randn(4, 8, 9, 9)
    compiled = torch.compile(model, backend="dwconv_concurrent", options=options)
    if first:  # compiles the backward graph for values that are used once
        compiled(x).sum().backward()
        model.zero_grad()
    loss = compiled(x).square().mean()
    loss.backward(retain_graph=True)
    once = [parameter.grad.clone() for parameter in model.parameters()]
    loss.backward()
    torch.testing.assert_close([parameter.grad for parameter in model.parameters()], [2 * grad for grad in once])
    (graph,) = explain(model).graphs
    assert (graph.runs == "plain") == (options == {"schedule": "plain"})


def test_explain_says_what_torch_compile_has_left_out():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.cells, self.last = nn.Linear(4, 4), nn.LSTM(4, 5), nn.Linear(5, 2)

        def forward(self, x):
            return self.rest(self.before(x))

        def before(self, x):
            return self.first(x).relu()

        def rest(self, x):
            return self.last(self.cells(x)[0])

    model = Recurrent()
    compiled = torch.compile(model, backend="dwconv_concurrent", options={"schedule": "plain"})
    compiled(torch.randn(3, 2, 4))
    *captured, said = str(explain(compiled)).splitlines()
    assert "cells (LSTM)" in said and "torch.compile does not capture LSTM" in said
    assert bool(captured) == ("first" not in said)
    torch._dynamo.reset()
    lstm = nn.LSTM(2, 2)
    torch.compile(lstm, backend="dwconv_concurrent")(torch.randn(1, 1, 2))
    assert str(explain(lstm)).startswith("no graph has 4 of 4 parameters, of the model (LSTM)")
    torch._dynamo.reset()
    whole = nn.Linear(2, 2)
    torch.compile(whole, backend="dwconv_concurrent", options={"schedule": "plain"})(torch.randn(1, 2))
    assert explain(whole).left_out == ""


def test_explain_knows_only_what_has_run():
    with pytest.raises(InvalidWorkload, match=r"Linear has not run with torch\.compile"):
        explain(nn.Linear(2, 2))
