"""Knowledge: the records of this process, and which of them may say who runs a workload."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from dwconv import versions
from dwconv.records import validity
from dwconv.records.database import Database
from dwconv.records.record import Status
from dwconv.target import CpuTarget, Target

if TYPE_CHECKING:
    from dwconv.records.record import TuningRecord
    from dwconv.workload import Workload


@cache
def database() -> Database:
    """The records of this process, read when they are first needed."""
    return Database.usual()


def measured(workload: Workload, target: Target, *, current: bool) -> Iterator[tuple[Target, TuningRecord]]:
    """The records that may decide, those that count most first, with what they were measured on: ``target``, then the
    same CPU with other numbers of threads, the nearest first; a kernel runs on as many threads as PyTorch uses,
    whatever it was tuned for. On each of them all batch sizes, the nearest first. ``current``: those made with the
    versions installed, or those made with others."""
    others: list[CpuTarget] = []
    if isinstance(target, CpuTarget):
        names = (device for device in database().devices(workload) if device != target.device)
        others = [other for name in names if (other := target.named(name)) is not None]
        others.sort(key=lambda other: (abs(math.log(other.threads / target.threads)), -other.threads))
    for one in (target, *others):
        for records in database().ranked_by_batch(workload, one.device, is_current=_is_current):
            yield from ((one, record) for record in records if _is_current(record) == current)


def at_other_sizes(workload: Workload, target: Target) -> Iterator[TuningRecord]:
    """The best record of the same layer on ``target`` at each other input size, made with the versions installed: at
    the measured batch size that is nearest."""
    for other in database().other_sizes(workload, target.device):
        for records in database().ranked_by_batch(other, target.device, is_current=_is_current)[:1]:
            yield from [record for record in records if _is_current(record)][:1]


def failed(workload: Workload, target: Target) -> list[TuningRecord]:
    """Candidates of a workload, at any batch size, that do not work here with the versions installed."""
    known = database().family(workload, target.device)
    return [record for record in known if record.status is not Status.OK and _is_current(record)]


def _is_current(record: TuningRecord) -> bool:
    return validity.is_current(record, versions.installed())
