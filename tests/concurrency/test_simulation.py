"""Steps on machines that are not here: the form, its fit, what is computed. And the costs that schedules bear."""

from __future__ import annotations

import os
import threading
import time

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bench.concurrency.computed import computed, extrapolated, fitted, joined
from dwconv.concurrency import machine_costs
from dwconv.concurrency.machine_costs import change_cost_us, measured_slots, sibling_pairs
from dwconv.concurrency.schedule import ExtraSlots, Machine
from dwconv.concurrency.strategies import combined
from dwconv.errors import InvalidChoice
from dwconv.measure.clock.contention import allowed_cores
from tests.made_up_graphs import curve, graph, problems, task


@given(serial_us=st.floats(0, 100), parallel_us=st.floats(0.1, 1000), fork_us=st.sampled_from([0.0, 3.0]))
def test_times_that_have_the_form_are_extrapolated_exactly(serial_us, parallel_us, fork_us):
    times = {1: serial_us + parallel_us, 2: serial_us + parallel_us / 2 + fork_us}
    fit = fitted(task(0), curve(*times.values()), fork_us=fork_us)
    assert fit.us(16) == pytest.approx(serial_us + parallel_us / 16 + 4 * fork_us, rel=1e-6, abs=1e-6)


def test_no_part_is_negative():
    """Two threads more than twice as fast, or slower than one."""
    superlinear = fitted(task(0), curve(100, 40))
    assert superlinear.serial_us == 0 and 0 < superlinear.us(64) < 2
    slowed = fitted(task(0), curve(100, 120))
    assert slowed.parallel_us == 0 and 100 < slowed.us(64) < 120


def test_measured_counts_stay_as_measured():
    chain = graph((), (0,))
    extended = extrapolated(chain, {0: curve(100, 70), 1: curve(50, 50)}, cores=8, fork_us=1.0)
    assert [extended[0].median_us[count] for count in (1, 2)] == [100, 70]
    assert sorted(extended[1].median_us) == list(range(1, 9))


def test_a_curve_of_one_count_cannot_be_extrapolated():
    with pytest.raises(InvalidChoice, match="add_0 was timed with one thread only"):
        fitted(task(0), curve(5))


def test_wide_graphs_win_on_many_cores_and_chains_do_not():
    wide, chain = graph(*[()] * 16), graph(*[(), *((i,) for i in range(15))])
    curves = {index: curve(100, 60) for index in range(16)}
    on_16 = Machine(cores=16, handover_us=2.0)
    side_by_side, one_by_one = (computed(each, curves, machine=on_16, strategies=[("S3",)]) for each in (wide, chain))
    assert side_by_side.recommended_us == pytest.approx(16 * (20 + 80 / 16))
    assert side_by_side.strategies_us["S3",] == pytest.approx(100, abs=3)
    assert side_by_side.manual == (16, 1) and side_by_side.manual_us == pytest.approx(100, abs=3)
    assert one_by_one.strategies_us["S3",] == pytest.approx(one_by_one.recommended_us)
    assert one_by_one.manual == (1, 16)


@settings(max_examples=40)
@given(problem=problems(most_tasks=6, most_cores=2))
def test_more_cores_of_the_same_form_never_lengthen_a_step(problem):
    """With S1, where forking costs nothing: a task may do with fewer threads."""
    tasks, curves, machine = problem
    assume(machine.cores == 2)
    few, many = (computed(tasks, curves, machine=Machine(cores=cores), strategies=[("S1",)]) for cores in (8, 16))
    assert many.strategies_us["S1",] <= few.strategies_us["S1",] * (1 + 1e-9)


def test_forward_and_backward_add_up():
    parts = [
        computed(graph((), ()), {0: curve(us, us), 1: curve(us, us)}, machine=Machine(cores=4),
                 strategies=combined())
        for us in (10.0, 30.0)
    ]  # fmt: skip
    step = joined(parts)
    assert step.recommended_us == pytest.approx(20 + 60) and step.strategies_us["S3",] == pytest.approx(10 + 30)
    assert step.manual == parts[1].manual and step.manual_us == pytest.approx(10 + 30)


# -- what a schedule is charged with ---------------------------------------------------------------------------------


class SlowAfterChange:
    """An operator that takes 2 ms longer whenever the number of threads has changed since it last ran."""

    def __init__(self):
        self._before = None

    def __call__(self):
        if self._before not in (None, torch.get_num_threads()):
            time.sleep(0.002)
        self._before = torch.get_num_threads()


def test_the_cost_of_changing_counts_is_what_an_operator_loses_by_it():
    threads = torch.get_num_threads()
    assert change_cost_us(cores=2, operator=SlowAfterChange()) > 1000
    assert torch.get_num_threads() == threads
    assert change_cost_us(cores=1, operator=SlowAfterChange()) == 0.0
    assert change_cost_us(cores=2) >= 0.0


def test_threads_of_one_core_are_found_in_the_system_s_topology(tmp_path, monkeypatch):
    for processor, siblings in {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3", 4: "4"}.items():
        folder = tmp_path / f"cpu{processor}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
    monkeypatch.setattr("dwconv.concurrency.machine_costs.allowed_cores", lambda: {0, 1, 2, 3, 4})
    assert sibling_pairs(topology=tmp_path) == [(0, 2), (1, 3)]
    monkeypatch.setattr("dwconv.concurrency.machine_costs.allowed_cores", lambda: {0, 1, 3})
    assert sibling_pairs(topology=tmp_path) == [(1, 3)]
    (tmp_path / "cpu1" / "topology" / "thread_siblings_list").write_text("nonsense")
    (tmp_path / "cpu3" / "topology" / "thread_siblings_list").write_text("1-3")
    assert sibling_pairs(topology=tmp_path) == [(1, 3)]
    assert sibling_pairs(topology=tmp_path / "none") == []


def test_without_second_hardware_threads_there_are_no_slots():
    assert measured_slots([]) == ExtraSlots()


def test_slowdowns_are_of_equal_work_on_both_threads_of_a_core(monkeypatch):
    rates = {(0,): [1000.0], (0, 2): [800.0, 500.0]}
    monkeypatch.setattr(machine_costs, "_once", lambda processors: rates[tuple(processors)])
    assert measured_slots([(0, 2), (1, 3)]) == ExtraSlots(count=2, slowdown=2.0, neighbour_slowdown=1.25)


@pytest.mark.skipif(allowed_cores() is None, reason="the system does not pin threads to processors")
def test_work_is_pinned_to_the_processors_asked_for_and_the_caller_stays(monkeypatch):
    """The same processor twice stands in for two hardware threads of one core."""
    pinned = []
    pin = os.sched_setaffinity
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, cores: (pinned.append(cores), pin(thread, cores)))
    processor = min(allowed_cores())
    before, threads = allowed_cores(), threading.active_count()
    slots = measured_slots([(processor, processor)])
    assert slots.count == 1 and slots.slowdown >= 1 and slots.neighbour_slowdown >= 1
    assert pinned == [{processor}] * 9  # three times alone, three times both
    assert allowed_cores() == before and threading.active_count() == threads
