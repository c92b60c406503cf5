"""The facts that every new record carries, whatever happened to its candidate: device, versions, time."""

from __future__ import annotations

import datetime

from dwconv.errors import WorkerDied, WorkerError, WorkerTimeout
from dwconv.problems.target import Target
from dwconv.records.record import Status, TuningRecord
from dwconv.schedules.template import Candidate, version_of
from dwconv.system import versions


def new_record(candidate: Candidate, target: Target, *, status: Status) -> TuningRecord:
    """A record of ``candidate`` made now, without any measurement or verdict yet."""
    facts = {**versions.installed(), "template": str(version_of(candidate.config.template))}
    return TuningRecord(
        workload=candidate.workload,
        config=candidate.config,
        device=target.device,
        status=status,
        versions={**facts, "math": "fast"} if target.fast_math else facts,
        created=now(),
    )


def status_after(error: WorkerError, *, otherwise: Status) -> Status:
    """How far a candidate got whose worker ended in ``error``; ``otherwise`` if the worker lives on."""
    if isinstance(error, WorkerTimeout):
        return Status.TIMEOUT
    return Status.CRASHED if isinstance(error, WorkerDied) else otherwise


def now() -> str:
    """The time, ISO 8601, UTC."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
