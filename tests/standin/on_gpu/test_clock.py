"""The device's clock measures times of calls."""

from __future__ import annotations

import pytest
import torch

from dwconv.errors import CannotBeCaptured
from dwconv.measure.clock.device import CudaClock, leave_default_stream
from dwconv.measure.clock.timing import GLANCE, time_in_turns
from dwconv.problems.workload import Workload
from tests.standin.on_gpu.kernels import Launches, default

WORKLOAD = Workload(pass_="fprop", batch=2, channels=8, input_size=(9, 9), kernel=(3, 3), padding=((1, 1), (1, 1)))


def test_kernels_and_operators_take_time() -> None:
    kernel = default(WORKLOAD, "cuda.fprop_nchw")
    inputs = [torch.ones(WORKLOAD.shape_of(name), device="cuda") for name in WORKLOAD.inputs]
    with torch.inference_mode():
        taken = time_in_turns(
            {"kernel": lambda: kernel(*inputs), "twice": lambda: (kernel(*inputs), kernel(*inputs)),
             "operator": lambda: inputs[0].add(1.0)}, clock=CudaClock(), effort=GLANCE,
        )  # fmt: skip
    assert all(measured.median_us > 0 for measured in taken.values())
    if Launches().seen is not None:  # on a GPU, other things take time, too
        assert taken["twice"].median_us > 1.5 * taken["kernel"].median_us


def test_a_call_that_cannot_be_captured_costs_no_other_its_graph() -> None:
    ones, clock = torch.ones(4, device="cuda"), CudaClock()
    clock.ready(lambda: ones.add(1.0))
    with pytest.raises(CannotBeCaptured):
        clock.ready(lambda: (ones.add(1.0), torch.cuda.synchronize()))
    assert time_in_turns({"next": lambda: ones.add(1.0)}, clock=clock, effort=GLANCE)["next"].median_us > 0


def test_a_backward_pass_is_captured_whose_forward_pass_ran_before() -> None:
    before = torch.cuda.current_stream()
    leave_default_stream()
    try:
        ours = torch.cuda.current_stream()
        x = torch.ones(4, device="cuda", requires_grad=True)
        y, streams = x.exp(), set[int]()

        def backward() -> None:
            streams.add(torch.cuda.current_stream().cuda_stream)
            torch.autograd.grad(y, x, torch.ones_like(y), retain_graph=True)

        captured = CudaClock().ready(backward)
        assert ours.cuda_stream in streams and ours != torch.cuda.default_stream()
        captured()
    finally:
        torch.cuda.set_stream(before)
