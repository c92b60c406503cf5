"""TaskTimer: how long tasks take by themselves, by number of threads.

A task is timed on made-up inputs of the sizes, types and strides that were traced, so that nothing else of the step has
to run or be held in memory. Floats are between 0.5 and 1.5, so that no operator gives NaN or denormals; whole numbers
are 0, a valid index everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from dwconv.concurrency.engine import CpuEngine
from dwconv.concurrency.gradient_pairs import Pair, pairs
from dwconv.concurrency.schedule import Placement, Schedule, Task, TaskGraph
from dwconv.concurrency.tasks import CutGraph
from dwconv.errors import OutOfTime
from dwconv.measure.clock.timing import Call, Clock, CpuClock, Effort, time_in_turns
from dwconv.system.threads import on_threads

now_s: Callable[[], float] = time.perf_counter
"""The clock."""


class Budget:
    """That many seconds from now on."""

    def __init__(self, seconds: float) -> None:
        self._ends_s = now_s() + seconds

    @property
    def left_s(self) -> float:
        return max(0.0, self._ends_s - now_s())

    def part(self, share: float) -> Budget:
        """A budget of its own, of this share of what is left."""
        return Budget(share * self.left_s)

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


QUICK = Effort(round_s=0.0005, rounds=5, budget_s=0.02, patience_s=0.03)
"""A task may be short and there are many of them: a few hundredths of a second for each number of threads."""


class TaskTimer:
    """Times the tasks of ``cut``; the time of one task holds for all of its signature. Raises OutOfTime once the
    budget is used up."""

    def __init__(self, cut: CutGraph, *, clock: Clock | None = None, budget: Budget | None = None) -> None:
        self._cut = cut
        self._budget = budget
        self._clock = clock or CpuClock()
        self._known_us: dict[tuple[str, int], float] = {}

    def timed(self, task: Task, threads: int) -> float:
        """Microseconds of ``task`` with that many threads."""
        key = (task.signature, threads)
        if key not in self._known_us:
            with on_threads(threads):
                self._known_us[key] = self.in_turns({"task": self.call(task.index)}, effort=QUICK)["task"]
        return self._known_us[key]

    def call(self, task: int) -> Call:
        """Runs the task once on made-up inputs."""
        if self._budget:
            self._budget.check()
        function, given = self._cut.functions[task], made_up_inputs(self._cut, task)
        is_on_gpu = any(isinstance(each, Tensor) and each.is_cuda for each in given)

        def run() -> None:
            function(given[:])
            if is_on_gpu:
                torch.cuda.synchronize()

        return run

    def at_once(self, first: int, second: int, *, threads: Sequence[int]) -> Call:
        """Runs two tasks side by side, with ``threads`` of each."""
        both = (first, second)
        given = made_up_inputs(self._cut, *both)
        tasks = tuple(replace(self._cut.graph.tasks[task], index=index, needs=()) for index, task in enumerate(both))
        alone = replace(
            self._cut,
            graph=TaskGraph(tasks=tasks),
            functions=tuple(self._cut.functions[task] for task in both),
            nodes=tuple(self._cut.nodes[task] for task in both),
            reads=tuple(self._cut.reads[task] for task in both),
            outputs=(),
        )
        placements = tuple(
            Placement(task=index, worker=index, threads=count, start_us=0.0, end_us=1.0)
            for index, count in enumerate(threads)
        )
        engine = CpuEngine(alone, Schedule(strategies=(), cores=sum(threads), placements=placements))
        return lambda: engine.run(given[:])

    def in_turns(self, calls: dict[str, Call], *, effort: Effort) -> dict[str, float]:
        """The median of each call, in microseconds, measured in turns."""
        if self._budget:
            calls = {name: self._budget.bounded(call) for name, call in calls.items()}
        with torch.no_grad():
            taken = time_in_turns(calls, clock=self._clock, effort=effort)
        return {name: measurement.median_us for name, measurement in taken.items()}


def made_up_inputs(cut: CutGraph, *tasks: int) -> list[Any]:
    """The list of values with something in the places that ``tasks`` read."""
    values: list[Any] = [None] * cut.size
    for task in tasks:
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


# -- dgrad beside wgrad ------------------------------------------------------------------------------------------------


_EFFORT = Effort(round_s=0.0005, rounds=7, budget_s=0.1, patience_s=0.1)
WHOLE, APART, AT_ONCE = "whole", "apart", "at once"
_LEAST_GAIN = 0.03
"""By which share another way must be faster: a task is timed for a moment only."""


@dataclass(frozen=True, kw_only=True)
class PairTimes:
    """The two gradients of one convolution, in microseconds.

    whole      one operator, all threads        ├──────── dgrad, wgrad ────────┤
    apart      two operators, all threads       ├──── dgrad ────┤├─── wgrad ────┤
    at once    two operators, half each         ├──────── dgrad ────────┤
                                                ├──────── wgrad ──────────┤
    """

    pair: Pair
    apart_us: float
    at_once_us: float
    whole_us: float | None = None
    """None for dwconv's own operators, which are never one."""

    @property
    def serial_us(self) -> float:
        """The best that can be had one after the other."""
        return self.apart_us if self.whole_us is None else min(self.whole_us, self.apart_us)

    @property
    def at_once_wins(self) -> bool:
        return self.at_once_us < (1 - _LEAST_GAIN) * self.serial_us

    @property
    def is_better_whole(self) -> bool:
        """True if being apart costs time, and is not made up for by running both at once."""
        if self.whole_us is None or self.at_once_wins:
            return False
        return self.whole_us < (1 - _LEAST_GAIN) * self.apart_us


Known = dict[object, dict[str, float]]
"""By workload, what was measured, in microseconds."""


def pair_times(cut: CutGraph, timer: TaskTimer, *, cores: int, known: Known | None = None) -> list[PairTimes]:
    """Measure the pairs of ``cut`` that are not ``known`` yet, as long as the timer has time; others are left out.
    Nothing is measured with a single core."""
    if cores < 2:
        return []
    known = {} if known is None else known
    found = []
    for pair in pairs(cut):
        tasks = [cut.graph.tasks[each] for each in (pair.dgrad, pair.wgrad)]
        key = tuple(task.signature for task in tasks)
        if key not in known:
            try:
                with on_threads(cores):
                    known[key] = timer.in_turns(_calls(cut, timer, pair, cores=cores), effort=_EFFORT)
            except OutOfTime:
                continue
        taken = known[key]
        found.append(PairTimes(pair=pair, apart_us=taken[APART], at_once_us=taken[AT_ONCE], whole_us=taken.get(WHOLE)))
    return found


def _calls(cut: CutGraph, timer: TaskTimer, pair: Pair, *, cores: int) -> dict[str, Call]:
    first, second = timer.call(pair.dgrad), timer.call(pair.wgrad)

    def apart() -> None:
        first()
        second()

    half = cores // 2
    calls = {APART: apart, AT_ONCE: timer.at_once(pair.dgrad, pair.wgrad, threads=(cores - half, half))}
    whole = _whole(cut.nodes[pair.dgrad]) if pair.convolution is not None else None
    return {**calls, WHOLE: whole} if whole else calls


def _whole(nodes: Sequence[Node]) -> Call | None:
    """The operator that computes both gradients, on made-up tensors."""
    operator, given = next(node.meta["whole"] for node in nodes if "whole" in node.meta)
    args = [made_up(each.meta["val"]) if isinstance(each, Node) else each for each in given]
    return lambda: operator(*args)
