"""Who looks at calls from outside of torch.compile: tracers with symbolic sizes, fake tensors, counters of FLOPs."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils.flop_counter import FlopCounterMode

import dwconv
from tests.models import ConformerConvolution, TinyNet
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning")


def gradients(x, w, bias):
    """y, dx, dw, dbias; PyTorch pads an even kernel on one side more."""
    y = dwconv.conv2d(x, w, bias, padding="same")
    return y, *torch.autograd.grad(y.square().sum(), (x, w, bias))


def leaves(*, batch=2, size=(9, 7)):
    tensors = torch.randn(batch, 8, *size), torch.randn(8, 1, 3, 4), torch.randn(8)
    return [tensor.requires_grad_() for tensor in tensors]


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx_traces_forward_and_backward(logs, mode):
    expected = gradients(*(given := leaves()))
    traced = make_fx(gradients, tracing_mode=mode)(*given)
    torch.testing.assert_close(traced(*given), expected)
    if mode == "symbolic":  # what was traced once runs at other sizes, on what was decided for each
        assert "dwconv" in traced.code
        other = leaves(batch=3, size=(6, 11))
        torch.testing.assert_close(traced(*other), gradients(*other))


def test_fake_tensors_of_any_size_give_sizes(logs):
    for shape_env in (None, ShapeEnv()):
        with FakeTensorMode(shape_env=shape_env) as mode:
            given = [mode.from_tensor(tensor) for tensor in leaves()]
            y, dx, dw, db = gradients(*given)
            assert [len(tensor.shape) for tensor in (y, dx, dw, db)] == [4, 4, 4, 1]
            assert y.shape == dx.shape == given[0].shape
            assert dw.shape == given[1].shape


@pytest.mark.parametrize("tuned", [False, True], ids=["pytorch", "dwconv"])
@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (TinyNet(), torch.randn(4, 3, 12, 10)),
        (ConformerConvolution(), torch.randn(2, 20, 16)),
        (nn.Conv2d(8, 16, 4, padding="same", groups=8), torch.randn(2, 8, 9, 7)),
    ],
    ids=["2d", "1d", "even kernel"],
)
def test_as_many_flops_as_the_plain_model(logs, model, inputs, tuned):
    if tuned:
        plant(logs / "log.jsonl", [workload_of(shape=(4, 8, 12, 10))], baseline_us=1e6)
    converted = copy.deepcopy(model)
    dwconv.convert(converted)
    counted = []
    for each in (model, converted):
        with FlopCounterMode(display=False) as counter:
            x = inputs.to(memory_format=torch.channels_last) if tuned and inputs.dim() == 4 else inputs
            each(x.clone().requires_grad_()).sum().backward()
        counted.append(counter.get_total_flops())
    assert counted[0] == counted[1] > 0
