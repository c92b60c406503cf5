"""dgrad ‖ wgrad: whether the two gradients of a convolution are faster at once, each with half of the threads.

    whole      one operator, all threads        ├──────── dgrad, wgrad ────────┤
    apart      two operators, all threads       ├──── dgrad ────┤├─── wgrad ────┤
    at once    two operators, half each         ├──────── dgrad ────────┤
                                                ├──────── wgrad ──────────┤

Measured once for each workload, in turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch.fx import Node

from dwconv.concurrency.graph.gradient_pairs import Pair, pairs
from dwconv.concurrency.graph.tasks import CutGraph
from dwconv.concurrency.times.task_timer import TaskTimer, made_up
from dwconv.errors import OutOfTime
from dwconv.measure.clock.timing import Call, Effort
from dwconv.system.threads import on_threads

_EFFORT = Effort(round_s=0.0005, rounds=7, budget_s=0.1, patience_s=0.1)
WHOLE, APART, AT_ONCE = "whole", "apart", "at once"
_LEAST_GAIN = 0.03
"""By which share another way must be faster: a task is timed for a moment only."""


@dataclass(frozen=True, kw_only=True)
class PairTimes:
    """The two gradients of one convolution, in microseconds."""

    pair: Pair
    name: str
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
        found.append(
            PairTimes(
                pair=pair, name=pair.name, whole_us=taken.get(WHOLE), apart_us=taken[APART],
                at_once_us=taken[AT_ONCE],
            )
        )  # fmt: skip
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
