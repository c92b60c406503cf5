"""Graphs of tasks with made-up times, what every schedule must keep, and the best schedule of tiny graphs."""

from __future__ import annotations

import itertools
from collections import defaultdict

from hypothesis import strategies as st

from dwconv.concurrency.task_graph import ExtraSlots, Machine, ScalingCurve, Schedule, Task, TaskGraph

ROUNDING_US = 1e-6


def task(index, *, needs=(), kind="aten.add", signature=None, flops=1e6, bytes_=1 << 20):
    return Task(
        index=index,
        name=f"{kind.rpartition('.')[2]}_{index}",
        kind=kind,
        signature=signature or f"{kind}([8, {index + 1}, 16, 16])",
        needs=tuple(needs),
        flops=flops,
        bytes=bytes_,
    )


def graph(*needs, kinds=None):
    """A task for each tuple of needs."""
    kinds = kinds or ["aten.add"] * len(needs)
    return TaskGraph(tasks=tuple(task(i, needs=each, kind=kinds[i]) for i, each in enumerate(needs)))


def curve(*us):
    """Times for 1, 2, … threads."""
    return ScalingCurve(median_us=dict(enumerate(us, start=1)))


@st.composite
def problems(draw, *, most_tasks=12, most_cores=4):
    """A graph, a curve for each task, and a machine."""
    cores = draw(st.integers(1, most_cores))
    tasks, curves = [], {}
    for index in range(draw(st.integers(0, most_tasks))):
        needs = draw(st.sets(st.integers(0, index - 1), max_size=3)) if index else ()
        kind = draw(st.sampled_from(["aten.mm", "aten.convolution", "aten.add"]))
        flops = draw(st.sampled_from([1e5, 1e8]))
        tasks.append(task(index, needs=sorted(needs), kind=kind, flops=flops, bytes_=draw(st.integers(1, 1 << 22))))
        curves[index] = curve(*draw(st.lists(st.floats(1, 1000), min_size=cores, max_size=cores)))
    slots = draw(
        st.builds(
            ExtraSlots, count=st.integers(0, 2), slowdown=st.floats(1, 2), neighbour_slowdown=st.floats(1, 2)
        )
    )  # fmt: skip
    machine = Machine(
        cores=cores, handover_us=draw(st.sampled_from([0.0, 5.0, 80.0])), change_us=draw(st.sampled_from([0.0, 7.0])),
        slots=slots,
    )  # fmt: skip
    return TaskGraph(tasks=tuple(tasks)), curves, machine


def check(schedule: Schedule, graph: TaskGraph, *, cores: int, handover_us: float = 0.0) -> None:
    """Every task once, after what it needs; no worker runs two; never more threads than cores. Tasks of workers above
    the cores, on extra slots, use no cores, and have one thread."""
    placed = {placement.task: placement for placement in schedule.placements}
    assert sorted(placement.task for placement in schedule.placements) == [task.index for task in graph.tasks]
    for each in graph.tasks:
        for needed in each.needs:
            handed_us = handover_us if placed[needed].worker != placed[each.index].worker else 0.0
            assert placed[each.index].start_us >= placed[needed].end_us + handed_us - ROUNDING_US
    by_worker = defaultdict(list)
    for placement in schedule.placements:
        by_worker[placement.worker].append(placement)
    for placements in by_worker.values():
        for before, after in itertools.pairwise(sorted(placements, key=lambda each: (each.start_us, each.end_us))):
            assert after.start_us >= before.end_us - ROUNDING_US
    assert all(placement.threads == 1 for placement in schedule.placements if placement.worker >= cores)
    on_cores = [placement for placement in schedule.placements if placement.worker < cores]
    for at in on_cores:
        running = [p for p in on_cores if p.start_us <= at.start_us < p.end_us - ROUNDING_US]
        assert sum(placement.threads for placement in running) <= cores


def least_makespan_us(graph: TaskGraph, curves, *, cores: int) -> float:
    """The shortest of all schedules that start a task only at the beginning or when another ends, for tiny graphs and
    a machine that charges nothing. An optimal schedule is among them: any other can be shifted to the left."""
    best = sum(min(curve.median_us.values()) for curve in curves.values())

    def go_on(now, running, ended, waiting):
        nonlocal best
        if now >= best:
            return
        if not running and not waiting:
            best = now
            return
        ready = [i for i in waiting if set(graph.tasks[i].needs) <= ended]
        free = cores - sum(threads for _, _, threads in running)
        for count in range(len(ready) + 1):
            for started in itertools.combinations(ready, count):
                for threads in itertools.product(range(1, free + 1), repeat=count):
                    if sum(threads) > free or not (running or count):
                        continue
                    new = [(now + curves[i].median_us[n], i, n) for i, n in zip(started, threads, strict=True)]
                    both = sorted([*running, *new])
                    end = both[0][0]
                    left = [run for run in both if run[0] > end]
                    go_on(end, left, ended | {i for e, i, _ in both if e <= end}, waiting - set(started))

    go_on(0.0, [], frozenset(), frozenset(range(len(graph.tasks))))
    return best
