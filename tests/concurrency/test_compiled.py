"""Compiled lanes: what the engine in Python guarantees holds without Python, too."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import gc
import os
import signal
import threading
import time
import weakref
from pathlib import Path

import pytest
import torch

from dwconv.concurrency import compiled_graph, operator_groups, second_threads, segments
from dwconv.concurrency.engine import Engine, workers
from dwconv.concurrency.program import Program, plainly
from dwconv.concurrency.task_graph import Placement, Schedule, drawn
from dwconv.concurrency.tasks import cut, whole
from dwconv.errors import DwconvWarning
from tests.native_needed import needs_native
from tests.traced_graphs import dealt, traced

pytestmark = pytest.mark.usefixtures("one_thread", "lanes_are_compiled")
LIMIT_S = 1200
LIBRARY = torch.library.Library("dwconv_test_lanes", "FRAGMENT")
LIBRARY.define("note(Tensor x, int number) -> Tensor")
_on_note = []


def _note(x, number):
    for call in _on_note:
        call(number)
    return x + 1


LIBRARY.impl("note", _note, "CPU")
LIBRARY.impl("note", lambda x, number: torch.empty_like(x), "Meta")
note = torch.ops.dwconv_test_lanes.note.default


@pytest.fixture
def lanes_are_compiled(monkeypatch):
    needs_native()
    monkeypatch.setattr(operator_groups, "SMALL_US", 0.0)
    monkeypatch.setattr(operator_groups, "LARGE_US", 0.0)
    yield
    _on_note.clear()


def only_compiled(graph):
    """The graph, which Python cannot run."""

    def fail(values):
        raise AssertionError("Python runs a task")

    assert graph.instructions is not None
    return dataclasses.replace(graph, functions=(fail,) * len(graph.functions))


def cut_of(function, inputs):
    return only_compiled(cut(traced(function, inputs)))


def placed(graph, of, *, strategies=(), cores=2):
    """A schedule: ``of`` gives the worker and the number of threads of a task."""
    placements = []
    for task in graph.graph.tasks:
        worker, threads = of(task.index)
        at = float(task.index)
        placements.append(Placement(task=task.index, worker=worker, threads=threads, start_us=at, end_us=at + 1.0))
    return Schedule(strategies=strategies, cores=cores, placements=tuple(placements))


def notes(x):
    """Two chains: notes 0, 2, 4… and 1, 3, 5…, which keep their order."""
    first, second = x, x * 2
    for number in range(6):
        if number % 2:
            second = note(second, number)
        else:
            first = note(first, number)
    return [first, second]


def worker_of_notes(graph):
    """Even notes on the caller, odd ones on another lane."""

    def of(index):
        (node, *_) = graph.nodes[index]
        return (node.args[1] % 2 if node.target is note else 0), 1

    return of


INPUTS = [torch.arange(4.0)]
RIGHT = [INPUTS[0] + 3, INPUTS[0] * 2 + 3]


def right(found):
    return all(map(torch.equal, found, RIGHT))


# -- what an operator finds on a lane ----------------------------------------------------------------------------------


def test_operators_run_on_lanes_with_the_state_of_the_caller():
    graph = cut_of(notes, INPUTS)
    engine = Engine(graph, placed(graph, worker_of_notes(graph)))
    seen = {}

    def state(number):
        seen[number] = (
            threading.get_native_id(), torch.get_num_threads(), torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"),
        )  # fmt: skip

    _on_note.append(state)
    me = threading.get_native_id()
    assert right(engine.run([*INPUTS]))
    assert {seen[number][0] for number in (0, 2, 4)} == {me}
    assert me not in {seen[number][0] for number in (1, 3, 5)}
    assert {each[1:] for each in seen.values()} == {(1, False, False, False)}
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        engine.run([*INPUTS])
    assert {each[2:] for each in seen.values()} == {(False, True, True)}
    assert torch.is_grad_enabled() and torch.get_num_threads() == 1


@pytest.mark.parametrize("counts", [(2, 2), (1, 2), (2, 1)])
def test_tasks_have_their_numbers_of_threads_side_by_side_and_alone(counts):
    graph = cut_of(notes, INPUTS)
    where = worker_of_notes(graph)
    for overlap in (True, False):
        schedule = placed(graph, lambda index: (where(index)[0], counts[where(index)[0]]), cores=4)
        if overlap:
            placements = [
                Placement(task=each.task, worker=each.worker, threads=each.threads, start_us=each.start_us, end_us=99.0)
                for each in schedule.placements
            ]
            schedule = dataclasses.replace(schedule, placements=tuple(placements))
        seen = {}
        _on_note[:] = [lambda number, seen=seen: seen.update({number: torch.get_num_threads()})]
        assert right(Engine(graph, schedule).run([*INPUTS]))
        assert seen == {number: counts[number % 2] for number in range(6)}
        assert torch.get_num_threads() == 1
        later = []
        starts_later = threading.Thread(target=lambda later=later: later.append(torch.get_num_threads()))
        starts_later.start()
        starts_later.join()
        assert later == [1]


def test_a_profiler_records_what_other_lanes_run():
    graph = cut_of(notes, INPUTS)
    engine = Engine(graph, placed(graph, worker_of_notes(graph)))
    engine.run([*INPUTS])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        engine.run([*INPUTS])
    (found,) = [event for event in profile.key_averages() if event.key == "dwconv_test_lanes::note"]
    assert found.count == 6


def test_a_value_is_free_once_its_last_reader_has_run():
    def function(x, y):
        return [note(note(x * 2, 0) + y, 1)]

    given = [torch.ones(3), torch.ones(3)]
    graph = cut_of(function, given)
    for worker in (0, 1):
        engine = Engine(graph, placed(graph, lambda index, worker=worker: (index % 2 * worker, 1)))
        inputs = [torch.ones(3), torch.ones(3)]
        left = [weakref.ref(each) for each in inputs]
        seen = {}

        def look(number, left=left, seen=seen):
            gc.collect()
            seen[number] = [each() is not None for each in left]

        _on_note[:] = [look]
        (found,) = engine.run(inputs)
        assert inputs == [] and torch.equal(found, torch.full((3,), 5.0))
        assert seen == {0: [False, True], 1: [False, False]}


# -- errors ------------------------------------------------------------------------------------------------------------


class Broken(Exception):
    pass


@pytest.mark.parametrize("number", range(6))
def test_an_error_on_any_lane_reaches_the_caller_as_it_is_and_the_next_run_is_right(number):
    graph = cut_of(notes, INPUTS)
    engine = Engine(graph, placed(graph, worker_of_notes(graph)))
    error = Broken("planned")
    ran = []

    def fail(at):
        ran.append(at)
        if at == number:
            raise error

    for _ in range(3):
        _on_note[:] = [fail]
        ran.clear()
        with pytest.raises(Broken) as raised:
            engine.run([*INPUTS])
        assert raised.value is error and ran == [*range(number + 1)]  # the others wait for it, and do not begin
        _on_note.clear()
        assert right(engine.run([*INPUTS]))


@pytest.mark.parametrize("worker", [0, 1])
def test_an_error_of_pytorch_is_pytorchs(worker):
    def function(x, index):
        return [x.index_select(0, index) * 2, x + 1]

    good, bad = torch.tensor([1, 0]), torch.tensor([9, 0])
    graph = cut_of(function, [torch.ones(4), good])
    engine = Engine(graph, placed(graph, lambda index: (worker if index == 0 else 1 - worker, 1)))
    expected = None
    try:
        torch.ones(4).index_select(0, bad)
    except (IndexError, RuntimeError) as error:
        expected = error
    for _ in range(2):
        with pytest.raises(type(expected), match=str(expected)):
            engine.run([torch.ones(4), bad])
        assert torch.equal(engine.run([torch.ones(4), good])[0], torch.full((2,), 2.0))


@pytest.mark.parametrize("lanes", [1, 2])
def test_ctrl_c_ends_a_run_between_two_operators(lanes):
    """All operators together take minutes."""

    def function(x):
        chains = [x, x.t()]
        for step in range(200):
            chains[step % 2] = chains[step % 2] @ x
        return chains

    given = [torch.eye(1500)]
    graph = cut_of(function, given)
    engine = Engine(graph, dealt(graph, workers=lanes))

    def interrupt(*arguments):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            for _ in range(100):
                engine.run([*given])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert any(each.lane < 0 for each in engine.seen)  # it has not run
    small = Engine(graph, dealt(graph, workers=lanes))
    assert small.run([torch.eye(2)])[0].shape == (2, 2)


# -- several runs ------------------------------------------------------------------------------------------------------


def test_a_second_caller_runs_its_tasks_in_order_on_its_own_thread():
    graph = cut_of(notes, INPUTS)
    first, second = (Engine(graph, placed(graph, worker_of_notes(graph))) for _ in range(2))
    inside, go_on = threading.Event(), threading.Event()
    ran = {}

    def wait(number):
        if threading.current_thread().name == "second":
            ran[number] = threading.get_native_id()
        elif number == 0:
            inside.set()
            assert go_on.wait(LIMIT_S)

    _on_note.append(wait)
    results = {}

    def call(name, engine):
        results[name] = engine.run([*INPUTS])

    threads = [
        threading.Thread(target=call, args=each, name=each[0]) for each in (("first", first), ("second", second))
    ]
    threads[0].start()
    assert inside.wait(LIMIT_S)
    threads[1].start()
    threads[1].join(LIMIT_S)
    go_on.set()
    threads[0].join(LIMIT_S)
    assert right(results["first"]) and right(results["second"])
    assert list(ran) == [*range(6)] and len(set(ran.values())) == 1


def test_an_operator_may_run_another_graph():
    graph = cut_of(notes, INPUTS)
    outer, inner = (Engine(graph, placed(graph, worker_of_notes(graph))) for _ in range(2))
    found = []

    def nested(number):
        if not found and number in (0, 1):
            found.append(None)
            found.append(inner.run([*INPUTS]))

    _on_note.append(nested)
    assert right(outer.run([*INPUTS])) and right(found[1])


def test_threads_end_and_others_take_their_place():
    graph = cut_of(notes, INPUTS)
    where = worker_of_notes(graph)
    overlapping = [
        Placement(task=task.index, worker=where(task.index)[0], threads=2, start_us=float(task.index), end_us=99.0)
        for task in graph.graph.tasks
    ]
    engine = Engine(graph, Schedule(strategies=(), cores=4, placements=tuple(overlapping)))
    for _ in range(3):
        assert right(engine.run([*INPUTS]))
        workers.end()


# -- the cores of lanes ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="there is no affinity")
@pytest.mark.parametrize("threads", [1, 2])
def test_lanes_keep_to_their_cores_and_give_them_back(threads, monkeypatch):
    allowed = sorted(os.sched_getaffinity(0))
    mine, others = [allowed[0]], [allowed[-1]]
    monkeypatch.setattr(compiled_graph, "cores_of_lanes", lambda segment, threads: [mine, others][: len(segment.lanes)])
    graph = cut_of(notes, INPUTS)
    where = worker_of_notes(graph)
    placements = [
        Placement(task=task.index, worker=where(task.index)[0], threads=threads, start_us=task.index, end_us=99.0)
        for task in graph.graph.tasks
    ]
    engine = Engine(graph, Schedule(strategies=(), cores=2, placements=tuple(placements)))
    seen = {}
    _on_note.append(lambda number: seen.update({number: os.sched_getaffinity(0)}))
    for _ in range(2):
        assert right(engine.run([*INPUTS]))
        assert seen == {number: set(others if number % 2 else mine) for number in range(6)}
        assert sorted(os.sched_getaffinity(0)) == allowed


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="there is no affinity")
@pytest.mark.parametrize("lanes", [1, 2])
def test_a_team_is_kept_on_the_cores_of_its_grouping_and_let_go(lanes, monkeypatch):
    """Whatever used its threads before. Afterwards all may run anywhere."""
    allowed = os.sched_getaffinity(0)
    mine, others = [min(allowed)], [max(allowed)]
    monkeypatch.setattr(compiled_graph, "cores_of_lanes", lambda segment, threads: [mine, others][: len(segment.lanes)])
    graph = cut_of(notes, INPUTS)
    where = worker_of_notes(graph) if lanes == 2 else lambda index: (0, 1)
    placements = [
        Placement(
            task=task.index, worker=where(task.index)[0], threads=2, start_us=task.index,
            end_us=task.index + (99.0 if lanes == 2 else 1.0), grouping="compact",
        )
        for task in graph.graph.tasks
    ]  # fmt: skip
    engine = Engine(graph, Schedule(strategies=(), cores=4, placements=tuple(placements)))

    def masks():
        return [os.sched_getaffinity(int(thread.name)) for thread in Path("/proc/self/task").iterdir()]

    seen = {}
    _on_note.append(lambda number: seen.update({number: masks()}))
    for _ in range(2):
        assert right(engine.run([*INPUTS]))
        for number in range(6):  # the thread that runs it, and the other one of its team
            assert seen[number].count(set(mine if number % 2 == 0 or lanes == 1 else others)) >= 2
        assert all(each == allowed for each in masks())
    assert engine._compiled._runner.affinity_error == 0


def test_cores_are_disjoint_and_left_to_the_system_where_they_are_not_ours(monkeypatch):
    graph = cut_of(notes, INPUTS)
    where = worker_of_notes(graph)
    placements = [
        Placement(task=task.index, worker=where(task.index)[0], threads=2, start_us=task.index, end_us=99.0)
        for task in graph.graph.tasks
    ]
    (segment,) = segments.segments(graph, Schedule(strategies=(), cores=4, placements=tuple(placements)))
    monkeypatch.setattr(segments, "cores_of_this_process", lambda: [2, 3, 6, 7])
    for name in ("OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"):
        monkeypatch.delenv(name, raising=False)
    assert segments.cores_of_lanes(segment, threads=4) == [[2, 3], [6, 7]]
    assert segments.cores_of_lanes(segment, threads=2) == [[], []]  # other processes may be meant to have the rest
    monkeypatch.setenv("OMP_PROC_BIND", "close")
    assert segments.cores_of_lanes(segment, threads=4) == [[], []]
    monkeypatch.setenv("OMP_PROC_BIND", "false")
    monkeypatch.setattr(segments, "cores_of_this_process", lambda: [2, 3, 6])
    assert segments.cores_of_lanes(segment, threads=4) == [[], []]


class Refusing:
    """A runner that the system has refused cores."""

    affinity_error = errno.EPERM


def test_one_line_says_that_threads_cannot_be_kept_on_cores(monkeypatch):
    monkeypatch.setattr(second_threads, "_refused", "")
    monkeypatch.setattr(second_threads, "_warned", False)
    graph = cut_of(notes, INPUTS)
    engine = Engine(graph, placed(graph, worker_of_notes(graph)))
    assert right(engine.run([*INPUTS]))
    run = engine._compiled
    monkeypatch.setattr(run, "_program", type("", (), {"run": lambda self, runner, inputs: RIGHT})())
    monkeypatch.setattr(run, "_runner", Refusing())
    for expected in (pytest.warns(DwconvWarning, match="kept on cores of its own: Operation not permitted; the system"),
                     contextlib.nullcontext()):  # fmt: skip
        monkeypatch.setattr(run, "_is_new", True)
        with expected:
            assert right(engine.run([*INPUTS]))


# -- decided at run time -----------------------------------------------------------------------------------------------


def has_run(engine, task):
    return bool(engine.seen) and engine.seen[task].lane >= 0 and engine.seen[task].end_us > 0


def wait_until(condition):
    deadline = time.monotonic() + LIMIT_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)


def test_lanes_take_what_is_ready_and_learn_what_tasks_take(monkeypatch):
    """All tasks but one are planned for the lane that is busy with the first."""
    monkeypatch.setattr(compiled_graph, "slowdowns", compiled_graph.no_slowdowns)
    monkeypatch.setattr(compiled_graph, "peak_bytes", lambda held, schedule: 1 << 30)

    def function(x):
        return [note(x, 0), *((x * number).sin() for number in range(1, 9))]

    graph = cut_of(function, INPUTS)
    (noted,) = [index for index, nodes in enumerate(graph.nodes) if nodes[0].target is note]
    others = [task.index for task in graph.graph.tasks if task.index != noted]
    engine = Engine(graph, placed(graph, lambda index: (int(index == others[-1]), 1), strategies=("S3",)))
    expected = [INPUTS[0] + 1, *((INPUTS[0] * number).sin() for number in range(1, 9))]
    _on_note.append(lambda number: wait_until(lambda: all(has_run(engine, task) for task in others)))
    assert all(map(torch.equal, engine.run([*INPUTS]), expected))
    busy = engine.seen[noted].lane
    assert {engine.seen[task].lane for task in others} <= {0, 1}
    assert sum(engine.seen[task].lane == busy for task in others) < len(others)
    assert all(engine.seen[task].end_us < engine.seen[noted].end_us for task in others)
    _on_note.clear()
    for _ in range(20):
        assert all(map(torch.equal, engine.run([*INPUTS]), expected))
    assert all(each.mean_us > 0 for each in engine.seen)


def overlapping(graph, threads, *, strategies, workers=2, cores=4):
    """All tasks at once, as the schedule has it: ``threads`` gives the number of threads of a task."""
    schedule = placed(graph, lambda index: (index // 2 % workers, threads(index)), strategies=strategies, cores=cores)
    placements = [
        Placement(task=each.task, worker=each.worker, threads=each.threads, start_us=each.start_us, end_us=999.0)
        for each in schedule.placements
    ]
    return dataclasses.replace(schedule, placements=tuple(placements))


def test_lanes_take_ready_tasks_of_several_threads_each_with_its_own_number(monkeypatch):
    """While one lane is busy with a note of one thread, the other runs all sines, half of which are planned for the
    first. The second note comes after the first one, and has two threads."""
    monkeypatch.setattr(compiled_graph, "slowdowns", compiled_graph.no_slowdowns)
    monkeypatch.setattr(compiled_graph, "peak_bytes", lambda held, schedule: 1 << 30)

    def function(x):
        return [note(x, 0), note(x * 2, 1), *((x * number).sin() for number in range(1, 9))]

    graph = cut_of(function, INPUTS)
    at = {nodes[0].args[1]: index for index, nodes in enumerate(graph.nodes) if nodes[0].target is note}
    sines = [index for index, nodes in enumerate(graph.nodes) if nodes[0].target is torch.ops.aten.sin.default]
    engine = Engine(graph, overlapping(graph, lambda index: 1 if index == at[0] else 2, strategies=("S3",)))
    (segment,) = segments.segments(graph, engine.schedule)
    assert not segment.is_narrow and segment.widths == [2, 2]
    assert {step.task for step in segment.lanes[0]} & {*sines} and {step.task for step in segment.lanes[1]} & {*sines}
    seen = {}

    def look(number):
        seen[number] = torch.get_num_threads()
        if number == 0:
            wait_until(lambda: all(has_run(engine, sine) for sine in sines))

    _on_note.append(look)
    (x,) = INPUTS
    expected = [x + 1, x * 2 + 1, *((x * number).sin() for number in range(1, 9))]
    assert all(map(torch.equal, engine.run([*INPUTS]), expected))
    assert seen == {0: 1, 1: 2} and torch.get_num_threads() == 1
    busy = engine.seen[at[0]].lane
    assert {engine.seen[sine].lane for sine in sines} == {1 - busy}
    assert all(engine.seen[sine].end_us < engine.seen[at[0]].end_us for sine in sines)


@pytest.mark.parametrize("seed", range(6))
def test_what_lanes_decide_gives_the_bits_of_the_schedule(seed):
    """With the same number of threads for each task, in any order and on any lane."""

    def function(x, w):
        branches = [torch.tanh(x @ w + number) for number in range(5)]
        return [sum(each.sum(0, keepdim=True) @ w for each in branches), *(each.mean() for each in branches)]

    given = [torch.randn(64, 48), torch.randn(48, 48)]
    graph = cut_of(function, given)
    schedule = drawn(graph.graph, cores=3, workers=3, seed=str(seed))
    assert any(each.threads > 1 for each in schedule.placements)
    expected = Engine(graph, schedule).run([*given])
    decided = Engine(graph, dataclasses.replace(schedule, strategies=("S3",)))
    for _ in range(10):
        assert all(map(torch.equal, decided.run([*given]), expected))
    if not segments.segments(graph, schedule)[0].is_narrow:
        assert any(part.ready for part in decided._compiled._parts())


def test_what_would_only_slow_its_neighbour_waits(monkeypatch):
    """Beside the note a cosine gains, and a sine, though its way is longer, loses."""
    moving = {"sin", "note"}
    monkeypatch.setattr(segments, "kind_of_task", lambda task: int(task.kind.split(".")[-1] in moving))
    monkeypatch.setattr(compiled_graph, "slowdowns", lambda: [[1.0, 1.0], [1.0, 3.0]])

    def function(x):
        return [note(x, 0).exp().exp().exp(), x.sin().exp(), x.cos()]

    graph = cut_of(function, INPUTS)
    task_of = {nodes[0].target: index for index, nodes in enumerate(graph.nodes)}
    sine, cosine = task_of[torch.ops.aten.sin.default], task_of[torch.ops.aten.cos.default]
    engine = Engine(graph, placed(graph, lambda index: (int(index == cosine), 1), strategies=("S3",)))
    early = []

    def look(number):
        wait_until(lambda: has_run(engine, cosine))
        early.append((has_run(engine, cosine), has_run(engine, sine)))

    _on_note.append(look)
    found = engine.run([*INPUTS])
    assert early == [(True, False)]
    (x,) = INPUTS
    assert all(map(torch.equal, found, [(x + 1).exp().exp().exp(), x.sin().exp(), x.cos()]))


def test_no_task_begins_for_which_there_is_no_memory(monkeypatch):
    """The products come first: their ways are longer. With all of them and the note the limit is reached."""
    monkeypatch.setattr(compiled_graph, "slowdowns", compiled_graph.no_slowdowns)

    def function(x):
        return [note(x, 0), *((x * number).sin() for number in range(1, 9))]

    graph = cut_of(function, INPUTS)
    others = [index for index, nodes in enumerate(graph.nodes) if nodes[0].target is torch.ops.aten.sin.default]
    engine = Engine(graph, placed(graph, lambda index: (int(index == others[-1]), 1), strategies=("S3",)))
    found = []

    def look(number):
        deadline = time.monotonic() + 0.05
        while time.monotonic() < deadline:
            time.sleep(0.001)
        found.append([has_run(engine, task) for task in others])

    _on_note.append(look)
    assert torch.equal(engine.run([*INPUTS])[0], INPUTS[0] + 1)
    assert found == [[False] * 8]


def test_what_results_take_at_run_time_keeps_to_the_limit_of_the_schedule():
    def function(x):
        return [sum((x * number).sin().sum() for number in range(8))]

    given = [torch.ones(1000)]
    graph = cut_of(function, given)
    schedule = placed(graph, lambda index: (index % 2, 1), strategies=("S3",))
    (segment,) = segments.segments(graph, schedule)
    found = segments.ready(graph, schedule, segment, before=(), limit=9)
    assert sum(found.makes) == sum(each.bytes for each in graph.held if each.made_by is not None)
    freed = sum(bytes_ for bytes_, _ in found.stored)
    assert found.held + sum(found.makes) - freed == sum(each.bytes for each in graph.held if each.returned)
    assert found.limit == 9
    assert torch.allclose(Engine(graph, schedule).run([*given])[0], function(*given)[0])


# -- instructions ------------------------------------------------------------------------------------------------------


def everything(x, w):
    """Numbers for tensors, lists of tensors, optional tensors, several results, constants, unread results."""
    parts = (x * 2).chunk(2, 1)
    y, indices = torch.ops.aten.max.dim(x, 1)
    z = torch.ops.aten.native_layer_norm.default(x, [4], None, w, 1e-5)
    picked = torch.ops.aten.index.Tensor(x, [None, torch.tensor([0, 2])])
    return [torch.cat([parts[1], parts[0]], 1), y, z[0], z[1], picked, x.to(torch.float64), 3.0 - x, x, indices + 1]


@pytest.mark.parametrize("lanes", [1, 3])
def test_every_sort_of_argument_and_result_is_as_in_python(lanes):
    given = [torch.randn(3, 4), torch.randn(4)]
    module = traced(everything, given)
    graph = cut(module)
    expected = plainly(module)([*given])
    found = Engine(only_compiled(graph), dealt(graph, workers=lanes)).run([*given])
    assert [each.dtype for each in found] == [each.dtype for each in expected]
    assert all(map(torch.equal, found, expected)) and found[7] is given[0]


def test_plain_execution_is_compiled_too(monkeypatch):
    given = [torch.randn(3, 4), torch.randn(4)]
    program = Program(traced(everything, given))
    monkeypatch.setattr(program, "_in_python", None)
    assert whole(traced(everything, given)) is not None
    assert all(map(torch.equal, program.boxed()([*given]), everything(*given)))


def test_a_value_that_no_instruction_takes_is_left_to_python():
    given = [torch.randn(3, 4), torch.randn(4)]
    graph = cut(traced(everything, given))
    assert Engine(graph, dealt(graph, workers=2))._compiled.run(["text", given[1]]) is None


def test_the_hand_over_is_measured():
    taken_us = compiled_graph.handover_us()
    assert taken_us is not None and 0 < taken_us < 1e6
