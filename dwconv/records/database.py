"""Database: the records of many logs, and the answer to "what is fastest here?".

It only reads. A file that cannot be read is noted among ``problems`` and passed over: training goes on without it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dwconv import settings
from dwconv.errors import LogError
from dwconv.records.log import TuningLog
from dwconv.records.record import Status, TuningRecord
from dwconv.workload import Workload

RecordsByFamily = dict[tuple[str, str], list[TuningRecord]]
"""By device and family of workloads, oldest first."""


@dataclass(frozen=True, kw_only=True)
class Database:
    """The records of several places. Where more than one knows a workload, the first of them counts before the next."""

    places: list[RecordsByFamily]
    logs: list[Path]
    """The files that were read."""
    problems: list[str]
    """One line for every file with damaged lines, and for every file that could not be read."""

    @classmethod
    def load(cls, *places: Iterable[Path]) -> Database:
        """Read files and folders (every ``*.jsonl`` in them), each file once; what does not exist holds nothing. The
        logs of one place count alike."""
        read: list[RecordsByFamily] = []
        seen: set[Path] = set()
        logs: list[Path] = []
        problems: list[str] = []
        for paths in places:
            by_family: RecordsByFamily = defaultdict(list)
            for path in _files(paths, problems):
                if path.resolve() in seen:
                    continue
                seen.add(path.resolve())
                if (records := _readable(path, problems)) is not None:
                    logs.append(path)
                    for record in records:
                        by_family[record.device, record.workload.family].append(record)
            for family in by_family.values():
                family.sort(key=lambda record: record.created)  # stable: as read, where the times are equal
            read.append(dict(by_family))
        return cls(places=read, logs=logs, problems=problems)

    @classmethod
    def usual(cls, log: Path | None = None) -> Database:
        """What ``log`` holds; without it, what the settings say is read: the user's own measurements count before those
        that ship, which another machine of the same name has taken."""
        return cls.load([log]) if log else cls.load(*([path] for path in settings.tuning_log_paths()))

    def __iter__(self) -> Iterator[TuningRecord]:
        """Every record, place by place."""
        return (record for place in self.places for records in place.values() for record in records)

    def records(self, workload: Workload, device: str) -> list[TuningRecord]:
        """What is known of exactly this workload, batch size included, on ``device``: failures too, place by place,
        oldest first."""
        return [record for record in self.family(workload, device) if record.workload == workload]

    def family(self, workload: Workload, device: str) -> list[TuningRecord]:
        """What is known of this workload at any batch size on ``device``: failures too, place by place, oldest
        first."""
        return [record for place in self.places for record in place.get((device, workload.family), ())]

    def devices(self, workload: Workload) -> list[str]:
        """Devices that something is known of for this workload at any batch size."""
        return sorted({device for place in self.places for device, family in place if family == workload.family})

    def best(self, workload: Workload, device: str) -> TuningRecord | None:
        """The fastest measured candidate for ``workload`` on ``device``; None if there is none."""
        return next(iter(self.ranked(workload, device)), None)

    def ranked(self, workload: Workload, device: str) -> list[TuningRecord]:
        """Measured candidates that worked, best first, at the measured batch size nearest to the workload's. Those that
        were confirmed come before the rest, and of these those of an earlier place before those of a later one.

        Of several records of one candidate the latest of the first place counts: a candidate that failed when it was
        looked at again is out. Predicted records do not count at all, nor do those of kernels with relaxed arithmetic,
        which nobody asked for. Whether a configuration is still legal is not checked here.
        """
        latest: dict[tuple[int, frozenset[object]], tuple[int, TuningRecord]] = {}
        for number, place in reversed(list(enumerate(self.places))):  # the first has the last word
            for record in place.get((device, workload.family), ()):
                if (record.measured or record.status is not Status.OK) and not record.fast_math:
                    candidate = frozenset(record.config.to_dict().items())
                    latest[record.workload.batch, candidate] = number, record
        worked = [(number, record) for number, record in latest.values() if record.status is Status.OK]
        if not worked:
            return []
        batch = min(
            {record.workload.batch for _, record in worked},
            key=lambda measured: (abs(math.log(measured / workload.batch)), -measured),
        )
        near = [(not record.confirmed, number, record) for number, record in worked if record.workload.batch == batch]
        return [record for *_, record in sorted(near, key=lambda known: (*known[:2], known[2].rank))]


def _files(paths: Iterable[Path], problems: list[str]) -> Iterator[Path]:
    """Every log; adds one line to ``problems`` for every path that cannot be looked at."""
    for path in paths:
        try:
            yield from [file for file in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path]) if file.exists()]
        except OSError as error:
            problems.append(f"log={path} cannot be read: {error.strerror}")


def _readable(path: Path, problems: list[str]) -> list[TuningRecord] | None:
    """The records of a log, None if it cannot be read; adds one line to ``problems`` for what cannot."""
    try:
        loaded = TuningLog(path).load()
    except LogError as error:
        problems.append(str(error))
        return None
    if loaded.damages:
        first = loaded.damages[0]
        problems.append(f"log={path}: {len(loaded.damages)} damaged lines set aside; line {first.line}: {first.reason}")
    return loaded.records
