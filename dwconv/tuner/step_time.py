"""StepTime: how long a step spends in the workloads of a network, and how much of that tuning may still gain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dwconv.problems.block import NOTHING
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.tuner.expected_gain import ExpectedGain, ExpectedGains


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
        self._of: dict[Workload, ExpectedGain] = {each: self._gains.of(each) for each in self._counts}

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
