"""Reduce many records to the few that dispatch can choose from, to share or to ship."""

from __future__ import annotations

from dwconv.records.database import Database
from dwconv.records.record import TuningRecord
from dwconv.workload import Workload


def condensed(database: Database, *, keep: int) -> list[TuningRecord]:
    """The best ``keep`` records of every workload on every device, best first, in the order of devices and workloads.

    Failed and predicted records are left out. Unconfirmed ones are kept only if a workload has no confirmed one."""
    workloads = {(record.device, record.workload): None for record in database}
    kept: list[TuningRecord] = []
    for device, workload in sorted(workloads, key=_by_name):
        ranked = [record for record in database.ranked(workload, device) if record.workload == workload]
        confirmed = [record for record in ranked if record.confirmed]
        kept += (confirmed or ranked)[:keep]
    return kept


def _by_name(workload_of: tuple[str, Workload]) -> tuple[str, str]:
    device, workload = workload_of
    return device, workload.key
