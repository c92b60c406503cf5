"""Times of tasks: which counts are timed, what is said of the others, and how well; a trial changes nothing."""

from __future__ import annotations

import math
import random
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bench.concurrency.times import accuracy
from dwconv import native
from dwconv.concurrency import task_timer
from dwconv.concurrency.choose_schedule import Trial
from dwconv.concurrency.counters import available
from dwconv.concurrency.hill_climbing import HillClimbing, estimated_us, interpolated
from dwconv.concurrency.learners import learners, learnt
from dwconv.concurrency.machine_costs import change_cost_us, handover_us, python_handover_us
from dwconv.concurrency.split_gradients import split
from dwconv.concurrency.task_timer import TaskTimer, TimeLeft, made_up
from dwconv.concurrency.tasks import cut
from dwconv.concurrency.time_regression import Counts, Profile, Regression, features, sweep
from dwconv.records.record import Measurement
from tests.made_up_graphs import task
from tests.traced_graphs import branches, branches_inputs, traced


class TimedCounts:
    """Times by a formula; remembers which counts were requested."""

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
    model = HillClimbing(cores=64)
    for index in range(2):  # a signature is timed once
        assert model.curve(task(index, signature="the same"), timed).best_threads() == 1
        assert timed.counts == [1, 2, 4]


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
    model = Regression(cores=1)
    model.fit(made_up_tasks(3), TimedTasks())
    assert model.learnt is None and list(model.predicted(task(0), TimedTasks()).median_us) == [1]


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
    profile = Profile(us={1: 10.0, 4: 5.0})
    assert features(small, profile) != features(large, profile)
    assert list(features(task(0, signature="nothing in brackets"), profile)) == list(features(small, profile))


def test_counters_of_a_run_are_features_by_instruction_and_cpu_time_by_time():
    hardware = {"cycles": 4e6, "instructions": 2e6, "cache-misses": 2e3}
    found = features(task(0), Profile(us={1: 1000.0}, counts={1: hardware}))
    assert found["cycles on 1"] == pytest.approx(math.log1p(2000)) and found["cache-misses on 1"] == math.log1p(1)
    software = {"task-clock": 3e6, "page-faults": 0.0}
    found = features(task(0), Profile(us={1: 1000.0}, counts={1: software, 2: software}))
    assert found["task-clock on 2"] == pytest.approx(math.log(3)) and found["page-faults on 2"] == 0.0


class CacheMisses:
    """Tasks that look alike, of which those with many misses do not get faster with more threads."""

    def __init__(self):
        self.counted = []

    def misses(self, task):
        return 5e5 if task.index % 2 else 1e3

    def timed(self, task, threads):
        return 100.0 + task.index % 5 if task.index % 2 else (100.0 + task.index % 5) / threads

    def counts(self, task, threads):
        self.counted.append((task.index, threads))
        return {"instructions": 1e6, "cache-misses": self.misses(task)}


def test_the_counter_that_decides_is_selected_and_makes_predictions_better():
    tasks = [task(index, signature=f"number {index}", flops=1e6, bytes_=1 << 20) for index in range(40)]
    made = CacheMisses()
    swept = sweep(tasks, made.timed, cores=2)
    errors = {}
    for counts in (None, Counts(events=("instructions", "cache-misses", "page-faults"), of=made.counts)):
        model = Regression(cores=2, counts=counts)
        model.fit(tasks, made.timed)
        predicted = {each.signature: model.predicted(each, made.timed) for each in tasks}
        errors[counts is not None] = accuracy(predicted, swept).error
    assert any(feature.startswith("cache-misses") for feature in model.learnt.features[:2])
    assert errors[True] < 0.02 < 0.1 < errors[False]
    assert set(made.counted) == {(each.index, threads) for each in tasks for threads in (1, 2)}
    assert len(made.counted) == 2 * len(tasks), "a signature is profiled once"


def test_features_that_say_nothing_are_left_out():
    draw = np.random.default_rng(0)
    rows = draw.uniform(-1, 1, (60, 12))
    found = learnt(rows, rows[:, 7] * 2.0, list(range(60)), weights=np.ones(60), names=[*"abcdefghijkl"])
    assert found.features == ("a", "h") and found.error < 0.05
    assert found.predict(rows) == pytest.approx(rows[:, 7] * 2.0, abs=0.1)


@pytest.mark.parametrize("cores, counts", [(1, (1,)), (2, (1,)), (3, (1, 3)), (8, (1, 8)), (16, (1, 4, 16))])
def test_two_or_three_counts_are_profiled(cores, counts):
    assert Regression(cores=cores).profiled_counts == counts


@pytest.mark.skipif(not available().events, reason="nothing can be counted here")
def test_runs_of_a_task_are_counted_for_real_until_the_time_is_up(monkeypatch):
    found = cut(split(traced(branches, branches_inputs())))
    timer, before = TaskTimer([found], budget=TimeLeft(60)), torch.get_num_threads()
    first = found.graph.tasks[0]
    assert set(timer.counts(first, 2)) == set(available().events) and torch.get_num_threads() == before
    assert TaskTimer([found], budget=TimeLeft(0)).counts(first, 2) == {}


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


def test_a_task_is_timed_once_for_each_count_and_signature_and_estimated_once_time_is_up(monkeypatch):
    asked, now_s = [], [0.0]

    def timed(calls, *, clock, effort):
        calls["task"]()
        asked.append(torch.get_num_threads())
        now_s[0] += 1.0
        return {"task": Measurement(median_us=1000.0 / torch.get_num_threads(), spread_us=0.0, rounds=1)}

    monkeypatch.setattr(task_timer, "time_in_turns", timed)
    monkeypatch.setattr(task_timer, "now_s", lambda: now_s[0])
    found = cut(split(traced(branches, branches_inputs())))
    timer = TaskTimer([found], budget=TimeLeft(4.0))
    before = torch.get_num_threads()
    first, *others = {each.signature: each for each in found.graph.tasks}.values()
    assert [timer(first, threads) for threads in (1, 2, 1)] == [1000.0, 500.0, 1000.0]
    assert asked == [1, 2] and torch.get_num_threads() == before
    for each in others:
        assert timer(each, 1) > 10 * estimated_us(each, 1)  # by the ratio of what was measured to its estimates
    assert asked == [1, 2, 1, 1] and timer.measured == 4 and timer.estimated == len(others) - 2


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_task_is_timed_as_lanes_run_it(monkeypatch, is_compiled):
    """In compiled code, where there is some: then its Python is not called."""
    if not is_compiled:
        monkeypatch.setattr(native, "module", None)
        monkeypatch.setattr(native, "soon", lambda: None)
    elif native.native() is None:
        pytest.skip("no C++ compiles here")
    found = cut(split(traced(branches, branches_inputs())))
    called = []

    def watched(task, function):
        return lambda values: (called.append(task), function(values))

    watching = replace(found, functions=tuple(watched(*each) for each in enumerate(found.functions)))
    timer = TaskTimer([watching], budget=TimeLeft(60))
    for each in found.graph.tasks:
        timer._call(watching, each.index)()
    assert called == ([] if is_compiled else [each.index for each in found.graph.tasks])


def test_made_up_tensors_lie_as_the_traced_ones():
    base = torch.randn(4, 6)
    for example in (base.t(), base[1:, ::2], base[:, :1].expand(4, 9), torch.ones(3, dtype=torch.int64), base > 0):
        found = made_up(example)
        assert (found.shape, found.stride(), found.dtype) == (example.shape, example.stride(), example.dtype)
        assert not found.is_floating_point() or bool(((found >= 0.5) & (found <= 1.5)).all())
        assert found.is_floating_point() or not found.any()
    assert made_up(7) == 7


def test_a_hand_over_takes_time():
    assert 0 < handover_us() < 1e6 and 0 < python_handover_us() < 1e6


def test_the_cost_of_changing_counts_is_what_an_operator_loses_by_it():
    """It takes 2 ms longer whenever the number of threads has changed since it last ran."""
    threads, before = torch.get_num_threads(), []

    def slow_after_change():
        if before and before[-1] != torch.get_num_threads():
            time.sleep(0.002)
        before.append(torch.get_num_threads())

    assert change_cost_us(cores=2, operator=slow_after_change) > 1000
    assert torch.get_num_threads() == threads
    assert change_cost_us(cores=1, operator=slow_after_change) == 0.0 <= change_cost_us(cores=2)
