"""Times of tasks: which counts are timed, what is said of the others, and how well; a trial changes nothing."""

from __future__ import annotations

import math
import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bench.concurrency.times import accuracy
from dwconv.concurrency import counters
from dwconv.concurrency.choose_schedule import Trial
from dwconv.concurrency.gradient_pairs import pairs, split
from dwconv.concurrency.hill_climbing import HillClimbing, amdahl_us, interpolated
from dwconv.concurrency.machine_costs import handover_us
from dwconv.concurrency.task_timer import TaskTimer, made_up, pair_times
from dwconv.concurrency.tasks import cut
from dwconv.concurrency.time_regression import Profile, Regression, features, learners, learnt, sweep
from dwconv.errors import InvalidChoice
from dwconv.measure.clock.timing import Lap
from tests.made_up_graphs import curve, task
from tests.traced_graphs import branches, branches_inputs, traced


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


# -- regression --------------------------------------------------------------------------------------------------------


def made_up_tasks(count, *, seed=0):
    """Convolutions that divide well and additions that memory bounds, of many sizes."""
    draw = random.Random(seed)
    tasks = []
    for index in range(count):
        kind = draw.choice(["aten.convolution", "aten.add"])
        size = draw.uniform(10, 2000)
        flops = size * (1e5 if kind == "aten.convolution" else 1e2)
        tasks.append(task(index, kind=kind, flops=flops, bytes_=int(size * 1e4)))
    return tasks


class TimedTasks:
    """Convolutions: 5 % serial. Additions: no faster beyond three threads."""

    def __init__(self):
        self.asked = []

    def __call__(self, task, threads):
        self.asked.append((task.index, threads))
        one_us = task.bytes / 1e4 + 5
        if "convolution" in task.kind:
            return one_us * (0.05 + 0.95 / threads) + 0.2 * threads
        return one_us * (0.1 + 0.9 / min(threads, 3)) + 0.5 * threads


@pytest.mark.parametrize("cores", [2, 6])
def test_unseen_tasks_are_predicted_from_few_runs(cores):
    tasks, timed = made_up_tasks(60), TimedTasks()
    model = Regression(cores=cores)
    model.fit(tasks, timed, trained_on=24)
    for_training = len(timed.asked)
    curves = {each.signature: model.curve(each, timed) for each in tasks}
    seen_counts = 1 if cores == 2 else 2
    assert len(timed.asked) - for_training == (60 - 24) * seen_counts
    swept = sweep(tasks, TimedTasks(), cores=cores)
    assert sorted(curves[tasks[0].signature].median_us) == list(range(1, cores + 1))
    found = accuracy(curves, swept)
    assert found.error < 0.05 and found.slower_than_best < 0.03
    assert model.learnt is not None and model.learnt.learner in learners()


def test_a_signature_is_profiled_once_and_a_swept_one_is_as_measured():
    tasks, timed = made_up_tasks(5), TimedTasks()
    model = Regression(cores=4)
    model.fit(tasks, timed)
    asked = len(timed.asked)
    for each in tasks:
        assert model.curve(each, timed) == sweep([each], TimedTasks(), cores=4)[each.signature]
    assert len(timed.asked) == asked
    other = task(9, signature="new")
    assert model.curve(other, timed) == model.curve(other, timed)
    assert [count for index, count in timed.asked if index == 9] == [1, 4]


def test_one_core_leaves_nothing_to_predict():
    tasks = made_up_tasks(3)
    model = Regression(cores=1)
    model.fit(tasks, TimedTasks())
    assert model.learnt is None and list(model.predicted(tasks[0], TimedTasks()).median_us) == [1]


def test_a_regression_that_learnt_nothing_says_so():
    with pytest.raises(InvalidChoice, match="no tasks to learn from"):
        Regression(cores=2).fit([], TimedTasks())
    with pytest.raises(InvalidChoice, match="call fit"):
        Regression(cores=2).curve(task(0), TimedTasks())


def test_a_single_task_is_enough_to_learn_from():
    tasks = made_up_tasks(1)
    model = Regression(cores=4)
    model.fit(tasks, TimedTasks())
    assert model.predicted(task(7, bytes_=4 << 20), TimedTasks()).median_us[2] > 0


def test_the_learner_is_the_one_that_errs_least_on_unseen_groups():
    draw = np.random.default_rng(0)
    rows = draw.uniform(-1, 1, (80, 3))
    groups = list(range(80))
    weights = np.ones(80)
    line = learnt(rows, rows @ [1.0, -2.0, 0.5], groups, weights=weights)
    steps = learnt(rows, np.where(rows[:, 0] * rows[:, 1] > 0, 9.0, 7.0), groups, weights=weights)
    assert line.learner.startswith("linear") and steps.learner == "xgboost"
    predicted = steps.predict(np.array([[0.8, 0.8, 0.0], [0.8, -0.8, 0.0]]))
    assert predicted == pytest.approx([9.0, 7.0], abs=0.5)


def test_shapes_and_work_are_features():
    small, large = (task(0, signature=f"aten.mm([{size}, 64], [64, 32])") for size in (8, 512))
    profile = Profile(us={1: 10.0, 4: 5.0}, events=counters.HardwareEvents())
    assert features(small, profile) != features(large, profile)
    assert len(features(task(0, signature="nothing in brackets"), profile)) == len(features(small, profile))
    busy = Profile(us=profile.us, events=counters.HardwareEvents(cycles=100, instructions=250, cache_misses=2))
    told = [(a, b) for a, b in zip(features(small, profile), features(small, busy), strict=True) if a != b]
    assert told == [(0.0, 2.5), (0.0, 8.0)]


# -- hardware counters -----------------------------------------------------------------------------------------------


def test_instructions_are_counted_or_the_reason_is_one_line():
    with counters.counted() as events:
        sum(range(200_000))
    reason = counters.unavailable()
    if reason:
        assert events == counters.HardwareEvents() and "\n" not in reason
    else:
        assert events.instructions > 200_000 and events.cycles > 0


@pytest.fixture
def openings(monkeypatch):
    """Every event opens as a file that counts as planted; or raises what is planted."""
    planted = {"error": None, "values": {}}

    def opened(config, *, thread):
        if planted["error"]:
            raise planted["error"]
        reader, writer = counters.os.pipe()
        planted["values"][reader] = (config, writer)
        return reader

    monkeypatch.setattr(counters, "_open", opened)
    monkeypatch.setattr(counters.sys, "platform", "linux")
    monkeypatch.setitem(counters._SYSTEM_CALLS, os.uname().machine, 0)
    counters.unavailable.cache_clear()
    yield planted
    counters.unavailable.cache_clear()
    for _, writer in planted["values"].values():
        counters.os.close(writer)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(2, "No such file"), "no hardware counters"),
        (PermissionError(1, "not permitted"), "perf_event_paranoid"),
        (OSError(24, "Too many open files"), "Too many open files"),
    ],
)
def test_why_nothing_can_be_counted(openings, error, said):
    openings["error"] = error
    assert said in counters.unavailable()
    with counters.counted() as events:
        pass
    assert events == counters.HardwareEvents()


def test_counts_are_differences_summed_over_threads(openings, monkeypatch):
    reads = {}

    def value(file):
        reads[file] = reads.get(file, 0) + 1
        config, _ = openings["values"][file]
        return 1000 * config + (7 if reads[file] == 2 else 0)

    monkeypatch.setattr(counters, "_value", value)
    monkeypatch.setattr(counters, "_THREADS", FakeThreads(["11", "12"]))
    with counters.counted() as events:
        pass
    assert events == counters.HardwareEvents(cycles=14, instructions=14, cache_misses=14)


class FakeThreads:
    def __init__(self, names):
        self._names = names

    def iterdir(self):
        return [Path("/proc/self/task") / name for name in self._names]


# -- timed for real ----------------------------------------------------------------------------------------------------


def test_a_trial_changes_nothing():
    torch.manual_seed(0)
    weight, mean, x = nn.Parameter(torch.randn(4, 4)), torch.zeros(4), torch.randn(3, 4)
    seen = []

    def graph(weight, mean, x):
        mean.mul_(0.9).add_(x.mean(0))
        seen.append(mean)
        return [(x @ weight + torch.rand(4)).tanh(), x * 2]

    before, state = [weight.detach().clone(), mean.clone(), x.clone()], torch.get_rng_state()
    trial = Trial([weight, mean, x], written=(1,))
    with trial.unchanged():
        (gradient,) = trial.step(graph)()
        trial.step(graph)()
    assert gradient.shape == weight.shape and gradient.abs().sum() > 0 and weight.grad is None
    assert all(map(torch.equal, [weight.detach(), mean, x], before))
    assert mean._version == 0, "autograd would refuse it to a backward pass that has saved it"
    assert torch.equal(torch.get_rng_state(), state) and seen[1].abs().sum() > 0
    with torch.no_grad():
        assert Trial([weight, mean, x], written=(1,)).step(graph)() is None


class Counting:
    """Every call takes a millisecond for each thread that it may not use."""

    def __init__(self):
        self.calls = 0

    def ready(self, call):
        return call

    def lap(self, call, *, times):
        call()
        self.calls += 1
        return Lap(seconds=times * 1e-3 / torch.get_num_threads())

    def enough(self, effort):
        return effort

    def overall(self):
        return lambda: 0.0


def test_a_task_is_timed_once_for_each_count_and_signature():
    found = cut(split(traced(branches, branches_inputs())))
    clock = Counting()
    timer = TaskTimer(found, clock=clock)
    before = torch.get_num_threads()
    us = {(task.index, threads): timer.timed(task, threads) for task in found.graph.tasks for threads in (1, 2)}
    assert us[0, 1] == 1000.0 and us[0, 2] == 500.0 and torch.get_num_threads() == before
    calls = clock.calls
    for each in found.graph.tasks:
        timer.timed(each, 1)
    assert clock.calls == calls


def test_gradients_are_timed_whole_apart_and_at_once():
    found = cut(split(traced(branches, branches_inputs())))
    taken = pair_times(found, TaskTimer(found, clock=Counting()), cores=2)
    assert [each.pair for each in taken] == pairs(found) and len(taken) == 3
    assert all(each.whole_us and each.apart_us and each.at_once_us for each in taken)
    assert pair_times(found, TaskTimer(found, clock=Counting()), cores=1) == []


def test_made_up_tensors_lie_as_the_traced_ones():
    base = torch.randn(4, 6)
    for example in (base.t(), base[1:, ::2], base[:, :1].expand(4, 9), torch.ones(3, dtype=torch.int64), base > 0):
        found = made_up(example)
        assert (found.shape, found.stride(), found.dtype) == (example.shape, example.stride(), example.dtype)
        assert not found.is_floating_point() or bool(((found >= 0.5) & (found <= 1.5)).all())
        assert found.is_floating_point() or not found.any()
    assert made_up(7) == 7


def test_a_hand_over_takes_time():
    assert 0 < handover_us() < 1e6
