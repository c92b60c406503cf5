"""Second hardware threads: found in the system's topology, measured against each other, and pinned to."""

from __future__ import annotations

import os
import threading
from dataclasses import replace

import pytest
import torch

from dwconv.concurrency import engine, second_threads
from dwconv.concurrency.engine import Engine
from dwconv.concurrency.second_threads import (
    idle_pairs,
    measured_slots,
    pinned,
    processor_of,
    sibling_pairs,
    warn_of_refusals,
)
from dwconv.concurrency.task_graph import ExtraSlots, Placement, Schedule
from dwconv.concurrency.tasks import cut
from dwconv.errors import DwconvWarning
from dwconv.system.cpu_facts import allowed_cores
from tests.traced_graphs import branches, branches_inputs, traced

needs_pinning = pytest.mark.skipif(allowed_cores() is None, reason="the system does not pin threads to processors")


@pytest.fixture
def topology(tmp_path, monkeypatch):
    """Two cores with two processors each, and one with a single one."""
    for processor, siblings in {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3", 4: "4"}.items():
        folder = tmp_path / f"cpu{processor}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
    monkeypatch.setattr(second_threads, "TOPOLOGY", tmp_path)
    monkeypatch.setattr(second_threads, "allowed_cores", lambda: {0, 1, 2, 3, 4})
    return tmp_path


def test_threads_of_one_core_are_found_among_those_that_may_be_used(topology, monkeypatch):
    assert sibling_pairs() == [(0, 2), (1, 3)]
    monkeypatch.setattr(second_threads, "allowed_cores", lambda: {0, 1, 3})
    assert sibling_pairs() == [(1, 3)]
    (topology / "cpu1" / "topology" / "thread_siblings_list").write_text("nonsense")
    (topology / "cpu3" / "topology" / "thread_siblings_list").write_text("1-3")
    assert sibling_pairs() == [(1, 3)]
    monkeypatch.setattr(second_threads, "TOPOLOGY", topology / "none")
    assert sibling_pairs() == []


@pytest.mark.parametrize("cores, pairs", [(1, []), (2, [(0, 2), (1, 3)]), (3, [(0, 2), (1, 3)]), (4, []), (5, [])])
def test_second_threads_are_idle_while_there_are_no_more_threads_than_cores(topology, cores, pairs):
    assert idle_pairs(cores) == pairs
    wanted = {cores: 2, cores + 1: 3} if pairs else {}
    for worker in range(cores + 2):
        assert processor_of(worker, cores=cores) == wanted.get(worker)


def test_without_second_hardware_threads_there_are_no_slots():
    assert measured_slots([]) == ExtraSlots()


def test_slowdowns_are_of_equal_work_on_both_threads_of_a_core(monkeypatch):
    rates = {(0,): [1000.0], (0, 2): [800.0, 500.0]}
    monkeypatch.setattr(second_threads, "_once", lambda processors: rates[tuple(processors)])
    assert measured_slots([(0, 2), (1, 3)]) == ExtraSlots(count=2, slowdown=2.0, neighbour_slowdown=1.25)


@needs_pinning
def test_work_is_pinned_to_the_requested_processors_and_the_caller_stays(monkeypatch):
    """One processor, named twice, stands in for two hardware threads of one core."""
    found = []
    real = torch.mm
    monkeypatch.setattr(torch, "mm", lambda *args, **named: (found.append(allowed_cores()), real(*args, **named)))
    monkeypatch.setattr(second_threads, "_RUN_S", 0.001)
    processor = min(allowed_cores())
    before, threads = allowed_cores(), threading.active_count()
    slots = measured_slots([(processor, processor)])
    assert slots.count == 1 and slots.slowdown >= 1 and slots.neighbour_slowdown >= 1
    assert found and all(each == {processor} for each in found)
    assert allowed_cores() == before and threading.active_count() <= threads


@needs_pinning
def test_a_thread_that_cannot_be_pinned_stays_where_it_is_and_that_is_said_once(monkeypatch):
    monkeypatch.setattr(second_threads, "_refused", "")
    monkeypatch.setattr(second_threads, "_warned", False)
    before = allowed_cores()
    warn_of_refusals()
    with pinned(100_000):
        assert allowed_cores() == before
    with pytest.warns(DwconvWarning, match="cannot be kept on processor 100000: Invalid argument; the system places"):
        warn_of_refusals()
    warn_of_refusals()
    with pytest.raises(RuntimeError), pinned(min(before)):
        assert allowed_cores() == {min(before)}
        raise RuntimeError
    assert allowed_cores() == before


@needs_pinning
def test_an_extra_slot_runs_its_tasks_on_the_second_thread_of_a_core(monkeypatch):
    """Worker 1 of a schedule for one core is a slot; one processor stands in for the second one."""
    processor = max(allowed_cores())
    monkeypatch.setattr(engine, "processor_of", lambda worker, *, cores: processor if worker >= cores else None)
    found = cut(traced(branches, branches_inputs()))
    where: dict[int, set[int]] = {}

    def watched(task, function):
        def run(values):
            where[task] = os.sched_getaffinity(0)
            function(values)

        return run

    functions = tuple(watched(*each) for each in enumerate(found.functions))
    watching = replace(found, functions=functions, instructions=None)
    placements = tuple(
        Placement(task=each.index, worker=each.index % 2, threads=1, start_us=each.index, end_us=each.index + 1.0)
        for each in found.graph.tasks
    )
    inputs, before = branches_inputs(), allowed_cores()
    results = Engine(watching, Schedule(strategies=("S4",), cores=1, placements=placements)).run([*inputs])
    assert len(where) > 1
    assert all(cores == ({processor} if task % 2 else before) for task, cores in where.items())
    for result, wanted in zip(results, branches(*inputs), strict=True):
        torch.testing.assert_close(result, wanted)
