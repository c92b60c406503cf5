"""What is known of a workload on a device already, so that a race may leave it out."""

from __future__ import annotations

from collections.abc import Sequence

from dwconv.dispatch.advantage import beats_pytorch
from dwconv.dispatch.knowledge import is_current
from dwconv.dispatch.legality import runnable
from dwconv.errors import InvalidConfig, NoTemplate
from dwconv.problems.target import Target
from dwconv.records.record import Status, TuningRecord


def is_known(records: Sequence[TuningRecord], target: Target) -> bool:
    """True if the ``records`` of one workload tell what runs it fastest on ``target``: a kernel that is confirmed; or
    PyTorch's op, for it was faster than all kernels that were measured, or none of them worked."""
    told = [record for record in records if _counts(record, target)]
    worked = [record for record in told if record.status is Status.OK]
    if any(record.confirmed and _is_legal(record, target) for record in worked):
        return True
    return bool(told) and not any(beats_pytorch(record, target) for record in worked)


def _counts(record: TuningRecord, target: Target) -> bool:
    if record.device != target.device or record.fast_math != target.fast_math:
        return False
    if not is_current(record):
        return False
    return record.status is not Status.OK or (record.measured and not record.contended)


def _is_legal(record: TuningRecord, target: Target) -> bool:
    try:
        runnable(record, target, adopts=False)
    except (InvalidConfig, NoTemplate):
        return False
    return True
