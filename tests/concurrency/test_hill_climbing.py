"""Hill climbing: which counts are timed, and what is said of the others."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dwconv.concurrency.times.accuracy import accuracy, sweep
from dwconv.concurrency.times.hill_climbing import HillClimbing
from dwconv.concurrency.times.interpolation import amdahl_us, interpolated
from tests.made_up_graphs import curve, task


class TimedCounts:
    """Times by a formula; remembers which counts were asked for."""

    def __init__(self, formula):
        self._formula = formula
        self.counts = []

    def __call__(self, task, threads):
        self.counts.append(threads)
        return self._formula(threads)


def test_counts_are_doubled_up_to_all_cores_while_time_falls():
    timed = TimedCounts(lambda threads: 5 + 100 / threads)
    found = HillClimbing(cores=12).curve(task(0), timed)
    assert timed.counts[:5] == [1, 2, 4, 8, 12]
    assert found.best_threads() == 12 and sorted(found.median_us) == list(range(1, 13))


def test_the_climb_ends_where_time_has_risen_twice_and_then_looks_at_the_neighbours():
    timed = TimedCounts(lambda threads: 100 / threads + 4 * threads)  # least at 5
    found = HillClimbing(cores=64).curve(task(0), timed)
    assert timed.counts[:5] == [1, 2, 4, 8, 16] and 32 not in timed.counts
    assert 64 not in timed.counts and len(timed.counts) <= 9
    assert found.best_threads() == 5


def test_a_task_that_gains_nothing_from_threads_costs_three_runs():
    timed = TimedCounts(lambda threads: 10.0 * threads)
    assert HillClimbing(cores=64).curve(task(0), timed).best_threads() == 1
    assert timed.counts == [1, 2, 4]


def test_a_signature_is_timed_once():
    model, timed = HillClimbing(cores=2), TimedCounts(lambda threads: 3.0)
    for index in range(4):
        model.curve(task(index, signature="the same"), timed)
    assert timed.counts == [1, 2] and model.runs == 2
    model.curve(task(5, signature="another"), timed)
    assert model.runs == 4


@given(
    cores=st.integers(1, 70),
    serial_us=st.floats(0.1, 100),
    parallel_us=st.floats(0.1, 1000),
    thread_us=st.floats(0, 20),
)
def test_few_runs_and_a_choice_near_the_best_of_any_curve_with_one_valley(cores, serial_us, parallel_us, thread_us):
    timed = TimedCounts(lambda threads: serial_us + parallel_us / threads + thread_us * (threads - 1))
    one = task(0)
    found = HillClimbing(cores=cores).curve(one, timed)
    assert len(timed.counts) == len(set(timed.counts)) <= 2 * math.log2(cores) + 6
    true = sweep([one], timed, cores=cores)
    assert accuracy({one.signature: found}, true).slower_than_best < 0.12


def test_between_counts_amdahl_is_met_exactly():
    found = interpolated({1: 110.0, 4: 35.0, 10: 20.0}, cores=10)
    assert [found.median_us[count] for count in range(1, 11)] == pytest.approx([10 + 100 / n for n in range(1, 11)])


def test_beyond_the_last_count_time_does_not_fall():
    assert interpolated({1: 50.0, 2: 60.0}, cores=4).median_us == {1: 50, 2: 60, 3: 70, 4: 80}
    assert interpolated({1: 60.0, 2: 50.0}, cores=4).median_us == {1: 60, 2: 50, 3: 50, 4: 50}
    assert interpolated({1: 60.0}, cores=3).median_us == {1: 60, 2: 60, 3: 60}


def test_amdahl_through_one_thread_and_all_cores():
    us = [amdahl_us(n, one_us=110.0, all_us=20.0, cores=10) for n in (1, 2, 5, 10)]
    assert us == pytest.approx([110, 60, 30, 20])
    assert amdahl_us(1, one_us=7.0, all_us=7.0, cores=1) == 7


def test_accuracy_is_the_mean_error_and_what_the_choice_loses():
    swept = {"a": curve(10, 5), "b": curve(10, 20)}
    predicted = {"a": curve(10, 6), "b": curve(10, 8)}
    found = accuracy(predicted, swept)
    assert found.tasks == 2
    assert found.error == pytest.approx((0 + 0.2 + 0 + 0.6) / 4)
    assert found.slower_than_best == pytest.approx((5 + 20) / (5 + 10) - 1)
    assert "20.0% mean error over 2 tasks, chosen counts 66.7% slower than the best" in str(found)
