"""The four strategies, alone and combined: from tasks, their times and a machine to a schedule.

    S1   own thread counts: each task its own best number of threads, where that pays for the change of the count
    S2   shared thread counts: tasks of one kind share the count of the kind's largest instance
    S3   co-running: ready tasks run beside each other on idle cores, where predicted times make the step shorter
    S4   fill-in: small tasks run beside large ones on what those leave: second hardware threads, or idle cores

Without S1 and S2 a task gets all cores; without S3 and S4 one task runs at a time. With both S1 and S2, kinds share a
count except where own counts make the step shorter. With S3 and S4, counts are upper bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import msgspec

from dwconv.concurrency.fill_in import filled
from dwconv.concurrency.list_scheduling import (
    Counts,
    Curves,
    counts_to_try,
    one_after_the_other,
    side_by_side,
    ways_to_the_end_us,
)
from dwconv.concurrency.task_graph import Machine, Placement, Room, Schedule, TaskGraph, makespan_us

STRATEGIES = ("S1", "S2", "S3", "S4")
COMBINED = tuple(names for count in range(1, len(STRATEGIES) + 1) for names in combinations(STRATEGIES, count))
"""Every strategy alone, then every combination of two, three and four."""


def schedules(
    graph: TaskGraph, curves: Curves, *, strategies: Sequence[str], machine: Machine, workers: int | None = None,
    room: Room | None = None,
) -> Schedule:  # fmt: skip
    """The schedule that ``strategies`` make of ``graph``; without any, one task at a time on all cores.

    ``curves``: by task, its time for 1 to ``machine.cores`` threads. ``workers``: the most tasks that run at once,
    not counting those on extra slots; by default as many as there are cores. ``room``: with S3, tasks wait rather than
    take more memory."""
    counts = always(graph, machine.cores)
    if "S1" in strategies and "S2" in strategies:
        counts = own_or_shared(graph, curves, machine=machine)
    elif "S1" in strategies:
        counts = own_best(graph, curves, change_us=machine.change_us)
    elif "S2" in strategies:
        counts = shared_by_kind(graph, curves)
    placements = one_after_the_other(graph, curves, counts, machine=machine)
    most = machine.cores if workers is None else min(workers, machine.cores)
    if "S3" in strategies and most > 1:
        search = _Search(graph, curves, counts, machine=machine, workers=most, room=room)
        placements = min([placements, search.shortest()], key=makespan_us)
    names = tuple(name for name in STRATEGIES if name in strategies and name != "S4")
    made = Schedule(strategies=names, cores=machine.cores, placements=_grouped(placements, curves))
    return filled_in(made, graph, curves, machine=machine, workers=workers) if "S4" in strategies else made


def filled_in(
    made: Schedule, graph: TaskGraph, curves: Curves, *, machine: Machine, workers: int | None = None
) -> Schedule:
    """``made``, which other strategies have made, with S4 added."""
    most = machine.cores if workers is None else min(workers, machine.cores)
    placements = filled(graph, curves, made.placements, machine=machine, workers=most)
    return replace(made, strategies=(*made.strategies, "S4"), placements=_grouped(placements, curves))


def _grouped(placements: tuple[Placement, ...], curves: Curves) -> tuple[Placement, ...]:
    """``placements``, each with the grouping of cores that its time is of."""
    if not any(curve.groupings for curve in curves.values()):
        return placements
    return tuple(
        msgspec.structs.replace(each, grouping=curves[each.task].groupings.get(each.threads, "")) for each in placements
    )


def manual(graph: TaskGraph, curves: Curves, *, threads: int, workers: int, machine: Machine) -> Schedule:
    """A setting as people make it by hand: at most ``workers`` tasks at a time (inter-op) with ``threads`` each
    (intra-op).

    The two may use more threads than there are cores. The expected times then count with as many cores as threads, and
    are too short."""
    counts = always(graph, threads)
    if workers == 1:
        placements = one_after_the_other(graph, curves, counts, machine=machine)
    else:
        roomy = replace(machine, cores=max(machine.cores, threads * workers))
        placements = side_by_side(graph, curves, counts, machine=roomy, workers=workers)
    return Schedule(strategies=(), cores=machine.cores, placements=placements)


def always(graph: TaskGraph, threads: int) -> dict[int, int]:
    """``threads`` for every task."""
    return {task.index: threads for task in graph.tasks}


# -- S1 and S2: how many threads each task gets, one task after the other ----------------------------------------------


def own_best(graph: TaskGraph, curves: Curves, *, change_us: float) -> dict[int, int]:
    """S1: each task its own best count, where what that wins pays for the change from the task before and to the one
    after. Exact for tasks in the order of the graph, by dynamic programming over their counts."""
    if not graph.tasks:
        return {}
    by_count: dict[int, float] = {}
    before: list[dict[int, int]] = []
    for task in graph.tasks:
        least = min(sorted(by_count), key=by_count.__getitem__) if by_count else None
        total_us, came_from = {}, {}
        for count, us in sorted(curves[task.index].median_us.items()):
            stayed_us = by_count.get(count, 0.0 if least is None else float("inf"))
            changed_us = float("inf") if least is None else by_count[least] + change_us
            came_from[count] = count if least is None or stayed_us <= changed_us else least
            total_us[count] = us + min(stayed_us, changed_us)
        by_count = total_us
        before.append(came_from)
    count = min(sorted(by_count), key=by_count.__getitem__)
    counts: dict[int, int] = {}
    for task, came_from in zip(reversed(graph.tasks), reversed(before), strict=True):
        counts[task.index] = count
        count = came_from[count]
    return counts


def shared_by_kind(graph: TaskGraph, curves: Curves) -> dict[int, int]:
    """S2: the best count of the largest instance of each kind, the one that takes longest on one thread."""
    largest: dict[str, int] = {}
    for task in graph.tasks:
        known = largest.setdefault(task.kind, task.index)
        if curves[task.index].median_us[1] > curves[known].median_us[1]:
            largest[task.kind] = task.index
    return {task.index: curves[largest[task.kind]].best_threads() for task in graph.tasks}


def own_or_shared(graph: TaskGraph, curves: Curves, *, machine: Machine) -> dict[int, int]:
    """S1 and S2: kinds share a count, except those whose tasks, each with its own best, make the step shorter."""

    def takes_us(counts: Counts) -> float:
        return makespan_us(one_after_the_other(graph, curves, counts, machine=machine))

    own, counts = own_best(graph, curves, change_us=machine.change_us), shared_by_kind(graph, curves)
    by_kind: dict[str, list[int]] = {}
    for task in graph.tasks:
        by_kind.setdefault(task.kind, []).append(task.index)
    least_us = takes_us(counts)
    for tasks in by_kind.values():
        tried = {**counts, **{task: own[task] for task in tasks}}
        if takes_us(tried) < least_us:
            counts, least_us = tried, takes_us(tried)
    return own if takes_us(own) < least_us else counts


# -- S3: which tasks run beside others ---------------------------------------------------------------------------------


_LOOKS = 200
"""Schedules computed to improve the first ones; many for small graphs, few for large ones."""
_MOST_PLACED = 40_000
"""Tasks times cores placed for that in all, so that large graphs and machines take little longer."""
_WORTH_IT = 1e-9
"""A shorter makespan by less than this share is rounding."""


@dataclass(frozen=True, kw_only=True)
class _Tried:
    counts: Counts
    placements: tuple[Placement, ...]

    @property
    def us(self) -> float:
        return makespan_us(self.placements)


class _Search:
    """List scheduling from several sets of thread counts, each of which is then improved task by task."""

    def __init__(
        self, graph: TaskGraph, curves: Curves, most: Counts, *, machine: Machine, workers: int, room: Room | None
    ) -> None:
        """``most``: the threads of each task, at most."""
        self._room = room
        self._graph, self._curves, self._most = graph, curves, most
        self._machine, self._workers = machine, workers
        self._looks = min(_LOOKS, _MOST_PLACED // max(1, len(graph.tasks) * machine.cores))
        self._readers = graph.readers()

    def shortest(self) -> tuple[Placement, ...]:
        """The shortest schedule found."""
        starts = [self._tried(counts) for counts in (self._most, dict.fromkeys(self._most, 1), self._balanced())]
        starts.sort(key=lambda each: each.us)
        return min((self._improved(start) for start in starts), key=lambda tried: tried.us).placements

    def _improved(self, best: _Tried) -> _Tried:
        """Give one task another count as long as that makes the step shorter, the longest tasks first. The number of
        steps of all calls together is bounded."""
        improving = True
        while improving:
            improving = False
            for task, count in self._moves(best):
                if self._looks <= 0:
                    return best
                self._looks -= 1
                tried = self._tried({**best.counts, task: count})
                if tried.us < best.us * (1 - _WORTH_IT):
                    best, improving = tried, True
        return best

    def _moves(self, best: _Tried) -> Iterator[tuple[int, int]]:
        """A task, and another count for it."""
        took_us = {placement.task: placement.end_us - placement.start_us for placement in best.placements}
        for task in sorted(took_us, key=lambda task: (-took_us[task], task)):
            for count in counts_to_try(self._most[task]):
                if count != best.counts[task]:
                    yield task, count

    def _balanced(self) -> Counts:
        """Counts with which the longest chain takes about as long as all tasks, spread evenly over the cores. Tasks of
        the longest chain are widened one by one, those first that gain most (Radulescu and van Gemund's CPA)."""
        cores = self._machine.cores
        counts = dict.fromkeys(self._most, 1)
        while True:
            ways = ways_to_the_end_us(self._graph, self._curves, counts, readers=self._readers)
            area_us = sum(count * self._us(task, count) for task, count in counts.items()) / cores
            if not ways or max(ways.values()) <= area_us:
                return counts
            wider = {
                task: next((count for count in counts_to_try(self._most[task]) if count > counts[task]), None)
                for task in self._longest_chain(ways)
            }
            gains = {
                task: self._us(task, counts[task]) / counts[task] - self._us(task, count) / count
                for task, count in wider.items()
                if count and self._us(task, count) < self._us(task, counts[task])
            }
            if not gains:
                return counts
            widened = max(gains, key=lambda task: (gains[task], -task))
            counts[widened] = wider[widened] or 1

    def _longest_chain(self, ways: dict[int, float]) -> list[int]:
        chain: list[int] = []
        following = [task.index for task in self._graph.tasks if not task.needs]
        while following:
            chain.append(max(following, key=lambda task: (ways[task], -task)))
            following = self._readers[chain[-1]]
        return chain

    def _us(self, task: int, count: int) -> float:
        return self._curves[task].median_us[count]

    def _tried(self, counts: Counts) -> _Tried:
        placed = side_by_side(
            self._graph, self._curves, counts, machine=self._machine, workers=self._workers, room=self._room
        )
        return _Tried(counts=counts, placements=placed)
