"""StepTime: how long the depthwise convolutions of a training step take, and what tuning may still gain of it.

Until says when a search has come near enough to what the device allows, for a step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dwconv.problems.block import NOTHING
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.schedules.template import can_run
from dwconv.tuner.expected_gain import ExpectedGains, further_us

_TAPS_AT_ONCE = 25
"""Taps up to which both gradients in one kernel may be faster on a GPU."""


def with_both_gradients(counts: Mapping[Workload, int], target: Target) -> dict[Workload, int]:
    """``counts``, how often a step runs each workload, and after the gradients of a layer the kernel that gives both,
    where a GPU has one: as often as it may run in the place of the two. On a CPU such kernels were measured to be
    slower, and with more taps they are computed to be slower on a GPU. A request for one is served."""
    found: dict[Workload, int] = {}
    for workload, count in counts.items():
        found[workload] = count
        few = target.kind == "cuda" and math.prod(workload.kernel) <= _TAPS_AT_ONCE and not workload.any_size
        if few and workload.pass_ == "wgrad" and not workload.bias:
            dgrad, both = workload.for_pass("dgrad"), workload.for_pass("backward")
            if dgrad in counts and both not in counts and can_run(both, target):
                found[both] = min(count, counts[dgrad])
    return found


@dataclass(frozen=True, kw_only=True)
class ToGain:
    """What is expected of a step, by what was known at one moment. Prints as ``1.24 ms a step (15%)``."""

    gain_us: float
    """What tuning may still gain."""
    depthwise_us: float
    """How long depthwise convolution takes."""

    def __str__(self) -> str:
        share = self.gain_us / self.depthwise_us if self.depthwise_us else 0.0
        return f"{self.gain_us / 1e3:.2f} ms a step ({share:.0%})"


class StepTime:
    """``counts`` says how often a step runs each workload; a kernel for both gradients of a layer counts nothing beside
    the two. What ``known`` holds counts, so a campaign that was interrupted goes on from where it stood."""

    def __init__(self, counts: Mapping[Workload, int], target: Target, known: Database) -> None:
        self._counts = {workload: count for workload, count in counts.items() if workload.block != NOTHING}
        self._gains = ExpectedGains(target, known)
        self._of = {each: self._gains.of(each) for each in self._counts}

    def update(self, searched: Workload) -> None:
        """Count what a search has added to what is known."""
        for workload in self._counts:
            if searched.batchless_key in (workload.batchless_key, replace(workload, bias=False).batchless_key):
                self._of[workload] = self._gains.of(workload)

    @property
    def to_gain(self) -> ToGain:
        """As it stands now."""
        return ToGain(
            gain_us=sum(count * self._of[workload].win_us for workload, count in self._counts.items()),
            depthwise_us=sum(count * self._of[workload].now_us for workload, count in self._counts.items()),
        )

    def until(self, workload: Workload, *, share: float) -> Until:
        """When a search that begins now may end."""
        return Until(share=share, calls=self._counts.get(workload, 1), step_us=self.to_gain.depthwise_us)

    @property
    def tuning_left_us(self) -> float:
        """What further trials are expected to gain."""
        return sum(count * self._gains.further_us(workload) for workload, count in self._counts.items())


_WORTH = 0.01
"""Share of a step that further trials of a pass must be expected to gain."""
_LEAST_TRIALS = 8


@dataclass(frozen=True, kw_only=True)
class Until:
    """When the search of one pass may end: its best has the requested share of the device's limit, or further trials
    are expected to gain less than 1 % of a step, and less than 1 − share of the pass, so that many add up to little."""

    share: float
    calls: int
    """How often a step runs the pass."""
    step_us: float
    """How long all depthwise passes of a step take, as far as it is known."""

    def is_near(self, best_us: float, limit_us: float | None) -> bool:
        """Whether the best is near the limit; False if that is unknown. A time below it shows that it is wrong."""
        return limit_us is not None and self.share * best_us <= limit_us <= best_us

    def is_little_left(self, bests_us: Sequence[float], limit_us: float | None) -> bool:
        """``bests_us``: the best time after each trial, infinite before one has worked."""
        if len(bests_us) < _LEAST_TRIALS or math.isinf(bests_us[-1]):
            return False
        left_us = further_us(bests_us, limit_us)
        return self.calls * left_us < _WORTH * self.step_us and left_us <= (1 - self.share) * bests_us[-1]
