"""How a workload is called in front of people."""

from __future__ import annotations

import dataclasses

import pytest

from dwconv.problems.workload import Workload
from dwconv.tuner.progress import label

USUAL = Workload(
    pass_="fprop", batch=8, channels=144, input_size=(56, 40), kernel=(5, 3), padding=((2, 2), (1, 1)), layout="nhwc"
)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "8,144,56,40 k5,3 float32 nhwc"),
        ({"stride": (2, 2), "bias": True}, "8,144,56,40 k5,3 s2 bias float32 nhwc"),
        ({"padding": ((0, 0), (0, 0))}, "8,144,56,40 k5,3 p0,0 float32 nhwc"),
        ({"padding": ((2, 2), (2, 0))}, "8,144,56,40 k5,3 p2,2:0 float32 nhwc"),
        ({"dilation": (2, 1), "padding": ((4, 4), (1, 1))}, "8,144,56,40 k5,3 d2,1 float32 nhwc"),
        ({"dilation": (2, 1)}, "8,144,56,40 k5,3 p2,1 d2,1 float32 nhwc"),
        ({"multiplier": 2, "dtype": "float16", "layout": "nchw"}, "8,144,56,40 k5,3 m2 float16 nchw"),
    ],
)
def test_what_is_usual_is_left_out(changes: dict[str, object], said: str) -> None:
    assert label(dataclasses.replace(USUAL, **changes)) == said  # type: ignore[arg-type]
