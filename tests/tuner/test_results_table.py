"""What people see of a workload while it is tuned, and what its result says of time, limit and trials."""

from __future__ import annotations

import dataclasses
import io

import pytest
import rich.console

from dwconv.problems.workload import Workload
from dwconv.tuner.results_table import Progress, label
from dwconv.tuner.search.search_result import Budget, TuningResult
from tests.planted_records import record_of, workload_of

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


def test_trials_that_the_log_knew_were_not_measured():
    result = TuningResult(workload=workload_of(), device="d", budget=Budget(), trials=12, resumed=5)
    assert (result.measured, result.median_us, result.percent_of_limit, result.computed) == (7, None, None, False)


def test_the_share_of_the_limit_that_the_best_reaches():
    best = record_of(workload_of(), median_us=50.0)
    result = TuningResult(workload=workload_of(), device="d", budget=Budget(), best=best, limit_us=40.0)
    assert (result.median_us, result.percent_of_limit, result.beyond_limit) == (50.0, 80.0, False)
    beyond = dataclasses.replace(result, limit_us=50.1)
    assert beyond.beyond_limit and beyond.percent_of_limit is None
    unknown = dataclasses.replace(result, best=None)
    assert not unknown.beyond_limit and unknown.percent_of_limit is None


@pytest.mark.parametrize(
    ("trials", "seconds", "left_s"),
    [(20, None, 10.0), (None, 7.0, 3.0), (20, 7.0, 3.0), (11, 70.0, 1.0), (None, 2.0, 0.0), (None, None, None)],
)
def test_the_time_left_is_that_of_the_budget_that_ends_first(trials, seconds, left_s):
    """10 trials, 6 of the log, in 4 s: a second each."""
    budget = Budget(trials=trials, seconds=seconds)
    result = TuningResult(workload=workload_of(), device="d", budget=budget, trials=10, resumed=6, elapsed_s=4.0)
    assert result.time_left_s == left_s
