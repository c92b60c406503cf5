"""Regression: what is profiled, what is predicted, and how well."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest

from dwconv.concurrency.times import counters
from dwconv.concurrency.times.accuracy import accuracy, sweep
from dwconv.concurrency.times.learners import learners, learnt
from dwconv.concurrency.times.task_features import Profile, features
from dwconv.concurrency.times.time_regression import Regression
from dwconv.errors import InvalidChoice
from tests.made_up_graphs import task


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


def test_learning_beats_a_plain_guess():
    """On two cores the guess is half of the time on one."""
    tasks = made_up_tasks(40)
    model = Regression(cores=2)
    model.fit(tasks, TimedTasks(), trained_on=20)
    swept = sweep(tasks, TimedTasks(), cores=2)
    errors = [abs(model.predicted(each, TimedTasks()).median_us[2] / swept[each.signature].median_us[2] - 1)
              for each in tasks]  # fmt: skip
    guesses = [abs(us[1] / 2 / us[2] - 1) for us in (curve.median_us for curve in swept.values())]
    assert np.mean(errors) < np.mean(guesses) / 2


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
    assert line.errors[line.learner] == min(line.errors.values()) < line.errors["xgboost"]


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
        assert Regression(cores=2).note == reason
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
