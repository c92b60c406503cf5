"""TaskTimer: how long tasks take by themselves, by number of threads.

A task is timed on made-up inputs of the sizes, types and strides that were traced, so that nothing else of the step has
to run or be held in memory. Floats are between 0.5 and 1.5, so that no operator gives NaN or denormals; whole numbers
are 0, a valid index everywhere.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from dwconv.concurrency.compiled_graph import ScheduledGraph, in_order
from dwconv.concurrency.counters import counted
from dwconv.concurrency.hill_climbing import estimated_us
from dwconv.concurrency.instructions import instructions
from dwconv.concurrency.second_threads import note_refusal
from dwconv.concurrency.task_graph import Grouping, Task
from dwconv.concurrency.tasks import CutGraph
from dwconv.concurrency.topology import ALIKE, Topology
from dwconv.errors import OutOfTime
from dwconv.measure.clock.timing import Call, CpuClock, Effort, time_in_turns
from dwconv.system.threads import on_threads

now_s: Callable[[], float] = time.perf_counter
"""The clock."""


class TimeLeft:
    """That many seconds from now on."""

    def __init__(self, seconds: float) -> None:
        self._ends_s = now_s() + seconds

    @property
    def left_s(self) -> float:
        return max(0.0, self._ends_s - now_s())

    def part(self, share: float) -> TimeLeft:
        """A budget of its own, of this share of what is left."""
        return TimeLeft(share * self.left_s)

    def check(self) -> None:
        """Raises OutOfTime once the time is over."""
        if not self.left_s:
            raise OutOfTime("the time for measuring is over")

    def bounded(self, call: Call) -> Call:
        """``call``, which does not begin once the time is over."""

        def run() -> object:
            self.check()
            return call()

        return run


_QUICK = Effort(round_s=0.0005, rounds=5, budget_s=0.02, patience_s=0.03)
"""A task may be short and there are many of them: a few hundredths of a second for each number of threads."""
_COUNTED_RUNS = 3


class TaskTimer:
    """Times tasks of some graphs; the time of one holds for all of its signature. Once the budget is used up, times are
    estimated, by those that were measured."""

    def __init__(self, cuts: Sequence[CutGraph], *, budget: TimeLeft, topology: Topology = ALIKE) -> None:
        self._budget, self._topology = budget, topology
        self._home = {task.signature: (cut, task.index) for cut in cuts for task in reversed(cut.graph.tasks)}
        self._known_us: dict[tuple[str, int, Grouping], float] = {}
        self._ratios = [1.0]
        self.estimated = 0
        """Times that were not measured."""

    @property
    def measured(self) -> int:
        """How many times are measured, of a signature with one number of threads on one grouping of cores each."""
        return len(self._known_us)

    def __call__(self, task: Task, threads: int, /, *, grouping: Grouping = "") -> float:
        """Microseconds of ``task`` with that many threads, on cores of a grouping."""
        key = (task.signature, threads, grouping)
        if key not in self._known_us:
            estimate_us = estimated_us(task, threads)
            try:
                self._known_us[key] = self._measured_us(*self._home[task.signature], threads, grouping)
            except OSError as error:  # the system keeps no thread anywhere
                note_refusal("cores of a grouping", error.strerror or "the system cannot")
                return math.inf
            except OutOfTime:
                self.estimated += 1
                return estimate_us * statistics.median(self._ratios)
            self._ratios.append(self._known_us[key] / estimate_us)
        return self._known_us[key]

    def has_measured(self, task: Task, threads: int) -> bool:
        """True if the time of ``task`` with that many threads is measured, not estimated."""
        return (task.signature, threads, "") in self._known_us

    def counts(self, task: Task, threads: int) -> dict[str, float]:
        """What a run of ``task`` with that many threads counts, by event: the mean over a few. Empty once the budget is
        used up, and where nothing can be counted."""
        try:
            run = self._call(*self._home[task.signature])
            with on_threads(threads), torch.no_grad():
                run()
                with counted() as found:
                    for _ in range(_COUNTED_RUNS):
                        run()
        except OutOfTime:
            return {}
        return {event: count / _COUNTED_RUNS for event, count in found.counts.items()}

    def _call(self, cut: CutGraph, task: int) -> Call:
        """Runs the task once on made-up inputs. Raises OutOfTime, now or when it is called."""
        self._budget.check()
        function, given = cut.functions[task], made_up_inputs(cut, task)
        is_on_gpu = any(isinstance(each, Tensor) and each.is_cuda for each in given)
        alone, read = _alone(cut.nodes[task])

        def run() -> None:
            if is_on_gpu or alone.run([*read]) is None:
                function(given[:])
            if is_on_gpu:
                torch.cuda.synchronize()

        return self._budget.bounded(run)

    def _measured_us(self, cut: CutGraph, task: int, threads: int, grouping: Grouping) -> float:
        run = self._call(cut, task)
        kept = self._topology.kept(threads, grouping) if grouping else nullcontext()
        with kept, on_threads(threads), torch.no_grad():
            taken = time_in_turns({"task": run}, clock=CpuClock(), effort=_QUICK)
        return taken["task"].median_us


def _alone(nodes: Sequence[Node]) -> tuple[ScheduledGraph, list[Any]]:
    """A task as lanes run it in compiled code, by itself, and something for what it reads. It keeps no results."""
    inside = set(nodes)
    read = [*dict.fromkeys(each for node in nodes for each in node.all_input_nodes if each not in inside)]
    is_known = all("val" in each.meta for each in read)
    made = instructions(read, [nodes], [], {}) if is_known else None
    return in_order(made), [made_up(each.meta["val"]) for each in read] if made else []


def made_up_inputs(cut: CutGraph, task: int) -> list[Any]:
    """The list of values with something in the places that ``task`` reads."""
    values: list[Any] = [None] * cut.size
    for place in cut.reads[task]:
        values[place] = made_up(cut.examples[place])
    return values


def made_up(example: Any) -> Any:
    """A tensor with the strides of ``example``."""
    if not isinstance(example, Tensor):
        return example
    size = example.untyped_storage().nbytes() // example.element_size()
    flat = torch.empty(size, dtype=example.dtype, device=example.device)
    if example.is_floating_point():
        flat.uniform_(0.5, 1.5)
    else:
        flat.zero_()
    return flat.as_strided(example.shape, example.stride(), example.storage_offset())
