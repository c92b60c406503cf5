"""Functional calls: on a layer's weight or on any other, under ``active`` and in models converted with it."""

from __future__ import annotations

import contextlib
import copy
import inspect
import pickle
import threading
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils._per_sample_grad import call_for_per_sample_grads
from torch.overrides import TorchFunctionMode

import dwconv
from dwconv.tuner import model_race
from dwconv.tuner.race_result import RaceResult
from tests.call.test_functional import nodes
from tests.planted_records import plant, workload_of

pytestmark = [
    pytest.mark.usefixtures("threads_as_asked"),
    pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning"),
]
X = torch.randn(2, 8, 9, 7)


class Mixer(nn.Module):
    """As Mamba is written: a layer that never runs, and a function that is called on its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.widen = nn.Conv2d(8, 8, 1)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        weight = self.conv.weight.squeeze(1).unsqueeze(1)
        return F.conv2d(self.widen(x), weight=weight, padding=1, groups=8) * scale


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(Mixer(), nn.ReLU(), Mixer())


@pytest.fixture(autouse=True)
def planted(logs):
    plant(logs / "log.jsonl", [workload_of(layout="nchw")], baseline_us=1e6, template_layout="nchw")


@pytest.fixture
def races(monkeypatch):
    """What the race was started with."""
    asked = []

    def race_for(counts, *, seconds, state):
        asked.append(counts)
        return [RaceResult(won=(), elapsed_s=0.0)]

    monkeypatch.setattr(model_race, "race_for", race_for)
    return asked


def weight(*, channels=8, kernel=3):
    return torch.randn(channels, 1, kernel, kernel, requires_grad=True)


def is_ours(y):
    return any("Dwconv" in name for name in nodes(y))


# -- active ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [F.conv2d, torch.conv2d])
def test_depthwise_calls_inside_run_on_kernels_and_no_other(function):
    w = weight()
    expected = function(X, w, None, 1, 1, 1, 8)
    with dwconv.active():
        y = function(X, w, None, 1, 1, 1, 8)
    assert is_ours(y) and not is_ours(expected) and not is_ours(function(X, w, padding=1, groups=8))
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
    grads = [torch.autograd.grad(each.pow(2).sum(), w) for each in (y, expected)]
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-3)


def test_what_is_not_depthwise_is_pytorchs_to_the_bit_and_so_are_errors():
    dense, grouped, volume = torch.randn(4, 8, 3, 3), torch.randn(8, 4, 3, 3), torch.randn(8, 4, 3, 3, 3)
    cube = torch.randn(2, 8, 4, 9, 7)

    def results():
        return F.conv2d(X, dense), F.conv2d(X, grouped, groups=2), F.conv3d(cube, volume, groups=2)

    expected = results()
    with dwconv.active():
        assert all(map(torch.equal, results(), expected))
        with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
            F.conv2d(X[:, :, :1], weight(), groups=8)
        with pytest.raises(RuntimeError, match="should be the same"):
            F.conv2d(X, weight().double(), groups=8)


def test_it_nests_and_is_of_this_thread_alone():
    w, others = weight(), []
    with dwconv.active():
        with dwconv.active():
            assert is_ours(F.conv2d(X, w, padding=1, groups=8))
        assert is_ours(F.conv2d(X, w, padding=1, groups=8))
        thread = threading.Thread(target=lambda: others.append(F.conv2d(X, w, padding=1, groups=8)))
        thread.start()
        thread.join()
    assert not is_ours(others[0])


class Seen(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.functions = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.functions.append(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("axes", [1, 3])
def test_lines_and_volumes_too(axes):
    x, w = torch.randn(2, 8, *[6] * axes), torch.randn(8, 1, *[4] * axes)
    function = getattr(F, f"conv{axes}d")
    with Seen() as around, dwconv.active():
        y = function(x, w, padding=3, groups=8)
    assert getattr(dwconv, f"conv{axes}d") in around.functions
    torch.testing.assert_close(y, function(x, w, padding=3, groups=8))


def test_other_modes_around_it_see_the_call():
    w = weight()
    with Seen() as around, dwconv.active():
        assert is_ours(F.conv2d(X, w, padding=1, groups=8))
    assert dwconv.conv2d in around.functions
    with dwconv.active(), Seen() as within:
        assert is_ours(F.conv2d(X, w, padding=1, groups=8))
    assert torch.conv2d in within.functions
    with torch.device("meta"), dwconv.active():
        assert F.conv2d(torch.randn(2, 8, 9, 7), torch.randn(8, 1, 3, 3), groups=8).is_meta


def test_it_works_around_what_is_compiled():
    w = weight()

    def plain(x):
        return F.conv2d(x, w, padding=1, groups=8)

    ops = []

    def backend(graph, _):
        ops.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    with dwconv.active():
        torch.compile(plain, fullgraph=True, backend=backend)(X)
    assert "dwconv.fprop.default" in ops


@pytest.mark.parametrize("change", [lambda w: w.detach(), lambda w: w[:, :, ::1].transpose(2, 3), lambda w: w * 1])
def test_a_view_of_a_weight_is_what_it_shows(change):
    w = weight()
    expected = F.conv2d(X, change(w), padding=1, groups=8)
    with dwconv.active():
        y = F.conv2d(X, change(w), padding=1, groups=8)
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
    assert y.requires_grad == expected.requires_grad


# -- convert ---------------------------------------------------------------------------------------------------------


def test_a_converted_model_that_calls_functions_says_so_and_runs_them(races):
    model = Net()
    model[0].conv.weight.requires_grad_(False)
    before = {name: id(each) for name, each in model.state_dict(keep_vars=True).items()}
    dwconv.convert(model)
    assert not is_ours(model(X)), "the calls are not known yet"
    summary = dwconv.summary(dwconv.convert(model, X))
    assert [layer.name for layer in summary.called] == ["0.conv", "2.conv"]
    assert "2.conv  a functional call in 2 (Mixer) runs on dwconv" in str(summary)
    assert "did not run" not in str(summary)
    assert sum(sum(each.values()) for each in races[0].values()) == 5, "one weight is frozen"
    assert is_ours(model(X)) and is_ours(model[2](X, scale=2.0))
    assert {name: id(each) for name, each in model.state_dict(keep_vars=True).items()} == before
    assert not dwconv.summary(dwconv.convert(model, X)).called, "they are dwconv's by now"


def test_functional_is_a_choice(races):
    model = Net()
    summary = dwconv.summary(dwconv.convert(model, X, functional=False))
    assert "0.conv  a functional call in 0 (Mixer) stays on PyTorch's op: functional=False" in str(summary)
    assert races == [{}] and not is_ours(model(X))
    assert "functional calls run on dwconv" in str(dwconv.summary(dwconv.convert(model, functional=True)))
    assert is_ours(model(X))
    assert type(model[0]) is Mixer, "the model's own forward is enough"


@pytest.mark.parametrize("functional", [True, None])
def test_it_survives_what_models_go_through(races, functional):
    model = dwconv.convert(Net(), X, functional=functional)
    y = model(X)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert is_ours(twin(X)) and isinstance(twin, Net) and isinstance(twin[0], Mixer)
        assert torch.equal(twin(X), y)
    fresh = dwconv.convert(Net(), X, functional=functional)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(X), y)
    assert type(model).__name__ == "Net" and type(model[0]).__name__ == "Mixer"
    assert inspect.signature(model[0].forward) == inspect.signature(Mixer().forward)


def test_a_forward_that_was_put_into_the_instance_runs_under_it():
    model = Mixer()
    model.forward = lambda x: F.conv2d(x, model.conv.weight, padding=1, groups=8)
    assert is_ours(dwconv.convert(model, functional=True)(X))
    assert len(dwconv.convert(model, functional=True)._forward_hooks) == 0


def test_a_model_that_was_compiled_before_is_converted_too():
    model = Net()
    compiled = torch.compile(model, backend="eager")
    assert dwconv.convert(compiled, functional=True) is compiled
    assert is_ours(compiled(X)) and is_ours(model(X))


def test_a_layer_with_a_weight_of_its_own_making_runs_functionally(races):
    class Standardised(nn.Conv2d):
        def forward(self, x):
            weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
            return F.conv2d(x, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    model = nn.Sequential(Standardised(8, 8, 3, padding=1, groups=8, bias=False))
    expected = model(X)
    summary = dwconv.summary(dwconv.convert(model, X))
    assert (summary.converted, summary.skipped) == ((), ()) and [layer.name for layer in summary.called] == ["0"]
    torch.testing.assert_close(model(X), expected, rtol=1e-4, atol=1e-5)
    assert is_ours(model(X))
    assert [row.names for row in dwconv.report(model, X).rows] == [("0",)]


def test_a_report_counts_functional_calls_for_the_layer(races):
    model = dwconv.convert(Net(), X, functional=True)
    for _ in range(3):
        model(X).sum().backward()
    report = dwconv.report(model)
    assert [row.names for row in report.rows] == [("0.conv",), ("2.conv",)]
    assert [each.calls for row in report.rows for each in row.passes] == [3] * 6 and not report.idle
    with torch.no_grad():
        model(X)
    assert dwconv.report(model).rows[0].passes[0].calls == 4


# -- subclasses of Tensor that know PyTorch's functions alone ----------------------------------------------------------


class Knowing(torch.Tensor):
    """It handles PyTorch's functions of this list, and no other."""

    known = (F.conv1d, F.conv2d, F.conv3d)
    seen: ClassVar[list] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func not in cls.known:
            return NotImplemented
        cls.seen.append(func)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*(each.as_subclass(torch.Tensor) if isinstance(each, cls) else each for each in args))


@pytest.mark.parametrize("place", range(3), ids=["x", "w", "bias"])
@pytest.mark.parametrize("mode", [contextlib.nullcontext, dwconv.active, torch.overrides.BaseTorchFunctionMode])
def test_a_subclass_decides_what_becomes_of_pytorchs_function(logs, place, mode):
    """And what it does with that on numbers runs on kernels."""
    plant(logs / "log.jsonl", [workload_of(layout="nchw", bias=True)], baseline_us=1e6, template_layout="nchw")
    for axes in (1, 2, 3):
        plain = [
            torch.randn(2, 8, *[9, 7, 5][:axes]),
            torch.randn(8, 1, *[3] * axes),
            torch.randn(8, requires_grad=True),
        ]
        given = [each.as_subclass(Knowing) if at == place else each for at, each in enumerate(plain)]
        pytorchs, ours = getattr(F, f"conv{axes}d"), getattr(dwconv, f"conv{axes}d")
        Knowing.seen.clear()
        with mode():
            y = ours(*given, 1, 1, 1, 8)
        assert Knowing.seen == [pytorchs] and type(y) is torch.Tensor
        if axes == 2 and mode is contextlib.nullcontext:
            assert "Dwconv" in y.grad_fn.name()
        torch.testing.assert_close(y, pytorchs(*plain, 1, 1, 1, 8), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("frozen", ["", "weight"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_gradients_of_each_image_of_a_batch(logs, axes, frozen):
    x = torch.randn(3, 4, *[7] * axes)
    layer = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[axes - 1](4, 8, 3, groups=4)
    layer.weight.requires_grad_(not frozen)
    found = []
    for each in (copy.deepcopy(layer), dwconv.convert(copy.deepcopy(layer))):
        call_for_per_sample_grads(each)(x).sin().sum().backward()
        found.append([p.grad_sample for p in each.parameters() if p.requires_grad])
    assert found[0][0].shape[0] == 3
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)
