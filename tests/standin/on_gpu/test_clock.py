"""The device's clock measures times of calls."""

from __future__ import annotations

import torch

from dwconv.measure.clock.cuda_clock import CudaClock
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
