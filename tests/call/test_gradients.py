"""Which passes a backward pass runs: those that are wanted, each once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

import dwconv
from dwconv.call import torch_ops
from dwconv.call.passes import PlannedPasses
from tests.native_needed import go_through_python
from tests.planted_records import plant, workload_of

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
