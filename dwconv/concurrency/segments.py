"""Segments: a schedule as compiled code runs it, one segment after the other.

    caller          │ 0 ── 1 ── │ 3 ────── 5 │ 6 ──        tasks 0, 1 and 6 on several threads: nothing beside them
    another thread  │           │ └─► 4 ──┘  │             tasks of one thread, side by side

In a segment of several lanes all tasks have one thread: its lanes are threads of the OpenMP team that runs the wide
tasks, so that the process never has more of these threads than cores. Where a wide task runs beside another, there is
one segment, and each lane has a team of its own.

The lanes of a schedule with S3 take what is ready: the schedule gives the numbers of threads, and the order to begin
with. A lane takes no task of more threads than the schedule has on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dwconv import settings
from dwconv.concurrency.interference import kind_of_task
from dwconv.concurrency.lanes import by_worker, handed
from dwconv.concurrency.second_threads import processor_of
from dwconv.concurrency.task_graph import Grouping, Placement, Schedule, Stored
from dwconv.concurrency.tasks import CutGraph
from dwconv.concurrency.topology import ALIKE, topology
from dwconv.system.cpu_facts import cores_of_this_process


@dataclass(frozen=True, kw_only=True)
class LaneStep:
    """A task of a lane."""

    task: int
    threads: int
    waits: tuple[int, ...]
    """Tasks of other lanes of the segment."""
    signals: bool
    """True if another lane waits for it."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """What runs until all its lanes have ended."""

    lanes: tuple[tuple[LaneStep, ...], ...]
    """The caller's first."""
    workers: tuple[int, ...]
    """By lane, the worker of the schedule."""
    groupings: tuple[Grouping, ...] = ()
    """By lane, of its cores; none if the system places all of them."""

    @property
    def teams(self) -> list[int]:
        """By lane, how many threads are kept on its cores with it; 0 if the system places them."""
        if not any(self.groupings):
            return [0 for _ in self.lanes]
        return [width if grouping else 0 for width, grouping in zip(self.widths, self.groupings, strict=True)]

    @property
    def is_narrow(self) -> bool:
        """True if every task has one thread."""
        return all(step.threads == 1 for lane in self.lanes for step in lane)

    @property
    def widths(self) -> list[int]:
        """By lane, the most threads that a task of it has."""
        return [max((step.threads for step in lane), default=1) for lane in self.lanes]


def segments(cut: CutGraph, schedule: Schedule) -> list[Segment]:
    """``schedule`` in segments. Raises InvalidChoice if it does not fit the graph."""
    placed = by_worker(cut, schedule)
    if len(placed) > 1 and _has_wide_beside_others(schedule):
        return [_segment(cut, placed, sorted({0, *(each.worker for each in schedule.placements)}))]
    found: list[Segment] = []
    alone: list[Placement] = []
    narrow: list[Placement] = []
    grouping: Grouping | None = None

    def end_narrow() -> None:
        workers = sorted({each.worker for each in narrow})
        if len(workers) < 2:
            alone.extend(narrow)
        else:
            end_alone()
            found.append(_segment(cut, [[each for each in narrow if each.worker == at] for at in workers], workers))
        narrow.clear()

    def end_alone() -> None:
        nonlocal grouping
        grouping = None
        if alone:
            found.append(_segment(cut, [alone], [0]))
            alone.clear()

    for each in schedule.in_order:
        if each.threads == 1:
            narrow.append(each)
        else:
            end_narrow()
            if grouping not in (None, each.grouping):
                end_alone()
            grouping = each.grouping
            alone.append(each)
    end_narrow()
    end_alone()
    return found


def _has_wide_beside_others(schedule: Schedule) -> bool:
    """True if a task of several threads runs while another does."""
    any_ends_us = wide_ends_us = float("-inf")
    for each in schedule.in_order:
        if (any_ends_us if each.threads > 1 else wide_ends_us) > each.start_us:
            return True
        any_ends_us = max(any_ends_us, each.end_us)
        if each.threads > 1:
            wide_ends_us = max(wide_ends_us, each.end_us)
    return False


def _segment(cut: CutGraph, placed: Sequence[Sequence[Placement]], workers: Sequence[int]) -> Segment:
    waits = handed(cut, placed)
    waited = {needed for each in waits.values() for needed in each}
    lanes = tuple(
        tuple(
            LaneStep(
                task=each.task, threads=each.threads, waits=tuple(waits[each.task]), signals=each.task in waited
            )
            for each in lane
        )
        for lane in placed
    )  # fmt: skip
    return Segment(lanes=lanes, workers=tuple(workers), groupings=tuple(map(_grouping, placed)))


def _grouping(lane: Sequence[Placement]) -> Grouping:
    """Of the cores of a lane: the one in which its tasks of several threads take most of their time."""
    us: dict[Grouping, float] = {}
    for each in lane:
        if each.threads > 1:
            us[each.grouping] = us.get(each.grouping, 0.0) + each.end_us - each.start_us
    return max(us, key=us.__getitem__, default="")


# -- tasks that lanes take when they are ready -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Ready:
    """The tasks of a segment, in an order in which they can run, each named by its place in it."""

    tasks: tuple[int, ...]
    readers: tuple[tuple[int, ...], ...]
    needs: tuple[int, ...]
    """How many tasks of the segment each waits for."""
    kinds: tuple[int, ...]
    threads: tuple[int, ...]
    us: tuple[float, ...]
    """What they take."""
    makes: tuple[int, ...]
    """Bytes of their results."""
    stored: tuple[tuple[int, tuple[int, ...]], ...]
    """Bytes that are free once these tasks of the segment have ended."""
    held: int
    """Bytes at the beginning of the segment."""
    limit: int
    """Bytes that the results may take."""
    way_us: tuple[float, ...]
    """From the start of the task to the end of the longest chain that waits for it."""
    widths: tuple[int, ...]
    """By lane, the threads that it has."""
    cores: int
    """Of all lanes."""


def decides_at_run_time(schedule: Schedule) -> bool:
    """True if lanes may run tasks in another order than the schedule has, and on other lanes."""
    return "S3" in schedule.strategies and all(each.worker < schedule.cores for each in schedule.placements)


def ready(cut: CutGraph, schedule: Schedule, segment: Segment, *, before: Collection[int], limit: int) -> Ready:
    """The tasks of ``segment`` for lanes that decide at run time. ``before``: the tasks of the segments before it.
    ``limit``: bytes that results may take."""
    mine = {step.task for lane in segment.lanes for step in lane}
    tasks = [each.task for each in schedule.in_order if each.task in mine]
    place = {task: at for at, task in enumerate(tasks)}
    took_us = {placed.task: placed.end_us - placed.start_us for placed in schedule.placements}
    threads = {placed.task: placed.threads for placed in schedule.placements}
    readers: list[list[int]] = [[] for _ in tasks]
    for task in tasks:
        for needed in cut.graph.tasks[task].needs:
            if needed in place:
                readers[place[needed]].append(place[task])
    way_us = [0.0] * len(tasks)
    for at in reversed(range(len(tasks))):
        way_us[at] = took_us[tasks[at]] + max((way_us[reader] for reader in readers[at]), default=0.0)
    makes: Counter[int] = Counter()
    for each in cut.held:
        if each.made_by is not None:
            makes[each.made_by] += each.bytes
    return Ready(
        tasks=tuple(tasks),
        readers=tuple(map(tuple, readers)),
        needs=tuple(sum(needed in place for needed in cut.graph.tasks[task].needs) for task in tasks),
        kinds=tuple(kind_of_task(cut.graph.tasks[task]) for task in tasks),
        threads=tuple(threads[task] for task in tasks),
        us=tuple(took_us[task] for task in tasks),
        makes=tuple(makes[task] for task in tasks),
        stored=tuple(
            (each.bytes, tuple(place[reader] for reader in each.read_by if reader in place))
            for each in cut.held
            if _is_freed(each, mine, before)
        ),
        held=sum(each.bytes for each in cut.held if _is_held(each, before)),
        limit=limit,
        way_us=tuple(way_us),
        widths=tuple(segment.widths),
        cores=max(schedule.cores, len(segment.lanes)) if segment.is_narrow else schedule.cores,
    )


def _is_freed(stored: Stored, mine: Collection[int], before: Collection[int]) -> bool:
    """True if the last task that reads it is one of ``mine``."""
    left = [reader for reader in stored.read_by if reader not in before]
    return not stored.returned and bool(left) and all(reader in mine for reader in left)


def _is_held(stored: Stored, before: Collection[int]) -> bool:
    """True if it is there once ``before`` have run."""
    is_made = stored.made_by is None or stored.made_by in before
    return is_made and (stored.returned or any(reader not in before for reader in stored.read_by))


# -- the cores of each lane --------------------------------------------------------------------------------------------


def cores_of_lanes(segment: Segment, *, threads: int) -> list[list[int]]:
    """By lane, the processors that it is kept on: disjoint sets, of as many as it has threads; for workers beside the
    cores, a second processor of a core. Empty lists, so that the system places them, if OpenMP binds threads itself, if
    there are too few, or if the process with its ``threads`` does not use all its cores: other processes may be meant
    to have the rest."""
    cores = cores_of_this_process()
    beside = [
        processor_of(worker, cores=threads) if width == 1 else None
        for worker, width in zip(segment.workers, segment.widths, strict=True)
    ]
    wanted = [0 if second is not None else width for width, second in zip(segment.widths, beside, strict=True)]
    if settings.openmp_binds_threads() or threads < len(cores) or sum(wanted) > len(cores):
        return [[] for _ in wanted]
    free = list(cores)
    taken: list[list[int]] = [[] if second is None else [second] for second in beside]
    where = topology(threads) if any(segment.groupings) else ALIKE
    by_need = sorted(range(len(wanted)), key=lambda lane: _FIRST.index(_grouping_of(segment, lane, beside)))
    for lane in by_need:  # those whose cores are together choose first
        grouping = _grouping_of(segment, lane, beside)
        if wanted[lane]:
            chosen = free[: wanted[lane]]
            if grouping and where.domains:
                chosen = where.processors(wanted[lane], grouping, free=free)
            taken[lane] = chosen
            free = [core for core in free if core not in chosen]
    return taken


_FIRST: tuple[Grouping, ...] = ("paired", "compact", "spread", "")


def _grouping_of(segment: Segment, lane: int, beside: Sequence[int | None]) -> Grouping:
    """Of the cores of a lane. None is paired where tasks run on second hardware threads beside them."""
    grouping = segment.groupings[lane] if segment.groupings else ""
    return "compact" if grouping == "paired" and any(each is not None for each in beside) else grouping
