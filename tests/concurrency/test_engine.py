"""The engine: any schedule gives the same results, errors reach the caller, and threads are as they were."""

from __future__ import annotations

import dataclasses
import sys
import threading

import msgspec
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from dwconv.concurrency.engine import Engine, Workers
from dwconv.concurrency.lanes import one_at_a_time
from dwconv.concurrency.split_gradients import split
from dwconv.concurrency.task_graph import Placement, Schedule, drawn
from dwconv.concurrency.tasks import cut
from dwconv.errors import InvalidChoice
from tests import forked
from tests.native_needed import both_ways
from tests.traced_graphs import branches, branches_inputs, dealt, traced

pytestmark = pytest.mark.usefixtures("one_thread")
INPUTS = branches_inputs()
LIMIT_S = 1200


@pytest.fixture(scope="module")
def graph():
    return cut(split(traced(branches, INPUTS)))


@pytest.fixture(scope="module")
def expected(graph):
    torch.set_num_threads(1)
    return Engine(graph, one_at_a_time(graph, threads=1)).run([*INPUTS])


def in_time(call):
    """What ``call`` returns or raises, unless it hangs."""
    outcome = []

    def run():
        try:
            outcome.append(call())
        except BaseException as error:  # noqa: BLE001  # handed on
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    assert outcome, "it hangs"
    return outcome[0]


def with_functions(graph, change):
    """The graph with what its tasks do changed: ``change`` takes the number of a task and its function. Python runs
    it."""
    functions = tuple(change(index, function) for index, function in enumerate(graph.functions))
    return dataclasses.replace(graph, functions=functions, instructions=None)


@both_ways
@pytest.mark.parametrize("seed", range(8))
def test_a_schedule_in_another_order_gives_the_same_bits_with_workers_and_without(graph, expected, seed, way):
    """Where a mode watches, as AOTAutograd does the first run of a graph, all tasks run on the caller's thread."""
    engine = Engine(graph, drawn(graph.graph, cores=1, workers=1 + seed % 4, seed=str(seed)))
    with FlopCounterMode(display=False) as counter:
        alone = engine.run([*INPUTS])
    assert counter.get_total_flops() == sum(task.flops for task in graph.graph.tasks) > 0
    for found in (alone, *(in_time(lambda: engine.run([*INPUTS])) for _ in range(4))):
        assert all(map(torch.equal, found, expected))


@both_ways
def test_workers_flush_denormal_numbers_where_the_caller_does(way):
    tiny = torch.full((4,), 1e-38)
    graph = cut(traced(lambda x: [(x * 1e-3).sum(), (x * 1e-4).sum()], [tiny]))
    engines = [Engine(graph, dealt(graph, workers=2, seed=seed)) for seed in range(4)]
    for flushes in (False, True, False):
        assert torch.set_flush_denormal(flushes)
        try:
            found = [each for engine in engines for each in engine.run([tiny])]
        finally:
            torch.set_flush_denormal(False)
        assert {bool(each) for each in found} == {not flushes}  # a thread that flushes would say False to all


def test_tasks_run_on_workers_that_stay_with_their_threads(graph):
    seen = set()

    def noting(index, function):
        def run(values):
            grad, count = torch.is_grad_enabled(), torch.get_num_threads()
            seen.add((threading.current_thread().name, count, grad, torch.is_inference_mode_enabled()))
            function(values)

        return run

    watched = with_functions(graph, noting)
    schedule = dealt(graph, workers=3)
    counts = {0: 1, 1: 2, 2: 3}
    placements = tuple(msgspec.structs.replace(each, threads=counts[each.worker]) for each in schedule.placements)
    engine = Engine(watched, dataclasses.replace(schedule, placements=placements))
    me = threading.current_thread().name
    engine.run([*INPUTS])
    names = {name for name, *_ in seen}
    assert seen == {(me, 1, False, False), ("dwconv-worker-1", 2, False, False), ("dwconv-worker-2", 3, False, False)}
    engine.run([*INPUTS])
    assert {name for name, *_ in seen} == names
    seen.clear()
    with torch.inference_mode():
        engine.run([*INPUTS])
    assert {inference for *_, inference in seen} == {True} and len(seen) == 3
    assert torch.get_num_threads() == 1 and torch.is_grad_enabled()
    assert in_time(torch.get_num_threads) == 1  # a thread that starts now has the caller's count too


class Broken(Exception):
    pass


@pytest.mark.parametrize("fails", [0, 3, -1])
def test_an_error_reaches_the_caller_as_it_is_and_the_next_run_is_right(graph, expected, fails):
    failing = [True]
    last = len(graph.functions) - 1

    def breaking(index, function):
        def run(values):
            if failing[0] and index == fails % (last + 1):
                raise Broken(f"task {index}")
            function(values)

        return run

    engine = Engine(with_functions(graph, breaking), dealt(graph, workers=3))
    for _ in range(3):
        failing[0] = True
        error = in_time(lambda: engine.run([*INPUTS]))
        assert type(error) is Broken and str(error) == f"task {fails % (last + 1)}"
        failing[0] = False
        assert all(map(torch.equal, in_time(lambda: engine.run([*INPUTS])), expected))


def test_where_a_task_fails_the_other_workers_start_no_other(monkeypatch):
    """The worker is in its first task when the caller's task fails; its other tasks wait for nothing."""
    inputs = [torch.ones(512, 512), torch.ones(512, 512)]
    graph = cut(traced(lambda x, y: [x @ y, y @ x, x @ x, y @ y], inputs))
    tasks = len(graph.graph.tasks)
    under_way, failed, ran = threading.Event(), threading.Event(), []
    fail = Engine._fail

    def noted(engine, run, error):
        fail(engine, run, error)
        failed.set()

    def change(index, function):
        def run(values):
            ran.append(index)
            if index == 0:
                assert under_way.wait(LIMIT_S)
                raise Broken("the caller's")
            under_way.set()
            assert failed.wait(LIMIT_S)

        return run

    monkeypatch.setattr(Engine, "_fail", noted)
    placements = tuple(
        Placement(task=task, worker=min(task, 1), threads=1, start_us=float(task), end_us=task + 1.0)
        for task in range(tasks)
    )
    engine = Engine(with_functions(graph, change), Schedule(strategies=(), cores=2, placements=placements))
    assert tasks == 4 and not any(task.needs for task in graph.graph.tasks)
    assert type(in_time(lambda: engine.run([*inputs]))) is Broken
    assert sorted(ran) == [0, 1]


def test_two_callers_at_once_both_get_their_results(graph, expected):
    meet, results = threading.Barrier(2, timeout=LIMIT_S), []

    def meeting(index, function):
        def run(values):
            if index == 0:
                meet.wait()
            function(values)

        return run

    def call():
        results.append(Engine(with_functions(graph, meeting), dealt(graph, workers=2)).run([*INPUTS]))

    callers = [threading.Thread(target=call, daemon=True) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(LIMIT_S)
    assert len(results) == 2
    assert all(all(map(torch.equal, found, expected)) for found in results)


def test_a_schedule_that_does_not_fit_is_refused(graph):
    schedule = dealt(graph, workers=2)
    with pytest.raises(InvalidChoice, match="does not place each of the"):
        Engine(graph, dataclasses.replace(schedule, placements=schedule.placements[1:]))
    waits = next(task for task in graph.graph.tasks if task.needs)
    early = tuple(
        msgspec.structs.replace(each, worker=0, start_us=-1.0) if each.task == waits.index
        else msgspec.structs.replace(each, worker=0)
        for each in schedule.placements
    )  # fmt: skip
    with pytest.raises(InvalidChoice, match=f"task {waits.name} would start before what it needs"):
        Engine(graph, Schedule(strategies=(), cores=1, placements=early))


def test_workers_end_and_others_take_their_place():
    pool = Workers()
    with pool.lent(2) as lent, pool.lent(1) as second:
        assert len(lent) == 2 and second is None
    pool.end()
    with pool.lent(1) as lent:
        done = threading.Event()
        lent[0].start(done.set)
        assert done.wait(LIMIT_S)
    pool.end()


FORKS = """
import os, sys, torch
sys.path[:0] = {path!r}
torch.set_num_threads(1)
from tests.traced_graphs import branches, branches_inputs, dealt, traced
from dwconv.concurrency.engine import Engine
from dwconv.concurrency.tasks import cut
from dwconv import native
native.native(may_compile={compiled}) if {compiled} else native.leave_out("a test")
inputs = branches_inputs()
graph = cut(traced(branches, inputs))
engine = Engine(graph, dealt(graph, workers=2))
before = engine.run([*inputs])
child = os.fork()
after = engine.run([*inputs])
right = all(map(torch.equal, before, after))
if child == 0:
    os._exit(0 if right else 1)
assert right and os.waitpid(child, 0)[1] == 0
assert (native.module is not None) == {compiled}
"""


@both_ways
@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="there is no fork")
def test_a_forked_process_has_workers_of_its_own_and_the_interpreter_ends_cleanly(way):
    source = FORKS.format(path=sys.path, compiled=way == "compiled")
    ran = forked.run([sys.executable, "-W", "ignore", "-c", source], text=True, timeout=LIMIT_S)
    assert (ran.returncode, ran.stderr) == (0, "")
