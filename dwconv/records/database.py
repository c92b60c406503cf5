"""Database: the records of many logs, and the answer to "what is fastest here?".

It only reads. A file that cannot be read is noted among ``problems`` and passed over: training goes on without it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dwconv.errors import LogError
from dwconv.records.log import TuningLog
from dwconv.records.record import Status, TuningRecord
from dwconv.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Database:
    """Records by device and family of workloads, oldest first."""

    records_by_family: dict[tuple[str, str], list[TuningRecord]]
    logs: list[Path]
    """The files that were read."""
    problems: list[str]
    """One line for every file with damaged lines, and for every file that could not be read."""

    @classmethod
    def load(cls, paths: Iterable[Path]) -> Database:
        """Read files and folders (every ``*.jsonl`` in them); what does not exist holds nothing."""
        by_family: dict[tuple[str, str], list[TuningRecord]] = defaultdict(list)
        files, problems = _files(paths)
        logs = []
        for path in files:
            try:
                loaded = TuningLog(path).load()
            except LogError as error:
                problems.append(str(error))
                continue
            logs.append(path)
            if loaded.damages:
                first = loaded.damages[0]
                problems.append(
                    f"log={path}: {len(loaded.damages)} damaged lines set aside; line {first.line}: {first.reason}"
                )
            for record in loaded.records:
                by_family[record.device, record.workload.family].append(record)
        for records in by_family.values():
            records.sort(key=lambda record: record.created)  # stable: as read, where the times are equal
        return cls(records_by_family=dict(by_family), logs=logs, problems=problems)

    def records(self, workload: Workload, device: str) -> list[TuningRecord]:
        """What is known of exactly this workload, batch size included, on ``device``: oldest first, failures too."""
        return [record for record in self.family(workload, device) if record.workload == workload]

    def family(self, workload: Workload, device: str) -> list[TuningRecord]:
        """What is known of this workload at any batch size on ``device``: oldest first, failures too."""
        return self.records_by_family.get((device, workload.family), [])

    def devices(self, workload: Workload) -> list[str]:
        """Devices that something is known of for this workload at any batch size."""
        return sorted(device for device, family in self.records_by_family if family == workload.family)

    def best(self, workload: Workload, device: str) -> TuningRecord | None:
        """The fastest measured candidate for ``workload`` on ``device``; None if there is none."""
        return next(iter(self.ranked(workload, device)), None)

    def ranked(self, workload: Workload, device: str) -> list[TuningRecord]:
        """Measured candidates that worked, best first, at the measured batch size nearest to the workload's. Those that
        were confirmed come before the rest.

        Of several records of one candidate the latest counts: a candidate that failed when it was looked at again is
        out. Predicted records do not count at all, nor do those of kernels with relaxed arithmetic, which nobody asked
        for. Whether a configuration is still legal is not checked here.
        """
        latest: dict[tuple[int, frozenset[object]], TuningRecord] = {}
        for record in self.family(workload, device):
            if (record.measured or record.status is not Status.OK) and not record.fast_math:
                candidate = frozenset(record.config.to_dict().items())
                latest[record.workload.batch, candidate] = record
        worked = [record for record in latest.values() if record.status is Status.OK]
        if not worked:
            return []
        batch = min(
            {record.workload.batch for record in worked},
            key=lambda measured: (abs(math.log(measured / workload.batch)), -measured),
        )
        return sorted((record for record in worked if record.workload.batch == batch), key=lambda record: record.rank)


def _files(paths: Iterable[Path]) -> tuple[list[Path], list[str]]:
    """Every log once, although a folder may be listed twice; and one line for every path that cannot be looked at."""
    files: dict[Path, Path] = {}
    problems = []
    for path in paths:
        try:
            for file in sorted(path.glob("*.jsonl")) if path.is_dir() else [path]:
                if file.exists():
                    files.setdefault(file.resolve(), file)
        except OSError as error:
            problems.append(f"log={path} cannot be read: {error.strerror}")
    return list(files.values()), problems
