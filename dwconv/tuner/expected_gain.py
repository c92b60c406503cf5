"""ExpectedGains: how long the calls of a workload take now, and how much of that tuning may still win.

The same figures say what is raced and tuned first, how much time each gets, what ``dwconv.tune`` says is still to gain,
and what ``dwconv.report`` shows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from dwconv import settings
from dwconv.dispatch.advantage import kernel_us
from dwconv.dispatch.at_any_size import times_of
from dwconv.dispatch.decide import decide_on
from dwconv.dispatch.decision import DispatchDecision
from dwconv.dispatch.kernel_state import KernelState
from dwconv.dispatch.knowledge import failed, is_current
from dwconv.problems.block import NOTHING
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.records.record import Status, TuningRecord
from dwconv.schedules.space import Config
from dwconv.untuned import gain

MOST_STARTS = 3
"""Configurations of one workload that are raced."""
_TRIED = 40
"""Configurations that are raced in all, about: workloads with more to win get more of them, and each gets one."""
_GB_PER_S, _GFLOP_PER_S = 20.0, 100.0
"""Where the device's limits are unknown. Only the order of workloads depends on them."""
_GAIN = {"fprop": 2.2, "dgrad": 3.1, "wgrad": 2.6, "forward": 4.5, "backward": 3.2, "inference": 3.0}
"""Times as fast as PyTorch's op where nothing better is known: the geometric means of the benchmarks."""
_GAIN_OF_LARGE_WGRAD = 29.0
_LARGE_KERNEL = 25
_LEFT_TO_WIN = 0.05
"""Share of the time that a search still wins where some configurations were measured, as in a race."""
_LEFT_AFTER_PREDICTION = 0.08
"""Where a predicted kernel runs: two runs showed 0.92 and 0.94 of the speed that 20 s of search find."""
_FURTHER_GAIN = 0.6
"""Over the number of trials: the share that all further ones gain where the latest gained nothing."""

Basis = Literal["measured", "predicted", "assumed"]


@dataclass(frozen=True, kw_only=True)
class ExpectedGain:
    """One call of a workload."""

    now_us: float
    """How long it takes with what is known now: on dwconv's kernel where it is the faster, else on PyTorch's op."""
    win_us: float
    """How much of that tuning is expected to win. Nothing where a search has confirmed the fastest."""
    basis: Basis
    """What ``now_us`` was taken from; ``assumed`` is the usual gain of the benchmarks, and right within a few times."""


class ExpectedGains:
    """What there is to win in workloads on ``target``, by what dispatch decides: on the records in ``known``, and on
    what a process has learnt of its kernels, its ``state``."""

    def __init__(self, target: Target, known: Database, *, state: KernelState | None = None) -> None:
        self._target = target
        self._known = known
        self._state = state

    def of(self, workload: Workload) -> ExpectedGain:
        """Of one call."""
        decision = decide_on(self._target, workload, known=self._known, state=self._state, predicts=True)
        if decision.expected:
            return self._as_expected(workload, decision, decision.expected)
        if decision.record:
            return self._as_measured(workload, decision.record)
        now_us = self._assumed_us(workload)
        few_failed = 0 < len(failed(workload, self._target, known=self._known)) < MOST_STARTS
        win_us = now_us * (1 - 1 / _usual_gain(workload)) if decision.command or few_failed else 0.0
        return ExpectedGain(now_us=now_us, win_us=win_us, basis="assumed")

    def further_us(self, workload: Workload) -> float:
        """What further trials are expected to gain of one call, by how the searches in the log went; where there was
        none, by what dispatch decides."""
        expected, limits = self.of(workload), self._target.limits
        times_us: dict[Config, float] = {}
        for record in filter(is_current, self._known.records(workload, self._target.device)):
            worked = record.measurement if record.status is Status.OK else None
            times_us.setdefault(record.config, worked.median_us if worked else math.inf)
        bests_us = list(accumulate(times_us.values(), min))
        if not bests_us or math.isinf(bests_us[-1]):
            return expected.win_us
        limit_us = limits.limit_us(bytes_moved=workload.bytes, flops=workload.flops) if limits else None
        return max(0.0, expected.now_us - (bests_us[-1] - further_us(bests_us, limit_us)))

    def _as_measured(self, workload: Workload, record: TuningRecord) -> ExpectedGain:
        """``record`` is of any batch size, with the bias or without."""
        sweeps = workload.bias and not record.workload.bias
        scale = workload.batch / record.workload.batch
        if workload.input_size != record.workload.input_size:  # it is of a kernel of any size
            scale = times_of(workload, record.workload)
        kernel = scale * kernel_us(record, sweeps=sweeps)
        bare = scale * kernel_us(record, sweeps=False)
        alternative = record.alternative
        now_us = min(kernel, scale * alternative[1].median_us) if alternative else kernel
        is_searched = record.ends_search and record.device == self._target.device
        is_searched &= workload.input_size in (record.workload.input_size, *record.workload.also_at)
        left = 0.0 if is_searched else _LEFT_TO_WIN
        return ExpectedGain(now_us=now_us, win_us=max(left * now_us, now_us - bare * (1 - left)), basis="measured")

    def _as_expected(self, workload: Workload, decision: DispatchDecision, expected: gain.Expected) -> ExpectedGain:
        kernel_us = expected.us
        if decision.record:  # of other versions, at any batch size
            kernel_us *= workload.batch / decision.record.workload.batch
        if settings.predicts() and decision.provider == "dwconv":
            return ExpectedGain(now_us=kernel_us, win_us=_LEFT_AFTER_PREDICTION * kernel_us, basis="predicted")
        now_us = kernel_us * expected.gain
        return ExpectedGain(now_us=now_us, win_us=max(0.0, now_us - kernel_us), basis="predicted")

    def _assumed_us(self, workload: Workload) -> float:
        """The time of PyTorch's op, if a kernel at the device's limits had the usual gain."""
        if self._target.limits:
            least_us = self._target.limits.limit_us(bytes_moved=workload.bytes, flops=workload.flops)
        else:
            least_us = max(workload.bytes / _GB_PER_S, workload.flops / _GFLOP_PER_S) / 1e3
        return least_us * _usual_gain(workload)


def expected_gains_us(counts: Mapping[Workload, int], target: Target, known: Database) -> dict[Workload, float]:
    """The time that a step is expected to win by tuning, in all calls of a workload; 0 if none is expected."""
    expected_gains = ExpectedGains(target, known)
    return {workload: count * expected_gains.of(workload).win_us for workload, count in counts.items() if count}


def most_to_win_first(counts: Mapping[Workload, int], target: Target, known: Database) -> list[Workload]:
    """The workloads in descending order of the time that a step is expected to win by tuning all calls of their layer;
    where that is nothing, of the time that they take. The passes of a layer stay together."""
    expected_gains = ExpectedGains(target, known)
    of_layers: dict[Workload, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for each, count in counts.items():
        expected_gain, (win_us, now_us) = expected_gains.of(each), of_layers[_layer(each)]
        of_layers[_layer(each)] = win_us + count * expected_gain.win_us, now_us + count * expected_gain.now_us
    return sorted(counts, key=lambda each: of_layers[_layer(each)], reverse=True)


def _layer(workload: Workload) -> Workload:
    """A key of the layer: equal for all its passes, with a bias or without."""
    if workload.block in (None, NOTHING):
        return workload.convolution("dgrad")
    return workload.for_pass("backward")


def shares(expected_gains: Mapping[Workload, float]) -> dict[Workload, int]:
    """How many configurations of each workload to race."""
    total = sum(expected_gains.values()) or 1.0
    return {
        workload: min(MOST_STARTS, max(1, math.ceil(_TRIED * expected_gain / total)))
        for workload, expected_gain in expected_gains.items()
    }


def _usual_gain(workload: Workload) -> float:
    large = workload.pass_ == "wgrad" and math.prod(workload.kernel) >= _LARGE_KERNEL
    return _GAIN_OF_LARGE_WGRAD if large else _GAIN[workload.pass_]


def further_us(bests_us: Sequence[float], limit_us: float | None) -> float:
    """What all further trials are expected to gain, in microseconds of one call: as many trials again what the second
    half gained, at least ``_FURTHER_GAIN`` over their number, and at most what the limit leaves."""
    best_us, earlier_us = bests_us[-1], bests_us[(len(bests_us) - 1) // 2]
    expected_us = best_us * max(1 - best_us / earlier_us, _FURTHER_GAIN / len(bests_us))
    return min(expected_us, best_us - limit_us) if limit_us is not None and limit_us <= best_us else expected_us
