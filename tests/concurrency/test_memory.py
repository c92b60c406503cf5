"""Memory: the peak of a schedule, and schedules that stay within a bound."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import torch
from hypothesis import given

from dwconv.concurrency.graph.stored import Stored
from dwconv.concurrency.graph.tasks import cut
from dwconv.concurrency.running.lanes import one_at_a_time
from dwconv.concurrency.scheduling.memory import in_step, peak_bytes, within
from dwconv.concurrency.scheduling.schedule import Placement, Schedule
from dwconv.concurrency.scheduling.strategies import schedules
from tests.made_up_graphs import graph, problems
from tests.traced_graphs import branches, branches_inputs, traced


def serial(tasks):
    placements = tuple(
        Placement(task=task.index, worker=0, threads=1, start_us=task.index, end_us=task.index + 1.0)
        for task in tasks.tasks
    )
    return Schedule(strategies=(), cores=1, placements=placements)


def held_by(tasks):
    readers = tasks.readers()
    return [
        Stored(bytes=task.result_bytes, made_by=task.index, read_by=tuple(readers[task.index]),
               returned=not readers[task.index])
        for task in tasks.tasks
    ]  # fmt: skip


def test_the_peak_counts_what_is_there_at_once():
    tasks = graph((), (0,), (1,), (2,))
    held = [
        Stored(bytes=1000, made_by=None, read_by=(1,), returned=False),
        Stored(bytes=100, made_by=0, read_by=(1,), returned=False),
        Stored(bytes=10, made_by=1, read_by=(2,), returned=True),
        Stored(bytes=5, made_by=2, read_by=(3,), returned=False),
    ]
    assert peak_bytes(held, serial(tasks)) == 1110
    assert peak_bytes(held[1:], serial(tasks)) == 110
    assert peak_bytes(held[2:], serial(tasks)) == 15
    assert peak_bytes([], serial(tasks)) == 0


def test_a_schedule_that_runs_ahead_is_held_back():
    """Four chains of two tasks, whose first results are large: side by side all four are there at once."""
    tasks = graph((), (0,), (), (2,), (), (4,), (), (6,))
    held = [Stored(bytes=100, made_by=task, read_by=(task + 1,), returned=False) for task in (0, 2, 4, 6)]
    at_once = Schedule(
        strategies=("S3",), cores=4,
        placements=tuple(
            Placement(task=task, worker=task // 2, threads=1, start_us=task % 2, end_us=task % 2 + 1.0)
            for task in range(8)
        ),
    )  # fmt: skip
    starts = {task: 4.0 * (task % 2) + task // 2 for task in range(8)}
    ahead = tuple(
        replace(each, worker=0, start_us=starts[each.task], end_us=starts[each.task] + 1) for each in at_once.placements
    )
    one_worker = replace(at_once, placements=ahead)
    assert peak_bytes(held, at_once) == peak_bytes(held, one_worker) == 400
    found = within(tasks, held, one_worker, most_bytes=150)
    assert found is not None and peak_bytes(held, found) == 100
    assert within(tasks, held, one_worker, most_bytes=300) is not None
    assert within(tasks, held, at_once, most_bytes=400) is at_once
    assert within(tasks, held, at_once, most_bytes=99) is None


@given(problem=problems(), ahead=st.integers(0, 12), bound=st.floats(0, 1))
def test_what_is_held_back_keeps_every_need(problem, ahead, bound):
    tasks, curves, machine = problem
    schedule = schedules(tasks, curves, strategies=("S1", "S3"), machine=machine)
    nearer = in_step(tasks, schedule, ahead=ahead)
    placed = {each.task: each for each in nearer.placements}
    assert placed.keys() == {task.index for task in tasks.tasks}
    for task in tasks.tasks:
        assert all(placed[needed].end_us <= placed[task.index].start_us for needed in task.needs)
    before = {each.task: each for each in schedule.placements}
    assert all(placed[task].worker == each.worker and placed[task].threads == each.threads
               for task, each in before.items())  # fmt: skip
    held = held_by(tasks)
    most = int(peak_bytes(held, serial(tasks)) * (1 + bound))
    found = within(tasks, held, schedule, most_bytes=most)
    assert found is None or peak_bytes(held, found) <= most


def test_a_real_graph_holds_its_results_and_lets_go_of_others():
    found = cut(traced(branches, branches_inputs()))
    total = sum(each.bytes for each in found.held)
    peak = peak_bytes(found.held, one_at_a_time(found, threads=1))
    returned = sum(each.bytes for each in found.held if each.returned)
    assert returned < peak < total
    assert returned >= sum(torch.Size(each.shape).numel() * 4 for each in branches(*branches_inputs()))
