"""Reduce many records to the few that dispatch can choose from, to share or to ship; write a log as a whole."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from dwconv.errors import LogError
from dwconv.problems.workload import Workload
from dwconv.records.database import Database, IsCurrent
from dwconv.records.line import encode
from dwconv.records.record import TuningRecord, template_version
from dwconv.system.new_file import new_file, sync_folder


def condensed(database: Database, *, keep: int) -> list[TuningRecord]:
    """The best ``keep`` records of every workload on every device, best first, in the order of devices and workloads.

    Readers may have any version of PyTorch and TVM, so each pair of versions has its own best, and each kind of
    arithmetic; of a template only the newest version counts. Failed and computed records are left out. Unconfirmed ones
    are kept only if a workload has no confirmed one."""
    workloads: dict[tuple[str, Workload, bool], list[TuningRecord]] = {}
    for record in database:
        workloads.setdefault((record.device, record.workload, record.fast_math), []).append(record)
    kept: list[TuningRecord] = []
    ordered = sorted(workloads.items(), key=lambda item: (item[0][0], item[0][1].key, item[0][2]))
    for (device, workload, fast_math), records in ordered:
        for is_made_with in _each_of_versions(records):
            by_batch = database.ranked_by_batch(workload, device, is_current=is_made_with, fast_math=fast_math)
            ranked = [
                record for record in next(iter(by_batch), []) if record.workload == workload and is_made_with(record)
            ]
            confirmed = [record for record in ranked if record.confirmed]
            kept += (confirmed or ranked)[:keep]
    return kept


def _each_of_versions(records: Iterable[TuningRecord]) -> list[IsCurrent]:
    """For each pair of versions of some records of one workload: was a record made with these, and by the newest
    version of its template among them?"""
    newest: dict[tuple[str, str], dict[str, str]] = {}
    for record in records:
        templates = newest.setdefault(_versions(record), {})
        known = templates.get(record.config.template, "")
        templates[record.config.template] = max(known, template_version(record), key=_number)

    def is_made_with(pair: tuple[str, str], record: TuningRecord) -> bool:
        return _versions(record) == pair and template_version(record) == newest[pair].get(record.config.template)

    return [partial(is_made_with, pair) for pair in sorted(newest)]


def _versions(record: TuningRecord) -> tuple[str, str]:
    return record.versions.get("torch", ""), record.versions.get("tvm", "")


def _number(version: str) -> tuple[int, str]:
    """Orders versions of a template: 10 after 9; what is no number, as a log may have it, first."""
    return int(version) if version.isdecimal() else -1, version


def write_whole(path: Path, records: Iterable[TuningRecord]) -> None:
    """Write a log that holds ``records``, on disk when this returns. Raises LogError if it cannot be written, or if
    there is a file at ``path``, even one that was made meanwhile."""
    lines = (encode(record) + b"\n" for record in records)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path, lines, durable=True) as written:
            _take_name(written, path)
        sync_folder(path.parent)
    except OSError as error:
        raise LogError(f"out={path} cannot be written: {error.strerror}; name another file") from None


def _take_name(written: str, path: Path) -> None:
    """Give the file ``written`` the name ``path``. Raises LogError if the name is taken, OSError for other trouble."""
    try:
        try:
            os.link(written, path)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            path.open("xb").close()  # a file system without links: an empty file keeps the name until it is replaced
            Path(written).replace(path)
    except FileExistsError:
        raise LogError(f"out={path} exists already; name another file") from None
