"""The facts that every new record carries, whatever happened to its candidate: device, versions, time."""

from __future__ import annotations

import datetime
from functools import cache
from importlib import metadata

from dwconv.errors import WorkerDied, WorkerError, WorkerTimeout
from dwconv.records.record import Status, TuningRecord
from dwconv.schedules.template import Candidate
from dwconv.target import Target

_PACKAGES = {"dwconv": "dwconv", "torch": "torch", "tvm": "apache-tvm"}


def new_record(candidate: Candidate, target: Target, *, status: Status) -> TuningRecord:
    """A record of ``candidate`` made now, without any measurement or verdict yet."""
    return TuningRecord(
        workload=candidate.workload,
        config=candidate.config,
        device=target.device,
        status=status,
        versions={**versions(), "math": "fast"} if target.fast_math else versions(),
        created=now(),
    )


def status_after(error: WorkerError, *, otherwise: Status) -> Status:
    """How far a candidate got whose worker ended in ``error``; ``otherwise`` if the worker lives on."""
    if isinstance(error, WorkerTimeout):
        return Status.TIMEOUT
    return Status.CRASHED if isinstance(error, WorkerDied) else otherwise


@cache
def versions() -> dict[str, str]:
    """The versions that a measurement depends on; not to be changed by the caller."""
    return {name: metadata.version(package) for name, package in _PACKAGES.items()}


def now() -> str:
    """The time, ISO 8601, UTC."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
