"""The four strategies, alone and combined: from tasks, their times and a machine to a schedule.

    S1   own thread counts: each task its own best number of threads, where that pays for the change of the count
    S2   shared thread counts: tasks of one kind share the count of the kind's largest instance
    S3   co-running: ready tasks run beside each other on idle cores, where predicted times make the step shorter
    S4   fill-in: small tasks run beside a larger one on what it leaves: second hardware threads, a second stream

Without S1 and S2 a task gets all cores; without S3 and S4 one task runs at a time. With both S1 and S2, kinds share a
count except where own counts make the step shorter. With S3, counts are upper bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from dwconv.concurrency.graph.task_graph import TaskGraph
from dwconv.concurrency.scheduling.co_running import co_run
from dwconv.concurrency.scheduling.list_scheduling import Curves, Rules, always, place
from dwconv.concurrency.scheduling.machine import Machine
from dwconv.concurrency.scheduling.schedule import Schedule
from dwconv.concurrency.scheduling.thread_counts import own_best, own_or_shared, shared_by_kind
from dwconv.errors import InvalidChoice

STRATEGIES = {
    "S1": "own thread counts: each task its own best number of threads",
    "S2": "shared thread counts: tasks of one kind share the count of the largest",
    "S3": "co-running: ready tasks run beside each other on idle cores",
    "S4": "fill-in: small tasks run beside a large one on extra slots",
}


def checked(strategies: Sequence[str]) -> tuple[str, ...]:
    """The names in their usual order, each once. Raises InvalidChoice."""
    names = (strategies,) if isinstance(strategies, str) else tuple(strategies)
    for name in names:
        if name not in STRATEGIES:
            raise InvalidChoice(f"strategy {name!r} is unknown; use any of {', '.join(STRATEGIES)}")
    return tuple(name for name in STRATEGIES if name in names)


def combined() -> list[tuple[str, ...]]:
    """Every strategy alone, then every combination of two, three and four."""
    return [chosen for count in range(1, len(STRATEGIES) + 1) for chosen in combinations(STRATEGIES, count)]


def schedules(
    graph: TaskGraph, curves: Curves, *, strategies: Sequence[str], machine: Machine, workers: int | None = None
) -> Schedule:
    """The schedule that ``strategies`` make of ``graph``; without any, one task at a time on all cores.

    ``curves``: by task, its time for 1 to ``machine.cores`` threads. ``workers``: so many tasks at most run at once,
    not counting those on extra slots; by default as many as there are cores. Raises InvalidChoice."""
    names = checked(strategies)
    _check_curves(graph, curves, machine)
    counts = always(graph, machine.cores)
    if "S1" in names and "S2" in names:
        counts = own_or_shared(graph, curves, change_us=machine.change_us)
    elif "S1" in names:
        counts = own_best(graph, curves, change_us=machine.change_us)
    elif "S2" in names:
        counts = shared_by_kind(graph, curves)
    slots = "S4" in names
    if "S3" in names:
        most = machine.cores if workers is None else max(1, min(workers, machine.cores))
        placements = co_run(graph, curves, counts, machine=machine, workers=most, slots=slots)
    else:
        plain = place(graph, curves, counts, machine=machine, rules=Rules())
        beside = place(graph, curves, counts, machine=machine, rules=Rules(slots=True)) if slots else plain
        placements = min(plain, beside, key=lambda placed: max((each.end_us for each in placed), default=0.0))
    return Schedule(strategies=names, cores=machine.cores, placements=placements)


def manual(graph: TaskGraph, curves: Curves, *, threads: int, workers: int, machine: Machine) -> Schedule:
    """A setting as people make it by hand: ``workers`` tasks at a time at most (inter-op), ``threads`` each (intra-op).

    The two may ask for more threads than there are cores. The expected times then count with as many cores as threads,
    and are too short."""
    cores = max(machine.cores, threads * workers)
    roomy = Machine(cores=cores, handover_us=machine.handover_us, change_us=machine.change_us)
    rules = Rules(workers=workers)
    placements = place(graph, curves, always(graph, threads), machine=roomy, rules=rules)
    return Schedule(strategies=(), cores=cores, placements=placements)


def _check_curves(graph: TaskGraph, curves: Curves, machine: Machine) -> None:
    for task in graph.tasks:
        known = curves[task.index].median_us if task.index in curves else {}
        missing = [count for count in range(1, machine.cores + 1) if count not in known]
        if missing:
            wanted = f"its curve must reach all {machine.cores} cores"
            raise InvalidChoice(f"task {task.name} has no time for {missing[0]} threads; {wanted}")
