"""The schedule that runs dgrad beside wgrad: which pairs, when, and with how many threads."""

from __future__ import annotations

from types import SimpleNamespace

from dwconv.concurrency.choosing.pair_schedule import at_once_schedule
from dwconv.concurrency.graph.gradient_pairs import Pair
from dwconv.concurrency.times.pair_times import PairTimes
from tests.made_up_graphs import check, curve, graph


def times(dgrad, wgrad, *, at_once_us):
    pair = Pair(name=f"dgrad_{dgrad}", dgrad=dgrad, wgrad=wgrad, convolution=None)
    return PairTimes(pair=pair, name=pair.name, apart_us=20.0, at_once_us=at_once_us)


def test_pairs_that_win_run_side_by_side_if_what_they_need_is_there():
    tasks = graph((), (0,), (0,), (), (3,), (1,), (5,), (5, 4))
    curves = {task.index: curve(16.0, 12.0, 10.0) for task in tasks.tasks}
    pairs = [
        times(1, 2, at_once_us=14.0),
        times(3, 4, at_once_us=9.0),  # cannot be: one needs the other
        times(6, 7, at_once_us=25.0),  # does not win
    ]
    found = at_once_schedule(SimpleNamespace(graph=tasks), curves, pairs, cores=3)
    check(found, tasks, cores=3)
    assert found.strategies == ("gradients",) and found.makespan_us == 6 * 10.0 + 14.0
    beside = {each.task: (each.worker, each.threads) for each in found.placements if each.threads != 3}
    assert beside == {1: (0, 2), 2: (1, 1)}


def test_a_gradient_that_waits_for_a_later_task_is_not_moved():
    tasks = graph((), (), (1,))
    curves = {task.index: curve(16.0, 12.0) for task in tasks.tasks}
    found = at_once_schedule(SimpleNamespace(graph=tasks), curves, [times(0, 2, at_once_us=1.0)], cores=2)
    check(found, tasks, cores=2)
    assert {each.worker for each in found.placements} == {0}
