"""StepTime: how long a step spends in the workloads of a network, and how much of that tuning may still gain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.record import TuningRecord
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
    """``counts`` says how often a step runs each workload. What ``records`` know counts, so a campaign that was
    interrupted goes on from where it stood."""

    def __init__(self, counts: Mapping[Workload, int], target: Target, records: Iterable[TuningRecord]) -> None:
        self._counts = counts
        self._stakes = ExpectedGains(target, records)
        self._of: dict[Workload, ExpectedGain] = {workload: self._stakes.of(workload) for workload in counts}

    def add(self, record: TuningRecord) -> None:
        """Count what a search has found."""
        self._stakes.add(record)
        family = record.workload.family
        for workload in self._counts:
            if family in (workload.family, replace(workload, bias=False).family):
                self._of[workload] = self._stakes.of(workload)

    @property
    def to_gain(self) -> ToGain:
        """As it stands now."""
        return ToGain(
            gain_us=sum(count * self._of[workload].win_us for workload, count in self._counts.items()),
            depthwise_us=sum(count * self._of[workload].now_us for workload, count in self._counts.items()),
        )
