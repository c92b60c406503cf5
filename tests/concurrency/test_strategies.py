"""The four strategies: what every schedule keeps, where each of them wins; and the memory of schedules."""

from __future__ import annotations

import math
import random
import statistics
import sys
from itertools import product
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dwconv.concurrency import list_scheduling
from dwconv.concurrency.lanes import one_at_a_time
from dwconv.concurrency.list_scheduling import one_after_the_other, side_by_side
from dwconv.concurrency.options import Options
from dwconv.concurrency.schedules_to_try import GraphTimes, SchedulePair, worth_trying
from dwconv.concurrency.strategies import COMBINED, manual, own_best, schedules
from dwconv.concurrency.task_graph import (
    ExtraSlots,
    Machine,
    Placement,
    Room,
    Schedule,
    Stored,
    TaskGraph,
    makespan_us,
    peak_bytes,
)
from dwconv.concurrency.task_timer import TimeLeft
from dwconv.concurrency.tasks import cut
from tests.made_up_graphs import ROUNDING_US, check, curve, graph, least_makespan_us, problems, task
from tests.traced_graphs import branches, branches_inputs, traced

TWO = Machine(cores=2)
FEW = settings(max_examples=20)
DIAMOND = graph((), (0,), (0,), (1, 2))


def counts_of(schedule):
    return {placement.task: placement.threads for placement in schedule.placements}


# -- properties ------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(problem=problems(), workers=st.integers(1, 3) | st.none())
def test_every_schedule_keeps_the_rules_and_none_is_slower_than_it_must_be(problem, workers):
    """S2 must share counts, so it may be slower than plain execution; the others could always do the same."""
    tasks, curves, machine = problem
    us = {}
    for strategies in ((), *COMBINED):
        made = schedules(tasks, curves, strategies=strategies, machine=machine, workers=workers)
        assert made.strategies == strategies and made.cores == machine.cores
        check(made, tasks, cores=machine.cores, handover_us=machine.handover_us)
        at_once = {"S3", "S4"} & {*strategies}
        most = min(workers or machine.cores, machine.cores) if at_once else 1
        slots = machine.slots.count if "S4" in strategies else 0
        on_slots = range(machine.cores, machine.cores + slots)
        assert all(each.worker < most or each.worker in on_slots for each in made.placements)
        us[strategies] = made.makespan_us - ROUNDING_US
    assert max(us["S1",], us["S3",], us["S1", "S3"], us["S4",]) <= us[()] + ROUNDING_US
    assert us["S1", "S2"] <= min(us["S1",], us["S2",]) + ROUNDING_US
    for strategies in COMBINED:  # what may run beside something need not
        for more in ("S3", "S4"):
            if more not in strategies and "S4" not in strategies:
                assert us[tuple(sorted((*strategies, more)))] <= us[strategies] + ROUNDING_US


@settings(max_examples=50)
@given(problem=problems())
def test_the_first_worker_keeps_the_large_team_of_threads(problem):
    tasks, curves, machine = problem
    made = schedules(tasks, curves, strategies=("S1", "S3"), machine=machine)
    on_first = [placement for placement in made.placements if placement.worker == 0]
    for placement in made.placements:
        if placement.threads > 1 and 2 * placement.threads > machine.cores and placement.worker:
            decided_us = placement.start_us - machine.handover_us  # or later
            assert any(other.start_us <= placement.start_us and decided_us < other.end_us for other in on_first)


# -- S1 and S2 -------------------------------------------------------------------------------------------------------


def test_s1_gives_each_task_its_own_best_count():
    curves = {0: curve(10, 20), 1: curve(30, 15), 2: curve(9, 9), 3: curve(8, 4)}
    assert counts_of(schedules(DIAMOND, curves, strategies=("S1",), machine=TWO)) == {0: 1, 1: 2, 2: 2, 3: 2}
    assert schedules(DIAMOND, curves, strategies=("S1",), machine=TWO).makespan_us == 10 + 15 + 9 + 4


def test_s1_changes_counts_only_where_that_pays_for_the_change():
    curves = {0: curve(30, 15), 1: curve(10, 14), 2: curve(30, 15), 3: curve(30, 15)}
    cheap, dear = (
        schedules(DIAMOND, curves, strategies=("S1",), machine=Machine(cores=2, change_us=change_us))
        for change_us in (1.0, 3.0)
    )
    assert counts_of(cheap)[1] == 1 and cheap.makespan_us == 15 + 10 + 15 + 15 + 2 * 1
    assert counts_of(dear)[1] == 2 and dear.makespan_us == 15 + 14 + 15 + 15


@FEW
@given(problem=problems(most_tasks=5, most_cores=3))
def test_s1_finds_the_least_time_over_all_counts(problem):
    tasks, curves, machine = problem

    def takes_us(counts):
        return makespan_us(one_after_the_other(tasks, curves, counts, machine=machine))

    every = product(range(1, machine.cores + 1), repeat=len(tasks.tasks))
    found = own_best(tasks, curves, change_us=machine.change_us)
    assert takes_us(found) == pytest.approx(min(takes_us(dict(enumerate(counts))) for counts in every))


def test_s2_gives_a_kind_the_count_of_its_largest_instance():
    kinds = ["aten.mm", "aten.add", "aten.mm", "aten.add"]
    tasks = graph((), (0,), (0,), (1, 2), kinds=kinds)
    curves = {0: curve(100, 60), 1: curve(5, 4), 2: curve(8, 9), 3: curve(20, 30)}
    assert counts_of(schedules(tasks, curves, strategies=("S2",), machine=TWO)) == {0: 2, 1: 1, 2: 2, 3: 1}
    tasks = graph((), (), kinds=["aten.mm", "aten.mm"])  # of equally large instances the first one's
    curves = {0: curve(100, 60), 1: curve(100, 120)}
    assert counts_of(schedules(tasks, curves, strategies=("S2",), machine=TWO)) == {0: 2, 1: 2}


def test_a_change_of_the_count_is_charged_to_the_task_that_follows_it():
    kinds = ["aten.mm", "aten.add", "aten.mm", "aten.add"]
    tasks = graph((), (0,), (1,), (2,), kinds=kinds)
    curves = {0: curve(100, 60), 1: curve(20, 30), 2: curve(100, 60), 3: curve(20, 30)}
    made = schedules(tasks, curves, strategies=("S2",), machine=Machine(cores=2, change_us=7.0))
    assert made.makespan_us == 60 + 20 + 60 + 20 + 3 * 7
    assert [placement.end_us - placement.start_us for placement in made.placements] == [60, 27, 67, 27]


# -- S3 --------------------------------------------------------------------------------------------------------------


def test_s3_runs_independent_tasks_side_by_side_where_they_scale_badly():
    curves = {0: curve(10, 6), 1: curve(100, 90), 2: curve(100, 90), 3: curve(20, 6)}
    made = schedules(DIAMOND, curves, strategies=("S3",), machine=Machine(cores=2, handover_us=5.0))
    assert counts_of(made) == {0: 2, 1: 1, 2: 1, 3: 2}
    assert made.makespan_us == 6 + 105 + 5 + 6
    assert len({placement.worker for placement in made.placements}) == 2


def test_s3_leaves_one_task_at_a_time_where_tasks_scale_well_or_handing_over_costs_more():
    scaling_well = {0: curve(10, 6), 1: curve(100, 48), 2: curve(100, 48), 3: curve(10, 6)}
    made = schedules(DIAMOND, scaling_well, strategies=("S3",), machine=TWO)
    assert {placement.worker for placement in made.placements} == {0}
    scaling_badly = {0: curve(10, 6), 1: curve(100, 90), 2: curve(100, 90), 3: curve(10, 6)}
    dear = schedules(DIAMOND, scaling_badly, strategies=("S3",), machine=Machine(cores=2, handover_us=100.0))
    assert {placement.worker for placement in dear.placements} == {0}


def test_ready_tasks_divide_the_cores_where_changing_one_count_alone_wins_nothing():
    """Two tasks, then four, three times over: one of the two with half the cores delays the other as much as before."""
    needs: list[tuple[int, ...]] = []
    before: tuple[int, ...] = ()
    for width in (2, 4) * 3:
        needs += [before] * width
        before = tuple(range(len(needs) - width, len(needs)))
    curves = dict.fromkeys(range(len(needs)), curve(100, 60, 47, 40))
    made = schedules(graph(*needs), curves, strategies=("S3",), machine=Machine(cores=4))
    assert made.makespan_us == 3 * (60 + 100)


def test_a_small_task_fills_a_core_that_the_large_one_leaves():
    tasks = graph((), (), ())
    curves = {0: curve(90, 60, 50, 49), 1: curve(30, 29, 28, 27), 2: curve(20, 18, 17, 16)}
    made = schedules(tasks, curves, strategies=("S3",), machine=Machine(cores=4))
    assert made.makespan_us == 60
    check(made, tasks, cores=4)


@pytest.mark.parametrize(("alone_us", "start_us", "threads"), [(50, 10, 3), (15, 0, 1)])
def test_a_task_starts_with_fewer_threads_only_if_it_ends_no_later_than_after_a_wait(alone_us, start_us, threads):
    """One core is free; two more will be at 10 µs, the last one at 100."""
    curves = {0: curve(20, 10, 9, 9), 1: curve(100, 90, 80, 80), 2: curve(alone_us, 25, 5, 5)}
    counts = {0: 2, 1: 1, 2: 3}
    placed = side_by_side(graph((), (), ()), curves, counts, machine=Machine(cores=4), workers=4)
    assert [(each.start_us, each.threads) for each in placed if each.task == 2] == [(start_us, threads)]


@pytest.mark.parametrize(("most_bytes", "makespan_us"), [(math.inf, 40), (24, 40), (15, 80)])
def test_tasks_wait_rather_than_take_more_memory_than_there_is(most_bytes, makespan_us):
    """Four tasks make ten bytes each, of which a task after each leaves one."""
    tasks = graph((), (), (), (), (0,), (1,), (2,), (3,))
    held = [Stored(bytes=10, made_by=number, read_by=(number + 4,), returned=False) for number in range(4)]
    held += [Stored(bytes=1, made_by=number + 4, read_by=(), returned=True) for number in range(4)]
    curves = dict.fromkeys(range(8), curve(10, 10))
    counts = dict.fromkeys(range(8), 1)
    room = Room(held=held, most_bytes=most_bytes)
    placed = side_by_side(tasks, curves, counts, machine=TWO, workers=2, room=room)
    made = Schedule(strategies=("S3",), cores=2, placements=placed)
    check(made, tasks, cores=2)
    assert made.makespan_us == makespan_us and peak_bytes(held, made) <= min(most_bytes, 42)


def test_a_task_that_takes_more_memory_than_there_is_runs_when_nothing_else_can():
    held = [Stored(bytes=10, made_by=number, read_by=(), returned=True) for number in range(3)]
    curves, counts = dict.fromkeys(range(3), curve(10, 10)), dict.fromkeys(range(3), 1)
    tasks = graph((), (), ())
    placed = side_by_side(tasks, curves, counts, machine=TWO, workers=2, room=Room(held=held, most_bytes=1))
    assert [(each.task, each.start_us) for each in placed] == [(0, 0), (1, 10), (2, 20)]


def test_s3_is_near_the_best_of_all_schedules():
    """200 drawn graphs of up to five tasks on two cores, with curves as tasks have them."""
    draw, gaps = random.Random(0), []
    for _ in range(200):
        count = draw.randint(2, 5)
        needs = [tuple(sorted(draw.sample(range(i), k=min(i, draw.randint(0, 2))))) for i in range(count)]
        tasks = graph(*needs)
        curves = {}
        for index in range(count):
            one_us = draw.uniform(10, 500)
            curves[index] = curve(one_us, one_us * draw.uniform(0.5, 1.05))
        made_us = schedules(tasks, curves, strategies=("S3",), machine=TWO).makespan_us
        gaps.append(made_us / least_makespan_us(tasks, curves, cores=2) - 1)
    assert min(gaps) > -1e-9
    assert statistics.mean(gaps) < 0.005 and max(gaps) < 0.12  # 0.1 % and 9.7 % as this is written


# -- S4 --------------------------------------------------------------------------------------------------------------


SECOND = Machine(cores=2, slots=ExtraSlots(count=1, slowdown=2.0, neighbour_slowdown=1.25))


def test_s4_runs_a_small_task_on_a_second_hardware_thread_beside_a_large_one():
    """20 µs alone take 40 there, and hold the large one up by a fifth of that."""
    tasks, curves = graph((), (), (0, 1)), {0: curve(190, 100), 1: curve(20, 19), 2: curve(10, 6)}
    made = schedules(tasks, curves, strategies=("S4",), machine=SECOND)
    assert {each.task: (each.worker, each.threads) for each in made.placements} == {0: (0, 2), 1: (2, 1), 2: (0, 2)}
    assert made.makespan_us == pytest.approx(100 + 8 + 6)
    check(made, tasks, cores=2)


@pytest.mark.parametrize("small_us, slowdown, neighbour", [(60, 2.0, 1.25), (20, 2.0, 2.0), (20, 6.0, 1.0)])
def test_s4_leaves_tasks_where_they_are_if_that_is_shorter(small_us, slowdown, neighbour):
    """The small task outlasts the large one, or holds it up by as much as it takes alone."""
    machine = Machine(cores=2, slots=ExtraSlots(count=1, slowdown=slowdown, neighbour_slowdown=neighbour))
    curves = {0: curve(190, 100), 1: curve(small_us, small_us - 1)}
    made = schedules(graph((), ()), curves, strategies=("S4",), machine=machine)
    assert {each.worker for each in made.placements} == {0}


def test_s4_moves_nothing_where_that_wins_less_than_times_can_show():
    curves = {0: curve(1900, 1000), 1: curve(20, 19), 2: curve(10, 6)}
    tasks = graph((), (), (0, 1))
    for large_us, workers in ((2000, {0}), (700, {0, 2})):
        curves[0] = curve(1.9 * large_us, large_us)
        made = schedules(tasks, curves, strategies=("S4",), machine=SECOND)
        assert {each.worker for each in made.placements} == workers


def test_without_second_threads_s4_uses_the_core_that_a_task_bound_by_memory_leaves():
    def tasks(large_flops, small_bytes):
        large = task(0, kind="aten.add", flops=large_flops, bytes_=100 << 20)
        return TaskGraph(tasks=(large, task(1, kind="aten.mm", flops=1e6, bytes_=small_bytes)))

    curves = {0: curve(105, 100), 1: curve(20, 19)}
    made = schedules(tasks(1e5, 1000), curves, strategies=("S4",), machine=TWO)
    assert {each.task: (each.worker, each.threads) for each in made.placements} == {0: (0, 1), 1: (1, 1)}
    assert made.makespan_us == 105
    for others in (tasks(1e12, 1000), tasks(1e5, 90 << 20)):  # bound by computing; a neighbour that needs memory too
        made = schedules(others, curves, strategies=("S4",), machine=TWO)
        assert {each.worker for each in made.placements} == {0}
    made = schedules(tasks(1e5, 1000), {**curves, 0: curve(190, 100)}, strategies=("S4",), machine=TWO)
    assert {each.worker for each in made.placements} == {0}, "it needs both cores"


def test_strategies_of_one_graph_differ():
    """Each of the four does something of its own here."""
    kinds = ["aten.mm", "aten.add", "aten.add", "aten.convolution", "aten.convolution"]
    tasks = graph((), (), (1,), (0, 2), (0, 2), kinds=kinds)
    curves = {
        0: curve(300, 160), 1: curve(20, 30), 2: curve(40, 35), 3: curve(100, 90), 4: curve(100, 90),
    }  # fmt: skip
    made = {
        names: schedules(tasks, curves, strategies=names, machine=SECOND).shape
        for names in ((), ("S1",), ("S2",), ("S3",), ("S4",), ("S1", "S2", "S3", "S4"))
    }
    assert len(set(made.values())) >= 5 and made["S1",] != made["S2",]


def test_a_manual_setting_is_so_many_tasks_at_a_time_with_so_many_threads_each():
    curves = {0: curve(10, 6), 1: curve(100, 90), 2: curve(100, 90), 3: curve(20, 6)}
    made = manual(DIAMOND, curves, threads=1, workers=2, machine=TWO)
    assert made.makespan_us == 10 + 100 + 20 and counts_of(made) == dict.fromkeys(range(4), 1)
    crowded = manual(DIAMOND, curves, threads=2, workers=2, machine=TWO)
    assert crowded.makespan_us == 6 + 90 + 6 and counts_of(crowded) == dict.fromkeys(range(4), 2)
    assert {each.worker for each in manual(DIAMOND, curves, threads=2, workers=1, machine=TWO).placements} == {0}


# -- memory ------------------------------------------------------------------------------------------------------------


def serial(tasks):
    placements = tuple(
        Placement(task=task.index, worker=0, threads=1, start_us=task.index, end_us=task.index + 1.0)
        for task in tasks.tasks
    )
    return Schedule(strategies=(), cores=1, placements=placements)


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


@pytest.mark.parametrize("waits", [True, False])
def test_schedules_that_hold_more_than_they_may_are_left_out(waits, monkeypatch):
    """Four chains of two tasks, whose first results are large: side by side all four are there at once. A schedule in
    which tasks wait for memory holds no more than it may."""
    if not waits:
        monkeypatch.setattr(list_scheduling._Memory, "has_room_for", lambda memory, task: True)
    tasks = graph((), (0,), (), (2,), (), (4,), (), (6,))
    held = tuple(Stored(bytes=100, made_by=task, read_by=(task + 1,), returned=False) for task in (0, 2, 4, 6))
    part = GraphTimes(cut=SimpleNamespace(graph=tasks, held=held), curves=dict.fromkeys(range(8), curve(10, 9, 9, 9)))
    for memory, left in ((3.0, True), (2.9, waits)):
        options = Options(strategies=("S1", "S3"), memory=memory)
        found = worth_trying([part], options=options, machine=Machine(cores=4), budget=TimeLeft(60))
        assert found[-1].name == "S1" and (found[0].name == "S3") == left
        assert all(each.peak_bytes <= 100 * (1 + memory) for each in found)


def test_schedules_that_hardly_differ_from_a_better_one_come_last(monkeypatch):
    """S3 is the best one, S1+S3 the same but for a task, and S1 has other counts."""
    tasks = graph(*((),) * 30)
    us = {("S3",): 10.0, ("S1", "S3"): 11.0, ("S1",): 12.0}

    def made(names, parts, known, *, options, machine):
        placements = tuple(
            Placement(
                task=task, worker=0, threads=1 + (names == ("S1",) or (task == 7 and len(names) > 1)), start_us=task,
                end_us=task + us[names],
            )
            for task in range(30)
        )  # fmt: skip
        return [Schedule(strategies=names, cores=2, placements=placements)]

    monkeypatch.setattr(sys.modules[SchedulePair.__module__], "_made", made)
    part = GraphTimes(cut=SimpleNamespace(graph=tasks, held=()), curves={})
    options = Options(strategies=("S1", "S3"))
    found = worth_trying([part], options=options, machine=TWO, budget=TimeLeft(60))
    assert [each.name for each in found] == ["S3", "S1", "S1+S3"]


def test_a_real_graph_holds_its_results_and_lets_go_of_others():
    found = cut(traced(branches, branches_inputs()))
    total = sum(each.bytes for each in found.held)
    peak = peak_bytes(found.held, one_at_a_time(found, threads=1))
    returned = sum(each.bytes for each in found.held if each.returned)
    assert returned < peak < total
    assert returned >= sum(torch.Size(each.shape).numel() * 4 for each in branches(*branches_inputs()))
