"""ExpectedGains: how long the calls of a workload take now, and how much of that tuning may still win.

The same figures say what is raced and tuned first, how much time each gets, what ``dwconv.tune`` says is still to gain,
and what ``dwconv.report`` shows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from dwconv import settings
from dwconv.dispatch.advantage import expected_again, is_safe, kernel_us
from dwconv.errors import NoTemplate
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.record import Status, TuningRecord
from dwconv.records.validity import is_current
from dwconv.schedules.space import Config
from dwconv.schedules.template import templates_for
from dwconv.system import versions
from dwconv.untuned import gain, other_size

MOST_STARTS = 3
"""Configurations of one workload that are raced."""
_TRIED = 40
"""Configurations that are raced in all, about: workloads with more to win get more of them, and each gets one."""
_GB_PER_S, _GFLOP_PER_S = 20.0, 100.0
"""Where the device's limits are unknown. Only the order of workloads depends on them."""
_GAIN = {"fprop": 2.2, "dgrad": 3.1, "wgrad": 2.6}
"""Times as fast as PyTorch's op where nothing better is known: the geometric means of the benchmarks."""
_GAIN_OF_LARGE_WGRAD = 29.0
_LARGE_KERNEL = 25
_LEFT_TO_WIN = 0.05
"""Share of the time that a search still wins where some configurations were measured, as in a race."""
_LEFT_AFTER_PREDICTION = 0.08
"""The same where a predicted kernel runs: two runs showed 0.92 and 0.94 of the speed that 20 s of search find."""

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
    """The expected_gains of workloads on ``target``, by what ``records`` know."""

    def __init__(self, target: Target, records: Iterable[TuningRecord]) -> None:
        self._target = target
        self._records = list(records)
        self._of_families: dict[str, list[TuningRecord]] = defaultdict(list)
        self._families_of_layers: dict[str, set[str]] = defaultdict(set)
        self._failed: dict[str, set[Config]] = defaultdict(set)
        for record in self._records:
            self._note(record)

    def add(self, record: TuningRecord) -> None:
        """Count a new record."""
        self._records.append(record)
        self._note(record)

    def _note(self, record: TuningRecord) -> None:
        here = record.device == self._target.device and record.fast_math == self._target.fast_math
        if here and record.measured and record.status is Status.OK and not record.contended:
            self._of_families[record.workload.family].append(record)
            self._families_of_layers[record.workload.layer].add(record.workload.family)
        elif here and record.status is not Status.OK and is_current(record, versions.installed()):
            self._failed[record.workload.family].add(record.config)

    def of(self, workload: Workload) -> ExpectedGain:
        """Of one call."""
        if not self._has_templates(workload):
            return ExpectedGain(now_us=self._assumed_us(workload), win_us=0.0, basis="assumed")
        ways = [workload, replace(workload, bias=False)] if workload.bias else [workload]
        for way in ways:
            known = self._nearest(way.family, way.batch, current=True)
            if known:
                return _as_measured(workload, known)
        if len(self._failed.get(workload.family, ())) >= MOST_STARTS:  # and nothing worked
            return ExpectedGain(now_us=self._assumed_us(workload), win_us=0.0, basis="assumed")
        return self._as_expected(workload)

    def _has_templates(self, workload: Workload) -> bool:
        try:
            templates_for(workload, self._target)
        except NoTemplate:
            return False
        return True

    def _nearest(self, family: str, batch: int, *, current: bool) -> list[TuningRecord]:
        """The records of a workload at the measured batch size that is nearest; those of its own, if there are."""
        found = self._of_families.get(family, [])
        found = [record for record in found if is_current(record, versions.installed()) == current]
        if not found:
            return []
        nearest = min((record.workload.batch for record in found), key=lambda other: abs(math.log(other / batch)))
        return [record for record in found if record.workload.batch == nearest]

    def _as_expected(self, workload: Workload) -> ExpectedGain:
        hoped = (
            self._expected_again(workload)
            or other_size.expected_from_nearest(self._at_other_sizes(workload), workload, self._target)
            or gain.expected(workload, self._target, self._records)
        )
        if hoped is None:
            now_us = self._assumed_us(workload)
            return ExpectedGain(now_us=now_us, win_us=now_us * (1 - 1 / _usual_gain(workload)), basis="assumed")
        if settings.untuned() == "predict" and is_safe(hoped, workload, self._target, sweeps=False):
            return ExpectedGain(now_us=hoped.us, win_us=_LEFT_AFTER_PREDICTION * hoped.us, basis="predicted")
        return ExpectedGain(
            now_us=hoped.us * hoped.gain, win_us=max(0.0, hoped.us * (hoped.gain - 1)), basis="predicted"
        )

    def _expected_again(self, workload: Workload) -> gain.Expected | None:
        """By what was measured with other versions."""
        known = self._nearest(workload.family, workload.batch, current=False)
        if not known:
            return None
        best = min(known, key=lambda record: record.rank)
        hoped = expected_again(best, config=best.config, reason="measured with other versions")
        return replace(hoped, us=hoped.us * workload.batch / best.workload.batch) if hoped else None

    def _at_other_sizes(self, workload: Workload) -> Iterator[TuningRecord]:
        """The best record of the same layer at each other input size."""
        for family in self._families_of_layers.get(workload.layer, ()):
            known = self._nearest(family, workload.batch, current=True)
            if family != workload.family and known:
                yield min(known, key=lambda record: record.rank)

    def _assumed_us(self, workload: Workload) -> float:
        """The time of PyTorch's op, if a kernel at the device's limits had the usual gain."""
        if self._target.limits:
            least_us = self._target.limits.limit_us(bytes_moved=workload.bytes, flops=workload.flops)
        else:
            least_us = max(workload.bytes / _GB_PER_S, workload.flops / _GFLOP_PER_S) / 1e3
        return least_us * _usual_gain(workload)


def expected_gains_us(
    counts: Mapping[Workload, int], target: Target, records: Iterable[TuningRecord]
) -> dict[Workload, float]:
    """The time that a step is expected to win by tuning, in all calls of a workload; 0 if none is expected."""
    expected_gains = ExpectedGains(target, records)
    return {workload: count * expected_gains.of(workload).win_us for workload, count in counts.items() if count}


def most_to_win_first(
    counts: Mapping[Workload, int], target: Target, records: Iterable[TuningRecord]
) -> list[Workload]:
    """The workloads in descending order of the time that a step is expected to win by tuning all calls of their layer;
    where that is nothing, of the time that they take. The passes of a layer stay together."""
    expected_gains = ExpectedGains(target, records)
    of_layers: dict[Workload, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for each, count in counts.items():
        expected_gain, (win_us, now_us) = expected_gains.of(each), of_layers[_layer(each)]
        of_layers[_layer(each)] = win_us + count * expected_gain.win_us, now_us + count * expected_gain.now_us
    return sorted(counts, key=lambda each: of_layers[_layer(each)], reverse=True)


def _layer(workload: Workload) -> Workload:
    """The same for all passes of a layer, with a bias or without."""
    return workload.for_pass("dgrad")


def shares(expected_gains: Mapping[Workload, float]) -> dict[Workload, int]:
    """How many configurations of each workload to race."""
    total = sum(expected_gains.values()) or 1.0
    return {
        workload: min(MOST_STARTS, max(1, math.ceil(_TRIED * expected_gain / total)))
        for workload, expected_gain in expected_gains.items()
    }


def _as_measured(workload: Workload, known: list[TuningRecord]) -> ExpectedGain:
    """``known``: records of one batch size, with the bias or without."""
    best = min(known, key=lambda record: record.rank)
    sweeps = workload.bias and not best.workload.bias
    scale = workload.batch / best.workload.batch
    kernel = scale * kernel_us(best, sweeps=sweeps)
    bare = scale * kernel_us(best, sweeps=False)
    alternative = best.alternative
    now_us = min(kernel, scale * alternative[1].median_us) if alternative else kernel
    left = 0.0 if best.ends_search else _LEFT_TO_WIN
    return ExpectedGain(now_us=now_us, win_us=max(left * now_us, now_us - bare * (1 - left)), basis="measured")


def _usual_gain(workload: Workload) -> float:
    large = workload.pass_ == "wgrad" and math.prod(workload.kernel) >= _LARGE_KERNEL
    return _GAIN_OF_LARGE_WGRAD if large else _GAIN[workload.pass_]
