"""bfloat16 and float16 on the CPU: tuned kernels run them, under autocast and without."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn import functional as F

import dwconv
from dwconv.call.call_plan import plans
from dwconv.problems.workload import PASSES
from tests.planted_records import plant, workload_of

WORKLOADS = (workload_of(bias=True), workload_of(shape=(2, 8, 4, 6, 5), kernel=(3, 3, 3), bias=True))
CONVOLUTIONS = {2: F.conv2d, 3: F.conv3d}
MODELS = {2: torch.nn.Conv2d, 3: torch.nn.Conv3d}
CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}
TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@pytest.fixture(params=TYPES)
def dtype(request, logs):
    """One of the types, whose kernels are tuned."""
    plant(logs / "cpu.jsonl", [dataclasses.replace(workload, dtype=request.param) for workload in WORKLOADS])
    return TYPES[request.param]


@pytest.fixture(params=WORKLOADS, ids=["2-D", "3-D"])
def size(request):
    return request.param.input_size


def model_of(dtype, size):
    torch.manual_seed(0)
    return MODELS[len(size)](8, 8, 3, padding=1, groups=8, dtype=dtype)


def step(convolve, x, autocast):
    with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
        y = convolve(x)
        loss = (y.float() * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum()
    loss.backward()
    return y


@pytest.mark.parametrize("autocast", [True, False])
def test_every_pass_of_a_converted_layer_runs_a_kernel(dtype, size, autocast):
    given, convolve, memory_format = (
        torch.float32 if autocast else dtype,
        CONVOLUTIONS[len(size)],
        CHANNELS_LAST[len(size)],
    )
    ours, theirs = dwconv.convert(model_of(given, size)), model_of(given, size)
    images = [torch.randn(2, 8, *size, generator=torch.Generator().manual_seed(1)).to(given) for _ in range(2)]
    x, exact = (image.contiguous(memory_format=memory_format).requires_grad_() for image in images)
    y = step(ours, x, dtype if autocast else None)
    # What PyTorch computes in float64 from the numbers that the layer was given, rounded to its type.
    lowered = [each.detach().to(dtype).double() for each in (exact, theirs.weight, theirs.bias)]
    for each in lowered:
        each.requires_grad_()
    expected = step(lambda image: convolve(image, *lowered[1:], padding=1, groups=8).to(dtype), lowered[0], None)
    assert y.dtype is dtype and y.is_contiguous(memory_format=memory_format)
    assert {plan.problem.dtype for plan in plans()} == {dtype}
    for pass_ in PASSES:
        assert any(plan.kernels.get(pass_) for plan in plans()), f"{pass_} ran on PyTorch's op"
    tolerance = {"rtol": 4 * torch.finfo(dtype).eps, "atol": torch.finfo(dtype).eps}
    torch.testing.assert_close(y, expected, **tolerance)
    for got, wanted in zip((x, ours.weight, ours.bias), lowered, strict=True):
        assert got.grad.dtype is given
        torch.testing.assert_close(got.grad.double(), wanted.grad, **tolerance)
