"""What a schedule is charged with: changing numbers of threads, and the second hardware threads of a core."""

from __future__ import annotations

import os
import threading
import time

import pytest
import torch

from dwconv.concurrency import machine_costs
from dwconv.concurrency.machine_costs import change_cost_us, measured_slots, sibling_pairs
from dwconv.concurrency.schedule import ExtraSlots
from dwconv.measure.clock.contention import allowed_cores


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
def test_work_is_pinned_to_the_requested_processors_and_the_caller_stays(monkeypatch):
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
