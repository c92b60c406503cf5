"""History: how long the baseline of a workload has usually taken, and so whether a machine was slow from start to end.

Other work does not always show while a kernel is timed: it may share a core's units, its caches, its clock, or a system
may not tell. The baseline is the same code every time, so it tells.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from dwconv.records.record import Status, TuningRecord

_SLOWER = 1.3
"""The machine may have been busy if the baseline took this much longer than it usually does."""
_FAR_SLOWER = 3.0
"""It was, whatever else there is to see."""
_FAR_FROM_LIMIT = 20.0
_CALL_US = 100.0
"""Without a history: a kernel that takes this much longer than the device's limit, and than any call costs."""


class History:
    """The baselines of one workload, of trials that other work did not disturb."""

    def __init__(self, *, limit_us: float | None) -> None:
        self._limit_us = limit_us
        self._baselines_us: dict[str, list[float]] = {}

    def add(self, record: TuningRecord) -> None:
        """Count a record's baseline if it is one of an undisturbed machine."""
        if record.baseline and not record.contended:
            self._baselines_us.setdefault(_library(record), []).append(record.baseline[1].median_us)

    def judged(self, record: TuningRecord, *, busy: Callable[[], float]) -> TuningRecord:
        """``record`` as it is to be logged: not confirmed if its baseline was far slower than usual, or if a time is
        suspicious and others are ``busy``: the share of the cores that they have, which takes a moment to find out."""
        if not record.confirmed or record.measurement is None:
            return record
        slower = self._slower(record)
        lost = 1 - 1 / slower if slower > _FAR_SLOWER else 0.0
        if not lost and self._suspicious(record):
            lost = busy()
        if not lost:
            return record
        measurement = dataclasses.replace(record.measurement, contention=round(lost, 3))
        judged = dataclasses.replace(record, measurement=measurement)
        return dataclasses.replace(judged, confirmed=not judged.contended)

    def disturbed(self, records: Sequence[TuningRecord]) -> bool:
        """True if finalists should be timed again: other work disturbed them, or may have."""
        worked = [record for record in records if record.status is Status.OK]
        return any(record.contended or self._suspicious(record) for record in worked)

    def _slower(self, record: TuningRecord) -> float:
        """How many times as long as usual the baseline took; 1 if nothing is known of it."""
        known = sorted(self._baselines_us.get(_library(record), []))
        return record.baseline[1].median_us / known[len(known) // 4] if known and record.baseline else 1.0

    def _suspicious(self, record: TuningRecord) -> bool:
        if self._baselines_us.get(_library(record)):
            return self._slower(record) > _SLOWER
        if self._limit_us is None or record.measurement is None:
            return False
        return record.measurement.median_us > _FAR_FROM_LIMIT * self._limit_us + _CALL_US


def _library(record: TuningRecord) -> str:
    """What the baseline's speed depends on."""
    return record.versions.get("torch", "")
