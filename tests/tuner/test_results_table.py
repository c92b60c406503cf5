"""What people see of a workload while it is tuned, and what its result says of time, limit and trials."""

from __future__ import annotations

import dataclasses
import io

import pytest
import rich.console

from dwconv.problems.workload import Workload
from dwconv.tuner.results_table import Outcome, Progress, label, state, table_lines
from dwconv.tuner.search.search_result import Budget, TuningResult
from tests.planted_records import record_of, workload_of

USUAL = Workload(
    pass_="fprop", batch=8, channels=144, input_size=(56, 40), kernel=(5, 3), padding=((2, 2), (1, 1)), layout="nhwc"
)


def test_on_a_terminal_the_live_line_has_the_pass_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is drawn over and over, and has to fit on one line."""
    printed, usual = io.StringIO(), rich.console.Console
    monkeypatch.setattr(
        rich.console, "Console", lambda **options: usual(**options | {"file": printed, "force_terminal": True})
    )
    with Progress(workloads=2) as progress:
        for workload in (USUAL, USUAL.for_pass("dgrad")):
            progress.begin(workload)
            progress.finish("no template")
    said = printed.getvalue()
    assert f"[2/2] dgrad {label(USUAL)}: no template" in said and "[2/2] dgrad: starting" in said
    several = dataclasses.replace(USUAL, any_size=True, also_at=((64, 40),))
    assert label(several) == "--shape 8,144,56,40 --kernel 5,3 --layout nhwc --sizes 64x40"


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


def test_less_than_a_second_left_is_no_time():
    """What comes then, the finalists, takes some seconds."""
    result = TuningResult(workload=workload_of(), device="d", budget=Budget(trials=None, seconds=9.0), trials=10)
    assert ", 5 s left," in state(dataclasses.replace(result, elapsed_s=4.0))
    for elapsed_s in (8.6, 9.0, 11.0):
        words = state(dataclasses.replace(result, elapsed_s=elapsed_s))
        assert "s left" not in words and "about to confirm the best" in words


def test_a_contended_time_has_no_ratio():
    record = record_of(workload_of(), median_us=50.0, baseline_us=50.0 * 4928)
    taken = dataclasses.replace(record.measurement, contention=0.5)
    contended = dataclasses.replace(record, measurement=taken, confirmed=False)
    assert contended.inconclusive
    for best, ratio in ((record, "4928.00"), (contended, None)):
        result = TuningResult(workload=workload_of(), device="d", budget=Budget(), trials=10, best=best)
        lines = [state(result), *table_lines([Outcome(workload=workload_of(), result=result)])]
        assert any("4928" in line.replace(" 246400", "") for line in lines) is (ratio is not None), lines
        assert any("(contended)" in line for line in lines) is (ratio is None)
