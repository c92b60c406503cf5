"""What a result says of the time, the limit and the trials of its search."""

from __future__ import annotations

import dataclasses

import pytest

from dwconv.tuner.search.search_result import Budget, TuningResult
from tests.planted_records import record_of, workload_of


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
