"""A graph of tasks and its schedules, as plain data: chains of operators that run without a break, which worker runs
which task, the machine that schedules are made for, and the memory that they take.

It needs neither torch nor a clock, so that schedules can be computed, tested and simulated for any number of cores.

A result is there from the start of its task until the last task that reads it has ended; what the graph returns stays.
A schedule takes more memory than plain order where tasks run ahead of their place: results then stay longer until their
readers run.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import Annotated, Literal

import msgspec


@dataclass(frozen=True, kw_only=True)
class Task:
    """A chain of operators that one worker runs without handing over in between."""

    index: int
    """Its place in the graph; every task comes after those it needs."""
    name: str
    """For people: its costliest operator and where the graph has it, such as ``convolution_7``."""
    kind: str
    """The costliest operator without its overload, such as ``aten.convolution_backward``."""
    signature: str
    """Operators, shapes, types and strides: tasks of one signature share what was measured."""
    needs: tuple[int, ...]
    """Indexes of the tasks whose results it reads."""
    flops: float
    """Floating-point operations, a multiply-add counted as two; 0 where no formula is known."""
    bytes: int
    """Bytes read and written."""


@dataclass(frozen=True, kw_only=True)
class TaskGraph:
    """Tasks in an order in which they could run one after the other."""

    tasks: tuple[Task, ...]

    def sorter(self) -> TopologicalSorter[int]:
        """Gives the tasks that can run next."""
        found = TopologicalSorter({task.index: task.needs for task in self.tasks})
        found.prepare()
        return found

    def readers(self) -> dict[int, list[int]]:
        """By task, the tasks that wait for it."""
        readers: dict[int, list[int]] = {task.index: [] for task in self.tasks}
        for task in self.tasks:
            for needed in task.needs:
                readers[needed].append(task.index)
        return readers


@dataclass(frozen=True, kw_only=True)
class ScalingCurve:
    """How long a task takes by its number of intra-op threads, in microseconds."""

    median_us: Mapping[int, float]
    """By number of threads, from 1 up without a gap."""
    groupings: Mapping[int, Grouping] = field(default_factory=dict)
    """By number of threads, the grouping of its cores, where one is faster than what the system does."""

    def best_threads(self) -> int:
        """The count of least time; of equals, the smallest."""
        return min(sorted(self.median_us), key=self.median_us.__getitem__)


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Memory that several views may share."""

    bytes: int
    made_by: int | None
    """The task; None for what was kept for the backward pass and is there from the start."""
    read_by: tuple[int, ...]
    """Tasks. After the last one it is free."""
    returned: bool
    """True if it stays: the graph returns it, for the caller or the backward pass."""


@dataclass(frozen=True, kw_only=True)
class ExtraSlots:
    """Places beside the cores, where tasks run on one thread while the cores are busy: second hardware threads of
    cores, or one more stream of a GPU. Workers from number ``cores`` on are such places."""

    count: int = 0
    slowdown: float = 1.0
    """How many times as long a task takes there as alone on a core."""
    neighbour_slowdown: float = 1.0
    """How many times as long the task on the cores takes while an extra slot is busy."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What list scheduling needs of a machine."""

    cores: int
    handover_us: float = 0.0
    """From the end of a task until a task that waits for it begins on another worker."""
    change_us: float = 0.0
    """By how much a task takes longer if its worker ran with another number of threads before."""
    slots: ExtraSlots = ExtraSlots()


Grouping = Literal["", "spread", "compact", "paired"]
"""Of the cores of a task; empty: the system places its threads."""
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Threads = Annotated[int, msgspec.Meta(ge=1, le=4096)]
Microseconds = Annotated[float, msgspec.Meta(ge=0, lt=1e18)]


class Placement(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One task on one worker, with the times that the schedule expects, in microseconds since the step began."""

    task: Count
    worker: Annotated[int, msgspec.Meta(ge=0, lt=4096)]
    threads: Threads
    start_us: Microseconds
    end_us: Microseconds
    grouping: Grouping = ""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Every task of a graph, placed. A worker runs its tasks by their start, each as soon as its needs are met."""

    strategies: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=500)], ...], msgspec.Meta(max_length=200)]
    """Names of the strategies that made it, such as ``("S1", "S3")``; none for one task at a time on all cores."""
    cores: Threads
    placements: Annotated[tuple[Placement, ...], msgspec.Meta(max_length=100_000)]

    @property
    def makespan_us(self) -> float:
        """When the last task ends."""
        return makespan_us(self.placements)

    @property
    def in_order(self) -> list[Placement]:
        """As workers run them."""
        return sorted(self.placements, key=lambda each: (each.start_us, each.task))

    @property
    def shape(self) -> object:
        """Equal for schedules that run alike."""
        return tuple((each.task, each.worker, each.threads, each.grouping) for each in self.in_order)


def makespan_us(placements: Sequence[Placement]) -> float:
    """When the last task ends."""
    return max((placement.end_us for placement in placements), default=0.0)


# -- memory ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Room:
    """What the results of a graph may take."""

    held: Sequence[Stored]
    most_bytes: float


def peak_bytes(held: Sequence[Stored], schedule: Schedule) -> int:
    """The most that is held at once."""
    placed = {each.task: each for each in schedule.placements}
    changes: list[tuple[float, int]] = []
    live = 0
    for each in held:
        if each.made_by is None:
            live += each.bytes
        else:
            changes.append((placed[each.made_by].start_us, each.bytes))
        if not each.returned:
            changes.append((max(placed[reader].end_us for reader in each.read_by), -each.bytes))
    peak = live
    for _, change in sorted(changes):  # of one moment, what is freed comes first
        live += change
        peak = max(peak, live)
    return peak


# -- drawn by chance, to show that any schedule gives the same results -------------------------------------------------


_FEWEST_US, _MOST_US = 1.0, 100.0


def drawn(graph: TaskGraph, *, cores: int, workers: int, seed: str) -> Schedule:
    """Every task on any of ``workers`` workers with any number of threads, as soon as that worker and what the task
    needs are ready, in any order in which the tasks can run. The same seed draws the same."""
    draw = random.Random(seed)
    waiting, ready = graph.sorter(), list[int]()
    free_us = [0.0] * workers
    ended_us: dict[int, float] = {}
    placements = []
    while waiting.is_active():
        ready += waiting.get_ready()
        task = graph.tasks[ready.pop(draw.randrange(len(ready)))]
        worker = draw.randrange(workers)
        start_us = max([free_us[worker], *(ended_us[needed] for needed in task.needs)])
        end_us = start_us + draw.uniform(_FEWEST_US, _MOST_US)
        free_us[worker] = ended_us[task.index] = end_us
        placements.append(
            Placement(
                task=task.index, worker=worker, threads=draw.randint(1, cores), start_us=start_us, end_us=end_us
            )
        )  # fmt: skip
        waiting.done(task.index)
    return Schedule(strategies=(), cores=cores, placements=tuple(placements))
