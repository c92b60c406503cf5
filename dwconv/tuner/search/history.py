"""History: how long the baseline of a workload usually takes, which shows if a machine was slow from start to end.

Other work does not always show while a kernel is timed: it may share a core's units, its caches or its clock, or the
system may not report it. The baseline is the same code every time, so its time shows it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from dwconv.records.record import Status, TuningRecord

_SLOWER = 1.3
"""The machine may have been busy if the baseline took this many times as long as usual."""
_FAR_SLOWER = 3.0
"""The machine was busy, whatever the other signs say."""
_FAR_FROM_LIMIT = 20.0
_CALL_US = 100.0
"""Without a history, a time is suspicious if it is beyond this many times the device's limit and this many µs."""


class History:
    """The baselines of one workload in trials that other work did not disturb."""

    def __init__(self, *, limit_us: float | None) -> None:
        self._limit_us = limit_us
        self._baselines_us: dict[str, list[float]] = {}

    def add(self, record: TuningRecord) -> None:
        """Count the baseline of a record, unless other work disturbed it."""
        if record.baseline and not record.disturbed:
            self._baselines_us.setdefault(_library(record), []).append(record.baseline[1].median_us)

    def judged(self, record: TuningRecord, *, busy: Callable[[], float]) -> TuningRecord:
        """``record`` as it is to be logged. It is not confirmed if its baseline was far slower than usual, or if a time
        is suspicious and other work is running. ``busy`` gives the share of the cores that other work has; it takes a
        moment, so it is asked only then."""
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
        return dataclasses.replace(judged, confirmed=not judged.disturbed)

    def contended(self, records: Sequence[TuningRecord]) -> bool:
        """True if other work disturbed the finalists, or may have, so that they should be timed again."""
        worked = [record for record in records if record.status is Status.OK]
        return any(record.disturbed or self._suspicious(record) for record in worked)

    def _slower(self, record: TuningRecord) -> float:
        """How many times as long as usual the baseline took; 1 without a history."""
        known = sorted(self._baselines_us.get(_library(record), []))
        return record.baseline[1].median_us / known[len(known) // 4] if known and record.baseline else 1.0

    def _suspicious(self, record: TuningRecord) -> bool:
        if self._baselines_us.get(_library(record)):
            return self._slower(record) > _SLOWER
        if self._limit_us is None or record.measurement is None:
            return False
        return record.measurement.median_us > _FAR_FROM_LIMIT * self._limit_us + _CALL_US


def _library(record: TuningRecord) -> str:
    """The version of the library whose op is the baseline: its speed depends on it."""
    return record.versions.get("torch", "")
