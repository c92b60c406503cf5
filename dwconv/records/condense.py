"""Reduce many records to the few that dispatch can choose from, to share or to ship."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.records.record import TuningRecord
from dwconv.records.validity import template_version


def condensed(database: Database, *, keep: int) -> list[TuningRecord]:
    """The best ``keep`` records of every workload on every device, best first, in the order of devices and workloads.

    Readers may have any version of PyTorch and TVM, so each pair of versions has its own best; of a template
    only the newest version counts. Failed and computed records are left out. Unconfirmed ones are kept only if a
    workload has no confirmed one."""
    workloads: dict[tuple[str, Workload], list[TuningRecord]] = {}
    for record in database:
        workloads.setdefault((record.device, record.workload), []).append(record)
    kept: list[TuningRecord] = []
    for (device, workload), records in sorted(workloads.items(), key=lambda item: (item[0][0], item[0][1].key)):
        for versions in _all_versions(records):
            ranked = [
                record
                for record in database.ranked(workload, device, is_current=versions.made)
                if record.workload == workload and versions.made(record)
            ]
            confirmed = [record for record in ranked if record.confirmed]
            kept += (confirmed or ranked)[:keep]
    return kept


@dataclass(frozen=True, kw_only=True)
class _Versions:
    """The versions with which some of a workload's records were made."""

    torch: str
    tvm: str
    templates: dict[str, str]
    """The newest version of each template."""

    def made(self, record: TuningRecord) -> bool:
        """True if a record was made with them."""
        return (
            record.versions.get("torch", "") == self.torch
            and record.versions.get("tvm", "") == self.tvm
            and template_version(record) == self.templates.get(record.config.template)
        )


def _all_versions(records: Iterable[TuningRecord]) -> list[_Versions]:
    """The versions of some records of one workload, in the order of their names."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for record in records:
        templates = found.setdefault((record.versions.get("torch", ""), record.versions.get("tvm", "")), {})
        newest = max(templates.get(record.config.template, ""), template_version(record), key=_number)
        templates[record.config.template] = newest
    return [_Versions(torch=torch, tvm=tvm, templates=found[torch, tvm]) for torch, tvm in sorted(found)]


def _number(version: str) -> tuple[int, str]:
    """Orders versions of a template: 10 after 9; what is no number, as a log may have it, first."""
    return int(version) if version.isdecimal() else -1, version
