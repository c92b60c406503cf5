"""The one derivative: each gradient is computed by the pass of its place, from the other two tensors, and only if it
is wanted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

import dwconv
from dwconv.call import torch_ops
from dwconv.call.gradients import Needs, Tied, gradients
from dwconv.call.passes import PlannedPasses
from tests.native_needed import go_through_python
from tests.planted_records import plant, workload_of


class Told:
    """Passes that compute nothing, and tell what they were asked for, in order. ``at_once``: both gradients of fprop
    come from one kernel."""

    def __init__(self, *, at_once=False):
        self.asked = []
        self._at_once = at_once

    def fprop(self, x, w, bias):
        self.asked.append("fprop")
        return ("fprop", x, w, bias)

    def dgrad(self, dy, w):
        self.asked.append("dgrad")
        return ("dgrad", dy, w)

    def wgrad(self, x, dy):
        self.asked.append("wgrad")
        return ("wgrad", x, dy)

    def wgrad_bias(self, x, dy):
        self.asked.append("wgrad_bias")
        return ("wgrad", x, dy), ("dbias", x, dy)

    def backward(self, x, dy, w):
        return (("dx", x, dy, w), ("dw", x, dy, w)) if self._at_once else None


def test_of_fprop():
    told = Told()
    found = gradients(told, Tied(x="x", w="w", y="dy"), Needs(x=True, w=True))
    assert found == Tied(x=("dgrad", "dy", "w"), w=("wgrad", "x", "dy"))
    assert told.asked == ["wgrad", "dgrad"]  # dx last: what comes next reads it


def test_of_fprop_at_once_if_both_are_needed_and_no_bias_is():
    told, tied = Told(at_once=True), Tied(x="x", w="w", y="dy")
    assert gradients(told, tied, Needs(x=True, w=True)) == Tied(x=("dx", "x", "dy", "w"), w=("dw", "x", "dy", "w"))
    assert told.asked == []
    for needs in (Needs(x=True), Needs(w=True), Needs(x=True, w=True, bias=True), Needs(x=True, w=True, y=True)):
        told.asked.clear()
        gradients(told, tied, needs)
        assert len(told.asked) == needs.x + needs.w + needs.y


def test_of_fprop_with_a_bias():
    found = gradients(Told(), Tied(x="x", w="w", y="dy"), Needs(w=True, bias=True))
    assert found == Tied(w=("wgrad", "x", "dy"), bias=("dbias", "x", "dy"))


def test_of_fprop_for_a_bias_alone():
    told, dy = Told(), torch.randn(2, 3, 4, 5)
    found = gradients(told, Tied(y=dy), Needs(bias=True))
    torch.testing.assert_close(found.bias, dy.sum((0, 2, 3)))
    assert (found.x, found.w, found.y, told.asked) == (None, None, None, [])


def test_of_dgrad():
    found = gradients(Told(), Tied(x="ddx", w="w", y="dy"), Needs(w=True, y=True))
    assert found == Tied(w=("wgrad", "ddx", "dy"), y=("fprop", "ddx", "w", None))


@pytest.mark.parametrize("ddbias", [None, "ddbias"])
def test_of_wgrad(ddbias):
    found = gradients(Told(), Tied(x="x", w="ddw", bias=ddbias, y="dy"), Needs(x=True, y=True))
    assert found == Tied(x=("dgrad", "dy", "ddw"), y=("fprop", "x", "ddw", ddbias))


def test_gradients_that_are_not_needed_are_not_computed():
    told = Told()
    assert gradients(told, Tied(x="x", w="w", y="dy"), Needs()) == Tied()
    assert told.asked == []


# -- which passes a backward pass runs ---------------------------------------------------------------------------------


WORKLOAD = workload_of()


@pytest.fixture
def ran(logs, monkeypatch) -> list[str]:
    """The passes that run, in order."""
    plant(logs / "log.jsonl", [WORKLOAD], baseline_us=1e6)
    go_through_python(monkeypatch)
    noted: list[str] = []

    def note(name: str) -> None:
        run = getattr(PlannedPasses, name)
        monkeypatch.setattr(PlannedPasses, name, lambda self, *args: noted.append(name) or run(self, *args))

    for name in ("fprop", "dgrad", "wgrad", "wgrad_bias"):
        note(name)
    return noted


def quick(x: Tensor, w: Tensor) -> Tensor:
    return dwconv.conv2d(x, w, padding=1)


def by_the_op(x: Tensor, w: Tensor) -> Tensor:
    return torch_ops.fprop(x, w, None, (1, 1), (1, 1, 1, 1), (1, 1), "nhwc")


def tensors() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x, dy = (torch.randn(WORKLOAD.input_shape).to(memory_format=torch.channels_last) for _ in range(2))
    return x.requires_grad_(), torch.nn.Parameter(torch.randn(8, 1, 3, 3)), dy


@pytest.mark.parametrize("convolve", [quick, by_the_op])
def test_only_requested_passes_run(ran, convolve):
    x, w, dy = tensors()
    y = convolve(x, w)
    for wanted, passes in (((x,), ["dgrad"]), ((w,), ["wgrad"]), ((x, w), ["wgrad", "dgrad"])):
        ran.clear()
        torch.autograd.grad(y, wanted, dy, retain_graph=True)
        assert ran == passes
    ran.clear()
    y.backward(dy)
    assert ran == ["wgrad", "dgrad"]


@pytest.mark.skipif(torch.__version__ < "2.13", reason="PyTorch's pipelining cannot split functions written in Python")
@pytest.mark.parametrize("convolve", [quick, by_the_op])
def test_a_pipeline_that_splits_the_backward_pass_runs_each_once(ran, convolve):
    x, w, dy = tensors()
    expected = torch.autograd.grad(convolve(x, w), (x, w), dy)
    y = convolve(x, w)
    ran.clear()
    (dx,), groups = stage_backward_input([y], [dy], [x], iter([w]))
    assert ran == ["dgrad"]
    stage_backward_weight(iter([w]), groups)
    assert ran == ["dgrad", "wgrad"]
    torch.testing.assert_close((dx, w.grad), expected)
