"""Outcomes: the record of a candidate, from what its worker answered or how its request failed.

Every new record carries the same facts, whatever happened to its candidate: device, versions, time.
"""

from __future__ import annotations

import dataclasses

from dwconv.errors import WorkerDied, WorkerError, WorkerTimeout
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.cache import remember_checked
from dwconv.measure.measuring import Measured
from dwconv.problems.target import CpuTarget, Target
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
        created=versions.now(),
    )


def status_after(error: WorkerError, *, otherwise: Status) -> Status:
    """How far a candidate got whose worker ended in ``error``; ``otherwise`` if the worker lives on."""
    if isinstance(error, WorkerTimeout):
        return Status.TIMEOUT
    return Status.CRASHED if isinstance(error, WorkerDied) else otherwise


def measured_record(artifact: Artifact, measured: Measured, *, target: Target) -> TuningRecord:
    """Of a candidate that was verified, and timed if it was right."""
    verdict = measured.verdict
    right = verdict is not None and verdict.right
    known = new_record(artifact.candidate, target, status=Status.OK if right else Status.WRONG)
    return dataclasses.replace(
        known,
        measurement=measured.kernels[0] if measured.kernels else None,
        verdict=verdict,
        providers=measured.providers,
        others=measured.others[0] if measured.others else (),
        resources=artifact.resources,
        detail="" if verdict is None else verdict.reason,
    )


def failed_to_build(candidate: Candidate, error: WorkerError, *, target: Target) -> TuningRecord:
    """Of a candidate that has no artifact."""
    status = status_after(error, otherwise=Status.COMPILE_ERROR)
    while_building = "while building: " if isinstance(error, WorkerDied) else ""
    return dataclasses.replace(new_record(candidate, target, status=status), detail=f"{while_building}{error}")


def failed_to_run(artifact: Artifact, error: WorkerError, *, target: Target) -> TuningRecord:
    """Of a candidate whose worker could not answer."""
    status = status_after(error, otherwise=Status.RUNTIME_ERROR)
    known = new_record(artifact.candidate, target, status=status)
    return dataclasses.replace(known, resources=artifact.resources, detail=str(error))


def right_finalist(artifact: Artifact, record: TuningRecord, *, target: Target, sure: bool) -> TuningRecord:
    """``record`` of a finalist that was right: confirmed if its time is ``sure``. Training with its kernel does not
    check it again; one of any size is checked at a few sizes first."""
    threads = {target.threads, 1} if isinstance(target, CpuTarget) else set[int]()
    if not artifact.candidate.workload.any_size:
        remember_checked(artifact, target, threads=threads)
    return dataclasses.replace(record, confirmed=sure)
