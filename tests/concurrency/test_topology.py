"""Which cores the threads of a task have: read from the system's lists, climbed over, and used by lanes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dwconv.concurrency import second_threads, segments
from dwconv.concurrency.hill_climbing import HillClimbing
from dwconv.concurrency.list_scheduling import one_after_the_other
from dwconv.concurrency.strategies import schedules
from dwconv.concurrency.task_graph import Machine, Placement, Schedule
from dwconv.concurrency.topology import ALIKE, COMPACT, PAIRED, SPREAD, topology
from dwconv.system import cpu_facts
from dwconv.system.threads import kept_on
from tests.made_up_graphs import curve, graph, task

ALLOWED = hasattr(os, "sched_getaffinity") and sorted(os.sched_getaffinity(0))


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Writes the system's lists of a machine. ``cores``: the processors of each; ``caches``: of each level after the
    first, the cores that share it; ``nodes``: cores of each NUMA node."""
    for name in ("OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"):
        monkeypatch.delenv(name, raising=False)

    def write(cores, *caches, nodes=()):
        def listed(some):
            return ",".join(str(processor) for core in some for processor in cores[core])

        for number, processors in enumerate(cores):
            for processor in processors:
                folder = tmp_path / f"cpu{processor}"
                (folder / "topology").mkdir(parents=True)
                (folder / "topology" / "thread_siblings_list").write_text(listed([number]))
                for level, groups in enumerate([[[each] for each in range(len(cores))], *caches], start=1):
                    (group,) = (group for group in groups if number in group)
                    cache = folder / "cache" / f"index{level}"
                    cache.mkdir(parents=True)
                    for name, text in (("level", level), ("type", "Data"), ("size", f"{level}M"),
                                       ("shared_cpu_list", listed(group))):  # fmt: skip
                        (cache / name).write_text(f"{text}\n")
                for node, members in enumerate(nodes):
                    if number in members:
                        (folder / f"node{node}").mkdir()
        allowed = frozenset(processor for processors in cores for processor in processors)
        monkeypatch.setattr(second_threads, "TOPOLOGY", tmp_path)
        monkeypatch.setattr(second_threads, "allowed_cores", lambda: set(allowed))
        monkeypatch.setattr(cpu_facts, "_allowed_cpus", lambda *, threads: allowed)
        return topology(len(cores))

    return write


EIGHT = [[core] for core in range(8)]
HALVES = [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_with_two_last_level_caches_threads_are_near_or_far(machine):
    found = machine(EIGHT, HALVES)
    assert [found.groupings(threads) for threads in range(1, 10)] == [
        (), *[(SPREAD, COMPACT)] * 5, (), (), (),
    ]  # fmt: skip  # one thread, all of them and all but one have one grouping
    assert found.processors(4, SPREAD) == [0, 4, 1, 5] and found.processors(4, COMPACT) == [0, 1, 2, 3]
    assert found.processors(6, COMPACT) == [0, 1, 2, 3, 4, 5]
    assert found.processors(3, COMPACT, free=[1, 3, 4, 5, 6, 7]) == [4, 5, 6]
    assert found.processors(2, COMPACT, free=[1, 3, 4, 5, 6, 7]) == [1, 3], "a cache that is used already is filled up"
    assert found.processors(4, SPREAD, free=[1, 3, 4, 5, 6, 7]) == [1, 4, 3, 5]


def test_numa_nodes_and_clusters_within_a_cache_count_too(machine):
    found = machine(EIGHT, [[0, 1], [2, 3], [4, 5], [6, 7]], [[*range(8)]], nodes=HALVES)
    assert found.processors(4, SPREAD) == [0, 4, 2, 6]
    assert found.processors(2, COMPACT) == [0, 1] and found.processors(4, COMPACT) == [0, 1, 2, 3]
    assert found.groupings(2) == (SPREAD, COMPACT)


def test_idle_second_hardware_threads_are_a_grouping_of_their_own(machine):
    found = machine([[0, 4], [1, 5], [2, 6], [3, 7]], [[0, 1, 2, 3]])
    assert found.groupings(2) == found.groupings(4) == (SPREAD, PAIRED)
    assert found.processors(2, PAIRED) == [0, 4] and found.processors(3, PAIRED) == [0, 4, 1]
    assert found.processors(4, PAIRED, free=[1, 3]) == [1, 5, 3, 7]
    assert found.processors(3, PAIRED, free=[1]) == [1], "no more than there are"


@pytest.mark.parametrize(
    "cores, caches",
    [([[0], [1]], [[[0, 1]]]), (EIGHT, [[[*range(8)]]]), (EIGHT, [[[each] for each in range(8)]]), (EIGHT, [])],
)
def test_where_cores_are_alike_nothing_is_timed_for_it(machine, cores, caches):
    found = machine(cores, *caches)
    assert not any(found.groupings(threads) for threads in range(12))
    timed = []
    for where in (ALIKE, found):
        climb = HillClimbing(cores=len(cores), topology=where)
        count = len(timed)
        climb.curve(task(0), lambda task, threads: timed.append(threads) or 100.0 / threads)
        timed.append(None)
        assert timed[count:] == timed[: len(timed) - count], "the same counts as without a topology"


def test_the_system_chooses_where_cores_are_not_all_ours(machine, monkeypatch):
    machine(EIGHT, HALVES)
    assert topology(7) == ALIKE != topology(8)
    monkeypatch.setenv("OMP_PROC_BIND", "close")
    assert topology(8) == ALIKE


# -- the climb ---------------------------------------------------------------------------------------------------------


class TimedGroupings:
    """Times by count, of a grouping so many times as long."""

    def __init__(self, us, **factors):
        self._us, self._factors, self.timed = us, {"": 1.0, **factors}, []

    def __call__(self, task, threads, *, grouping=""):
        self.timed.append((threads, grouping))
        factor = self._factors[grouping]
        return self._us(threads) * (factor(threads) if callable(factor) else factor)


def valley(threads):
    """The best count is 4."""
    return 1000.0 * (abs(threads - 4) + 10)


def test_the_climb_goes_on_over_groupings_from_the_best_count(machine):
    where = machine(EIGHT, HALVES)
    timed = TimedGroupings(valley, compact=0.8, spread=1.1)
    climb = HillClimbing(cores=8, topology=where)
    found = climb.curve(task(0), timed)
    assert found.best_threads() == 4 and found.groupings[4] == COMPACT
    assert found.median_us[4] == pytest.approx(8000, rel=0.01)
    assert {count for count, grouping in timed.timed if grouping == SPREAD} == {4}, "only at the best count"
    assert {count for count, grouping in timed.timed if grouping == COMPACT} <= {2, 3, 4, 5, 6}
    count = len(timed.timed)
    climb.curve(task(0), timed)
    assert len(timed.timed) == count


def test_another_grouping_may_move_the_best_count(machine):
    """Compact threads gain more the fewer they are."""
    timed = TimedGroupings(valley, compact=lambda threads: 0.5 if threads < 4 else 0.9, spread=1.0)
    found = HillClimbing(cores=8, topology=machine(EIGHT, HALVES)).curve(task(0), timed)
    assert found.best_threads() == 3 and found.groupings[3] == COMPACT
    assert set(found.groupings.values()) == {COMPACT}


def test_what_gains_no_more_than_it_takes_to_keep_threads_there_is_left_to_the_system(machine):
    where = machine(EIGHT, HALVES)
    for us, factor in ((lambda threads: 10_000.0 + threads, 0.98), (lambda threads: 60.0 - threads, 0.7)):
        found = HillClimbing(cores=8, topology=where).curve(task(0), TimedGroupings(us, compact=factor, spread=factor))
        assert found.groupings == {}


def test_schedules_say_how_the_cores_of_a_task_are_grouped():
    given = replace(curve(40, 22, 21, 20), groupings={2: COMPACT})
    made = graph((), (0,))
    found = schedules(made, {0: given, 1: curve(10, 9, 8, 7)}, strategies=["S2"], machine=Machine(cores=4))
    assert {each.grouping for each in found.placements} == {""}
    small = replace(given, median_us={1: 40.0, 2: 12.0, 3: 21.0, 4: 20.0})
    found = schedules(made, {0: small, 1: curve(10, 9, 8, 7)}, strategies=["S1"], machine=Machine(cores=4))
    assert [(each.threads, each.grouping) for each in found.placements] == [(2, COMPACT), (4, "")]
    plain = one_after_the_other(made, {0: small, 1: curve(10, 9, 8, 7)}, {0: 2, 1: 4}, machine=Machine(cores=4))
    assert found.shape != Schedule(strategies=(), cores=4, placements=plain).shape


# -- the cores of lanes ------------------------------------------------------------------------------------------------


class Cut:
    """A graph of tasks that need nothing."""

    def __init__(self, count):
        self.graph = graph(*((),) * count)


def beside_each_other(*lanes, cores=8):
    """A task on each lane, all at once: its threads and the grouping of its cores."""
    placements = [
        Placement(task=lane, worker=lane, threads=threads, start_us=0.0, end_us=10.0, grouping=grouping)
        for lane, (threads, grouping) in enumerate(lanes)
    ]
    return Schedule(strategies=(), cores=cores, placements=tuple(placements))


def cores_of(schedule):
    (segment,) = segments.segments(Cut(len(schedule.placements)), schedule)
    return segments.cores_of_lanes(segment, threads=schedule.cores), segment.teams


def test_lanes_get_cores_as_their_tasks_are_grouped(machine, monkeypatch):
    machine(EIGHT, HALVES)
    monkeypatch.setattr(segments, "cores_of_this_process", lambda: [*range(8)])
    assert cores_of(beside_each_other((4, SPREAD), (4, COMPACT)))[0] == [[4, 5, 6, 7], [0, 1, 2, 3]]
    assert cores_of(beside_each_other((4, SPREAD), (2, COMPACT)))[0] == [[2, 4, 3, 5], [0, 1]]
    assert cores_of(beside_each_other((2, ""), (4, SPREAD))) == ([[2, 3], [0, 4, 1, 5]], [0, 4])
    assert cores_of(beside_each_other((2, ""), (4, ""))) == ([[0, 1], [2, 3, 4, 5]], [0, 0])
    monkeypatch.setenv("OMP_PROC_BIND", "close")
    assert cores_of(beside_each_other((4, SPREAD), (4, COMPACT)))[0] == [[], []]


def test_no_lane_has_the_second_threads_that_another_one_uses(machine, monkeypatch):
    machine([[0, 4], [1, 5], [2, 6], [3, 7]], [[0, 1, 2, 3]])
    monkeypatch.setattr(segments, "cores_of_this_process", lambda: [0, 1, 2, 3])
    assert cores_of(beside_each_other((2, PAIRED), (2, ""), cores=4))[0] == [[0, 4], [1, 2]]
    extra = beside_each_other((2, PAIRED), (2, ""), cores=4)
    on_slot = Placement(task=2, worker=4, threads=1, start_us=0.0, end_us=10.0)
    found, _ = cores_of(replace(extra, placements=(*extra.placements, on_slot)))
    assert found == [[0, 1], [2, 3], [4]]


def test_one_task_at_a_time_runs_on_the_cores_of_its_grouping(machine, monkeypatch):
    """A segment for each grouping; tasks of one thread stay with the one before."""
    machine(EIGHT, HALVES)
    monkeypatch.setattr(segments, "cores_of_this_process", lambda: [*range(8)])
    given = [(8, ""), (4, COMPACT), (1, ""), (4, COMPACT), (2, SPREAD), (8, "")]
    placements = [
        Placement(task=at, worker=0, threads=threads, start_us=10.0 * at, end_us=10.0 * at + 10, grouping=grouping)
        for at, (threads, grouping) in enumerate(given)
    ]
    found = segments.segments(Cut(6), Schedule(strategies=(), cores=8, placements=tuple(placements)))
    assert [[step.task for step in each.lanes[0]] for each in found] == [[0], [1, 2, 3], [4], [5]]
    assert [each.teams for each in found] == [[0], [4], [2], [0]]
    assert [segments.cores_of_lanes(each, threads=8) for each in found[1:3]] == [[[0, 1, 2, 3]], [[0, 4]]]


# -- kept there --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not ALLOWED, reason="there is no affinity")
def test_all_threads_of_the_process_are_kept_somewhere_and_let_go():
    torch.ones(1 << 20).add_(1)
    threads = [int(each.name) for each in Path("/proc/self/task").iterdir()]
    before = {thread: os.sched_getaffinity(thread) for thread in threads}
    with kept_on(ALLOWED[:1]):
        assert all(os.sched_getaffinity(thread) == {ALLOWED[0]} for thread in threads)
    assert {thread: os.sched_getaffinity(thread) for thread in threads} == before
    with pytest.raises(OSError), kept_on([100_000]):
        pass
    assert {thread: os.sched_getaffinity(thread) for thread in threads} == before
