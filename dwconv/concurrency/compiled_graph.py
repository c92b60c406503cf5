"""ScheduledGraph: runs a graph by a schedule in the compiled module, without Python between operators.

    Instructions ─► Program        the graph, once
    Schedule ─► Segments ─► Runner     what each lane does, on which cores

Python runs the graph instead where nothing compiles, until the module is there, where a mode watches operators, and if
an argument or a result has no counterpart in compiled code.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dwconv import native, settings
from dwconv.concurrency.instructions import Instructions
from dwconv.concurrency.interference import no_slowdowns, slowdowns
from dwconv.concurrency.second_threads import note_refusal, warn_of_refusals
from dwconv.concurrency.segments import (
    LaneStep,
    Ready,
    Segment,
    cores_of_lanes,
    decides_at_run_time,
    ready,
    segments,
)
from dwconv.concurrency.task_graph import Schedule, peak_bytes
from dwconv.concurrency.tasks import CutGraph
from dwconv.measure.clock.timing import Call
from dwconv.system.cpu_facts import cores
from dwconv.system.openmp import openmp_is_here

SPIN_US = 50
"""For how long a lane waits in a loop before it sleeps: about what it takes to wake a thread."""
_AS_IT_IS = 0
"""Instead of a number of threads: the caller's."""


def _spin_us(lanes: int) -> int:
    """On too few cores a lane that spins would keep the others from what it waits for."""
    usable = (os.cpu_count() or 1) if settings.openmp_binds_threads() else cores()
    return SPIN_US if lanes <= usable else 0


@dataclass(frozen=True, kw_only=True)
class Part:
    """A segment, and its tasks if its lanes decide at run time what comes next."""

    segment: Segment
    ready: Ready | None = None


@dataclass(frozen=True, kw_only=True)
class SeenTask:
    """A task in the last run on lanes."""

    lane: int
    start_us: float
    """Since the run began."""
    end_us: float
    mean_us: float
    """What it took in many runs, the last ones counting most."""


class ScheduledGraph:
    """A graph with a schedule, or, without one, all its tasks in order on the caller's thread."""

    def __init__(
        self,
        instructions: Instructions | None,
        parts: Callable[[], Sequence[Part]],
        *,
        order: Sequence[int],
        threads: int,
    ) -> None:
        """``order``: all tasks, as one thread can run them; none if only the caller's lane has tasks, and when they run
        is of no interest. ``threads``: of the whole process."""
        self._instructions, self._parts = instructions, parts
        self._order, self._threads = order, threads
        self._module: Any = None
        """The one that the next two are of."""
        self._program: Any = None
        self._runner: Any = None
        self._is_out = instructions is None
        self._is_new = True

    def run(self, inputs: list[Any]) -> list[Any] | None:
        """The graph's results, and ``inputs`` is empty; or None, and Python has to run it."""
        if self._is_out or torch._C._len_torch_dispatch_stack():
            return None
        module = native.module or native.soon()
        if module is None or (self._module is not module and not self._prepare(module)):
            return None
        found: list[Any] | None = self._program.run(self._runner, inputs)
        if self._is_new:
            self._is_new = False
            if error := self._runner.affinity_error:
                note_refusal("cores of its own", os.strerror(error))
                warn_of_refusals()
        assert self._instructions is not None
        return found if found is None else self._instructions.returned(found)

    @property
    def seen(self) -> list[SeenTask]:
        """By task, when it ran; empty before the first run on lanes."""
        found = self._runner.seen() if self._runner is not None else []
        return [SeenTask(lane=lane, start_us=start, end_us=end, mean_us=mean) for lane, start, end, mean in found]

    def _prepare(self, module: Any) -> bool:
        assert self._instructions is not None
        openmp_is_here()
        if _is_forked:
            module.lose_team()
        self._module, self._program = module, self._instructions.program(module)
        self._is_out = self._program is None
        if not self._is_out:
            parts = self._parts()
            made = [_segment(module, each, threads=self._threads) for each in parts]
            slowed = slowdowns() if any(each.ready for each in parts) else no_slowdowns()
            most = max((len(each.segment.lanes) for each in parts), default=1)
            self._runner = module.Runner(made, self._order, slowed, _spin_us(most))
        return not self._is_out


def _segment(module: Any, part: Part, *, threads: int) -> Any:
    """As the compiled module has it."""
    segment, ready = part.segment, part.ready
    lanes = [
        [module.LaneStep(each.task, each.threads, each.waits, each.signals) for each in lane] for lane in segment.lanes
    ]
    taken = ready and module.Ready(
        ready.tasks, ready.readers, ready.needs, ready.kinds, ready.threads, ready.us, ready.makes,
        [module.Stored(bytes_, read_by) for bytes_, read_by in ready.stored], ready.held, ready.limit, ready.way_us,
        ready.widths, ready.cores,
    )  # fmt: skip
    return module.Segment(lanes, cores_of_lanes(segment, threads=threads), segment.teams, segment.is_narrow, taken)


def by_schedule(cut: CutGraph, schedule: Schedule) -> ScheduledGraph:
    """``cut`` run by ``schedule``, which fits the graph."""

    def parts() -> list[Part]:
        made: list[Part] = []
        before: set[int] = set()
        limit = peak_bytes(cut.held, schedule)
        for segment in segments(cut, schedule):
            decides = len(segment.lanes) > 1 and decides_at_run_time(schedule)
            taken = ready(cut, schedule, segment, before=before, limit=limit) if decides else None
            made.append(Part(segment=segment, ready=taken))
            before |= {step.task for lane in segment.lanes for step in lane}
        return made

    order = [each.task for each in schedule.in_order]
    return ScheduledGraph(cut.instructions, parts, order=order, threads=schedule.cores)


def in_order(instructions: Instructions | None) -> ScheduledGraph:
    """All tasks in order on the caller's thread, with its number of threads."""
    count = len(instructions.tasks) if instructions else 0
    lane = tuple(LaneStep(task=task, threads=_AS_IT_IS, waits=(), signals=False) for task in range(count))
    part = Part(segment=Segment(lanes=(lane,), workers=(0,)))
    return ScheduledGraph(instructions, lambda: [part], order=(), threads=_AS_IT_IS)


_ROUNDS, _HANDOVERS = 9, 200


def handover_us(bounded: Callable[[Call], Call] = lambda call: call) -> float | None:
    """Microseconds from the end of a task until one that waits for it begins on another lane; None where Python runs
    the lanes. Measured on tasks that do nothing, on two lanes in turns. ``bounded``: of a budget."""
    module = native.module or native.soon()
    if module is None:
        return None
    openmp_is_here()
    tasks = range(_HANDOVERS)
    program = module.Program(0, 0, [[] for _ in tasks], [], [], [])
    lanes = tuple(
        tuple(
            LaneStep(task=task, threads=1, waits=(task - 1,) if task else (), signals=True) for task in tasks[lane::2]
        )
        for lane in (0, 1)
    )
    part = Part(segment=Segment(lanes=lanes, workers=(0, 1)))
    made = _segment(module, part, threads=torch.get_num_threads())
    runner = module.Runner([made], tasks, no_slowdowns(), _spin_us(2))
    run = bounded(lambda: program.run(runner, []))
    taken = []
    for _ in range(_ROUNDS):
        run()
        seen = runner.seen()
        taken.append((seen[-1][2] - seen[0][2]) / (_HANDOVERS - 1))
    return statistics.median(taken)


def end_threads() -> None:
    """End the threads of lanes; the next run starts others."""
    if native.module is not None:
        native.module.end_lanes()


_is_forked = False


def forget_threads() -> None:
    """For a process that was forked: the threads have stayed in its parent."""
    global _is_forked
    _is_forked = True
    if native.module is not None:
        native.module.forget_lanes()
        native.module.lose_team()
