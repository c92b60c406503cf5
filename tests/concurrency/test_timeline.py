"""The timeline of a step: as it ran and as expected, in words and as a trace that Perfetto opens."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dwconv.concurrency import explain, timeline
from dwconv.concurrency.lanes import one_at_a_time
from dwconv.concurrency.planned_times import retimed
from dwconv.concurrency.program import Program
from dwconv.concurrency.strategies import schedules
from dwconv.concurrency.task_graph import Machine, Placement, ScalingCurve
from dwconv.concurrency.task_timer import TimeLeft
from dwconv.concurrency.timeline import (
    Operation,
    TaskRun,
    corrected,
    expected,
    in_steps,
    lines,
    operations,
    recorded,
    write_trace,
)
from dwconv.errors import InvalidChoice
from tests.made_up_graphs import check, graph, problems
from tests.traced_graphs import branches, branches_inputs, dealt, traced


def ran(task, worker, start_us, end_us, *, seen=None, threads=1):
    placed = Placement(task=task, worker=worker, threads=threads, start_us=start_us, end_us=end_us)
    return TaskRun(placed=placed, start_us=seen and seen[0], end_us=seen and seen[1])


TASKS = graph((), (), (0, 1), kinds=["aten.mm", "aten.add", "aten.relu"]).tasks
FORWARD = (ran(0, 0, 0, 50, seen=(0, 60)), ran(1, 1, 5, 25, seen=(10, 20)), ran(2, 0, 50, 60, seen=(60, 75), threads=2))
BACKWARD = (ran(0, 0, 0, 30), ran(1, 1, 40, 50), ran(2, 0, 50, 60))


def test_each_operation_has_its_threads_lane_start_neighbours_and_both_times():
    first, second, third, *backward = operations([FORWARD, BACKWARD], [TASKS, TASKS])
    assert first == Operation(
        graph="forward", name="mm_0", kind="aten.mm", threads=1, lane=0, start_us=0, neighbours=("add_1",),
        predicted_us=50, seen_us=60,
    )  # fmt: skip
    assert (second.lane, second.start_us, second.neighbours, second.seen_us) == (1, 10, ("mm_0",), 10)
    assert (third.threads, third.neighbours, third.predicted_us, third.seen_us) == (2, (), 10, 15)
    assert [(each.graph, each.seen_us, each.start_us) for each in backward] == [
        ("backward", None, 0), ("backward", None, 40), ("backward", None, 50),
    ]  # fmt: skip
    assert all(each.neighbours == () for each in backward), "as expected, since no run was recorded"


def test_the_longest_operations_are_shown_in_the_order_of_their_starts():
    found = operations([FORWARD, BACKWARD], [TASKS, TASKS])
    head, *shown, rest = lines(found, most=3)
    assert head.split() == ["graph", "operation", "threads", "lane", "start", "µs", "predicted", "seen", "µs", "beside"]
    assert [line.split() for line in shown] == [
        ["forward", "mm_0", "1", "0", "0", "50", "60", "add_1"],
        ["forward", "relu_2", "2", "0", "60", "10", "15", "–"],
        ["backward", "mm_0", "1", "0", "0", "30", "–", "–"],
    ]
    assert rest == "and 3 shorter ones" and len(lines(found, most=9)) == 7 and lines((), most=3) == []


def test_a_trace_has_the_step_as_it_ran_and_as_expected(tmp_path):
    path = tmp_path / "step.json"
    write_trace(path, [("graph 0", (FORWARD, BACKWARD), (TASKS, TASKS))])
    events = json.loads(path.read_text())["traceEvents"]
    names = {(each["pid"], each["tid"]): each["args"]["name"] for each in events if each["name"] == "thread_name"}
    assert names == {(process, lane): f"lane {lane}" for process in (1, 2) for lane in (0, 1)}
    processes = {each["pid"]: each["args"]["name"] for each in events if each["name"] == "process_name"}
    assert processes == {1: "graph 0, as it ran", 2: "graph 0, as expected"}
    placed = {
        process: [(each["name"], each["tid"], each["ts"], each["dur"]) for each in events
                  if each["ph"] == "X" and each["pid"] == process]
        for process in processes
    }  # fmt: skip
    assert placed[1] == [("mm_0", 0, 0, 60), ("add_1", 1, 10, 10), ("relu_2", 0, 60, 15)]
    assert placed[2][2:4] == [("relu_2", 0, 50, 10), ("mm_0", 0, 60, 30)], "backward begins when forward has ended"
    assert all(each["args"]["threads"] in (1, 2) for each in events if each["ph"] == "X")


def test_a_task_that_ran_on_another_lane_than_expected_is_shown_on_both(tmp_path):
    moved = msgspec.structs.replace(FORWARD[1], lane=0, start_us=75, end_us=85)
    moved_first = msgspec.structs.replace(FORWARD[0], lane=1)
    found = operations([(moved_first, moved)], [TASKS])
    assert [(each.name, each.lane) for each in found] == [("mm_0", 1), ("add_1", 0)]
    write_trace(tmp_path / "step.json", [("graph 0", ((moved_first, moved),), (TASKS,))])
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    placed = {(each["pid"], each["name"]): each["tid"] for each in events if each["ph"] == "X"}
    assert placed == {(1, "mm_0"): 1, (1, "add_1"): 0, (2, "mm_0"): 0, (2, "add_1"): 1}


def test_a_trace_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(InvalidChoice, match=r"timeline=.*none/step\.json cannot be written: .*; name another file"):
        write_trace(tmp_path / "none" / "step.json", [])


def test_a_step_is_recorded_as_it_runs_on_its_lanes():
    inputs = branches_inputs()
    program = Program(traced(branches, inputs))
    call, results = program.boxed(), []
    schedule = dealt(program.cut, workers=2)
    (found,) = recorded([program], [schedule], lambda: results.append(call([*inputs])))
    assert program.engine is None and len(results) == 4
    assert [each.placed for each in found] == schedule.in_order
    by_task = {each.placed.task: each for each in found}
    assert min(each.start_us for each in found) == 0 and all(each.end_us > each.start_us for each in found)
    for task in program.cut.graph.tasks:
        assert all(by_task[needed].end_us <= by_task[task.index].start_us for needed in task.needs)
    for lane in (0, 1):
        runs = [each for each in found if each.placed.worker == lane]
        assert all(before.end_us <= after.start_us for before, after in itertools.pairwise(runs))
    for result, wanted in zip(results[-1], branches(*inputs), strict=True):
        torch.testing.assert_close(result, wanted)


def test_programs_run_plainly_after_a_step_that_failed():
    program = Program(traced(branches, branches_inputs()))

    def fails():
        raise RuntimeError("no step")

    with pytest.raises(RuntimeError, match="no step"):
        recorded([program], [one_at_a_time(program.cut, threads=1)], fails)
    assert program.engine is None


def test_explain_writes_the_schedule_of_a_forced_one(tmp_path):
    """Nothing was measured: it is as expected alone."""
    torch._dynamo.reset()
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    compiled = torch.compile(model, backend="dwconv_concurrent", options={"schedule": "random:3"})
    compiled(torch.randn(2, 3, 9, 9)).sum().backward()
    path = tmp_path / "step.json"
    (found,) = explain(compiled, timeline=str(path)).graphs
    events = [each for each in json.loads(path.read_text())["traceEvents"] if each["ph"] == "X"]
    assert sorted(each["name"] for each in events) == sorted(each.name for each in found.operations) != []
    assert {each["cat"] for each in events} == {"forward", "backward"} and {each["pid"] for each in events} == {2}
    assert all(each.seen_us is None for each in found.operations) and "beside" in str(found)
    torch._dynamo.reset()
    plain = nn.Linear(3, 3)
    torch.compile(plain, backend="dwconv_concurrent", options={"schedule": "plain"})(torch.randn(2, 3))
    with pytest.raises(InvalidChoice, match="has nothing to show"):
        explain(plain, timeline=tmp_path / "other.json")
    assert not (tmp_path / "other.json").exists()


def test_expected_runs_have_no_times_of_their_own():
    program = Program(traced(branches, branches_inputs()))
    schedule = one_at_a_time(program.cut, threads=1)
    (found,) = expected([replace(schedule, placements=schedule.placements[::-1])])
    assert [each.placed for each in found] == list(schedule.placements)
    assert all(each.start_us is None is each.end_us for each in found)


def test_times_are_corrected_by_those_of_a_step():
    """A task takes twice as long in a step, another a tenth, which cannot be; a third was not seen."""
    curves = {task: ScalingCurve(median_us={1: 20.0, 2: 10.0}) for task in range(3)}
    seen = [
        ran(0, 0, 0, 10, seen=(5.0, 25.0), threads=2),
        ran(1, 0, 0, 10, seen=(25.0, 26.0), threads=2),
        ran(2, 0, 0, 10, threads=2),
    ]
    found = corrected(curves, seen)
    assert [found[task].median_us for task in range(3)] == [{1: 40.0, 2: 20.0}, {1: 10.0, 2: 5.0}, {1: 20.0, 2: 10.0}]


def test_each_number_of_threads_is_corrected_by_steps_that_had_it():
    """On one core a task takes as long in a step as alone, on four twice as long; on two by a third of the way."""
    curves = {0: ScalingCurve(median_us={1: 40.0, 2: 20.0, 3: 14.0, 4: 10.0})}
    seen = [ran(0, 0, 0, 10, seen=(0.0, 20.0), threads=4), ran(0, 0, 0, 10, seen=(5.0, 45.0), threads=1)]
    found = corrected(curves, seen)[0].median_us
    assert (found[1], found[4]) == (40.0, 20.0)
    assert found[2] == pytest.approx(20.0 * (2 - (1 / 2 - 1 / 4) / (1 - 1 / 4)))
    assert found[2] / 20 < found[3] / 14 < 2


@pytest.mark.parametrize("seconds, counts", [(60.0, {1, 2}), (0.02, {2})])
def test_steps_on_one_core_correct_times_too_if_they_take_little_of_the_time(seconds, counts, monkeypatch):
    """What is timed alone is twice as fast on two cores; in a step it is as fast on either."""
    inputs = branches_inputs()
    program = Program(traced(branches, inputs))
    tasks = program.cut.graph.tasks
    recorded_with = []

    def recorded(programs, schedules, step):
        (schedule,) = schedules
        recorded_with.append({each.threads for each in schedule.placements})
        return [[ran(each.task, 0, 0, 1, seen=(0.0, 300.0), threads=each.threads) for each in schedule.in_order]]

    monkeypatch.setattr(timeline, "recorded", recorded)
    curves = {task.index: ScalingCurve(median_us={1: 200.0, 2: 100.0}) for task in tasks}
    (found,) = in_steps([program], [curves], lambda: None, machine=Machine(cores=2), budget=TimeLeft(seconds))
    assert recorded_with == [{2}, {1}][: len(counts)]
    assert {curve.median_us[2] for curve in found.values()} == {300.0}
    assert {curve.median_us[1] for curve in found.values()} == {300.0 if 1 in counts else 600.0}


@settings(max_examples=40)
@given(problem=problems(), strategies=st.sampled_from([(), ("S1",), ("S3",), ("S1", "S3"), ("S2", "S3", "S4")]))
def test_a_schedule_has_the_times_of_other_curves_without_being_made_anew(problem, strategies):
    tasks, curves, machine = problem
    made = schedules(tasks, curves, strategies=strategies, machine=machine)
    same = retimed(made, tasks, before=curves, now=curves, machine=machine)
    assert {(each.task, each.worker, each.threads) for each in same.placements} == {
        (each.task, each.worker, each.threads) for each in made.placements
    }
    assert same.makespan_us <= made.makespan_us * (1 + 1e-9)
    twice = {task: ScalingCurve(median_us={count: 2 * us for count, us in known.median_us.items()})
             for task, known in curves.items()}  # fmt: skip
    longer = retimed(made, tasks, before=curves, now=twice, machine=machine)
    assert same.makespan_us * (1 - 1e-9) <= longer.makespan_us <= 2 * same.makespan_us * (1 + 1e-9)
    if "S4" not in strategies:
        check(longer, tasks, cores=machine.cores, handover_us=machine.handover_us)
