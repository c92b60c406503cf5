"""How a workload is called in front of people, and what they see while it is tuned."""

from __future__ import annotations

import dataclasses
import io

import pytest
import rich.console

from dwconv.problems.workload import Workload
from dwconv.tuner.results_table import Progress, label

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


def test_on_a_terminal_a_layer_is_named_once_above_its_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The live line, which is drawn over and over, has the pass alone: it has to fit on one line."""
    printed, usual = io.StringIO(), rich.console.Console
    monkeypatch.setattr(
        rich.console, "Console", lambda **options: usual(**options | {"file": printed, "force_terminal": True})
    )
    other = dataclasses.replace(USUAL, channels=72)
    with Progress(workloads=3) as progress:
        for workload in (USUAL, USUAL.for_pass("dgrad"), other):
            progress.begin(workload)
            progress.skip("no template")
    above = [line for line in printed.getvalue().splitlines() if "k5,3" in line]
    assert [line.rpartition("]")[2].strip() for line in above] == [label(USUAL), label(other)]
    assert "[1/3]" in above[0] and "[3/3]" in above[1]
