"""The sentences of a report, with the plurals and the parts that its numbers call for."""

from __future__ import annotations

import pytest

from dwconv.measure.step_share import OnGpu
from dwconv.reporting.words import sums


class Sums:
    """A report's sums, those that a sentence reads."""

    def __init__(self, **sums) -> None:
        usual = {
            "model": "TinyNet",
            "rows": (),
            "converted": 1,
            "of_an_example": False,
            "unknown": 0,
            "share": None,
            "share_on_pytorch": None,
            "on_gpu": None,
        }
        self.__dict__.update({**usual, "depthwise_us": 0.0, "saved_us": 0.0, "to_win_us": 0.0, **sums})


@pytest.mark.parametrize(
    ("figures", "lines"),
    [
        ({}, ["a step: nothing is measured yet", "still to win by tuning: nothing is expected"]),
        (
            {"depthwise_us": 3000.0, "saved_us": 1000.0, "to_win_us": 300.0},
            [
                "a step: 3 ms of depthwise convolution, 4 ms on PyTorch's op: 1 ms saved (25%)",
                "still to win by tuning: about 300 µs a step (10%)",
            ],
        ),
        (
            {"depthwise_us": 3000.0, "to_win_us": 300.0, "unknown": 1},
            [
                "a step: 3 ms of depthwise convolution, 3 ms on PyTorch's op: 0 µs saved (0%)",
                "without 1 pass whose time is not known",
                "still to win by tuning: about 300 µs a step",
            ],
        ),
        (
            {"depthwise_us": 3000.0, "unknown": 1, "share": 0.25, "share_on_pytorch": 0.004},
            [
                "a step: 3 ms of depthwise convolution, 3 ms on PyTorch's op: 0 µs saved (0%)",
                "of a whole step, without the optimizer, it is 25%, on PyTorch's op 0.4%",
                "without 1 pass whose time is not known",
                "still to win by tuning: nothing is expected",
            ],
        ),
    ],
)
def test_the_sums_of_a_step(figures, lines):
    assert sums(Sums(**figures)) == lines


@pytest.mark.parametrize("kernels_ms", [2.0, 9.0])
def test_a_step_that_the_host_limits_is_reported(kernels_ms):
    on_gpu = OnGpu(host_ms=9.5, step_ms=10.0, kernels_ms=kernels_ms, launches=40)
    _, told, *more = sums(Sums(on_gpu=on_gpu))
    busy = f"{kernels_ms:.3g} ms of 40 kernels: the GPU is busy for {kernels_ms / 10:.0%} of it"
    assert told == f"op by op it takes 9.5 ms of the host beside {busy}"
    assert more[:-1] == ["the host is the bottleneck: dwconv.graphed(model, example_inputs) makes it two launches"] * (
        kernels_ms == 2.0
    )
