"""What is known of a workload on a device already, so that a race may leave it out."""

from __future__ import annotations

from dwconv.dispatch.advantage import beats_pytorch
from dwconv.dispatch.knowledge import failed, measured_here
from dwconv.dispatch.legality import Broken, runnable
from dwconv.errors import InvalidConfig, NoTemplate
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.records.record import TuningRecord


def is_known(workload: Workload, target: Target, known: Database, *, broken: Broken) -> bool:
    """True if ``known`` tells what runs the workload fastest on ``target``, at its own batch size: a kernel that is
    confirmed; or PyTorch's op, for it was faster than all kernels that were measured, or none of them worked."""
    of_all_batches = measured_here(workload, target, current=True, known=known)
    worked = [record for record in of_all_batches if record.workload == workload]
    if any(record.confirmed and _is_legal(record, target, broken) for record in worked):
        return True
    told = worked or [record for record in failed(workload, target, known=known) if record.workload == workload]
    return bool(told) and not any(beats_pytorch(record, target) for record in worked)


def _is_legal(record: TuningRecord, target: Target, broken: Broken) -> bool:
    try:
        runnable(record, target, adopts=False, broken=broken)
    except (InvalidConfig, NoTemplate):
        return False
    return True
