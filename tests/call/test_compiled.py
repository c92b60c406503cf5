"""What torch.compile makes of depthwise calls: its graph must hold dwconv's ops, where one that is exported must not.
Numbers alone would not tell, for PyTorch's op gives them too."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.backends.common import aot_autograd

import dwconv
from dwconv.call import dispatched
from dwconv.errors import DwconvWarning

pytestmark = pytest.mark.usefixtures("logs")
X = torch.randn(2, 8, 9, 7)


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(8, 8, 3, groups=8)

    def forward(self, x):
        return F.conv1d(x.flatten(2), self.conv.weight, groups=8)


def layer():
    return dwconv.convert(nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.ReLU()))


def functional():
    return dwconv.convert(Functional(), functional=True)


def within_active():
    model = Functional()

    def step(x):
        with dwconv.active():
            return model(x)

    return step


def called():
    weight = nn.Parameter(torch.randn(8, 1, 3, 3))
    return lambda x: dwconv.conv2d(x, weight)


@pytest.fixture(autouse=True)
def anew():
    torch._dynamo.reset()
    dwconv.reset()


def convolutions(seen):
    """A backend that notes which convolutions forward and backward graphs hold."""

    def note(graph, example):
        names = (str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        seen.extend(name.removesuffix(".default") for name in names if "conv" in name)
        return graph

    return aot_autograd(fw_compiler=note)


@pytest.mark.filterwarnings("ignore:.* run on PyTorch's own op. .*tune them")
@pytest.mark.parametrize("make", [layer, functional, within_active, called])
def test_a_compiled_graph_holds_dwconvs_ops(make, recwarn):
    seen: list[str] = []
    torch.compile(make(), backend=convolutions(seen), fullgraph=True)(X).sum().backward()
    assert seen == ["dwconv.fprop", "dwconv.wgrad"] or seen == ["dwconv.fprop", "dwconv.wgrad_bias"]
    assert not [each for each in recwarn if "treats it as an export" in str(each.message)]


@pytest.mark.filterwarnings("ignore:.* run on PyTorch's own op. .*tune them")
def test_code_that_is_compiled_and_then_called_under_active(recwarn):
    seen: list[str] = []
    step = torch.compile(Functional(), backend=convolutions(seen), fullgraph=True)
    with dwconv.active():
        y = step(X)
    y.sum().backward()
    assert seen == ["dwconv.fprop", "dwconv.wgrad"]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("make", [layer, functional])
def test_what_is_exported_holds_pytorchs(make, strict, recwarn):
    graph = torch.export.export(make(), (X,), strict=strict).graph
    names = [str(node.target) for node in graph.nodes if node.op == "call_function"]
    assert [name for name in names if "conv" in name] in (["aten.conv2d.default"], ["aten.conv1d.default"])
    assert not [each for each in recwarn if issubclass(each.category, DwconvWarning)]


def test_a_compiler_that_takes_everything_for_an_export_is_named_once(monkeypatch):
    monkeypatch.setattr(dispatched, "is_recorded_for_elsewhere", lambda: True)
    seen: list[str] = []
    with pytest.warns(DwconvWarning, match="treats it as an export") as told:
        for make in (layer, called):
            torch.compile(make(), backend=convolutions(seen), fullgraph=True)(X)
    assert len(told) == 1 and "dwconv.fprop" not in seen
