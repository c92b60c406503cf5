"""Database: the records of many logs, and the answer to "what is fastest here?".

It only reads. A file that cannot be read is noted among ``problems`` and passed over: training goes on without it.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dwconv import settings
from dwconv.errors import LogError, one_line
from dwconv.records.log import TuningLog
from dwconv.records.record import Status, TuningRecord
from dwconv.workload import Workload

RecordsByFamily = dict[tuple[str, str], list[TuningRecord]]
"""The records of one file, by device and family of workloads, in the order of the lines."""
_Candidate = tuple[int, frozenset[tuple[str, int | str]]]
"""A candidate within a family of workloads: the batch size it was measured at, and its configuration."""


@dataclass(frozen=True, kw_only=True)
class Database:
    """The records of several places. If several have records of a workload, the first place goes before the next."""

    places: list[list[RecordsByFamily]]
    """The files of every place."""
    logs: list[Path]
    """The files that were read."""
    problems: list[str]
    """One line for every file with damaged lines, and for every file that could not be read."""

    @classmethod
    def load(cls, *places: Iterable[Path]) -> Database:
        """Read files and folders (every ``*.jsonl`` in them), each file once. A missing file or folder holds nothing.
        All logs of one place have the same weight."""
        read: list[list[RecordsByFamily]] = []
        seen: set[str] = set()
        logs: list[Path] = []
        problems: list[str] = []
        for paths in places:
            files: list[RecordsByFamily] = []
            for path in _files(paths, problems):
                if (real := os.path.realpath(path)) in seen:
                    continue
                seen.add(real)
                if (records := _readable(path, problems)) is not None:
                    logs.append(path)
                    by_family: RecordsByFamily = defaultdict(list)
                    for record in records:
                        by_family[record.device, record.workload.family].append(record)
                    files.append(dict(by_family))
            read.append(files)
        return cls(places=read, logs=logs, problems=problems)

    @classmethod
    def usual(cls, log: Path | None = None) -> Database:
        """The records in ``log``, or by default those in the places that the settings name. There, the user's own
        measurements go before the records that ship, which were taken on another machine of the same name."""
        return cls.load([log]) if log else cls.load(*([path] for path in settings.tuning_log_paths()))

    def __iter__(self) -> Iterator[TuningRecord]:
        """Every record, place by place and file by file."""
        return (record for place in self.places for file in place for records in file.values() for record in records)

    def records(self, workload: Workload, device: str) -> list[TuningRecord]:
        """All records of exactly this workload, batch size included, on ``device``, failures too: place by place and
        file by file, in the order of the lines."""
        return [record for record in self.family(workload, device) if record.workload == workload]

    def family(self, workload: Workload, device: str) -> list[TuningRecord]:
        """All records of this workload at any batch size on ``device``, failures too: place by place and file by file,
        in the order of the lines."""
        key = (device, workload.family)
        return [record for place in self.places for file in place for record in file.get(key, ())]

    def devices(self, workload: Workload) -> list[str]:
        """Devices with records of this workload at any batch size."""
        family = workload.family
        return sorted({device for place in self.places for file in place for device, each in file if each == family})

    def best(self, workload: Workload, device: str) -> TuningRecord | None:
        """The fastest measured candidate for ``workload`` on ``device``; None if there is none."""
        return next(iter(self.ranked(workload, device)), None)

    def ranked(self, workload: Workload, device: str) -> list[TuningRecord]:
        """Measured candidates that worked, best first, at the measured batch size nearest to the workload's."""
        return next(iter(self.ranked_by_batch(workload, device)), [])

    def ranked_by_batch(self, workload: Workload, device: str) -> list[list[TuningRecord]]:
        """Measured candidates that worked, a list for each measured batch size, beginning with the size nearest to the
        workload's. Each list has the best first: confirmed candidates before others, and among those an earlier place
        before a later one.

        If a file has several records of one candidate, its last line counts, whatever the clocks say, so a candidate
        that failed when it was measured again is out. If files of one place disagree, a candidate that failed in one of
        them is out; otherwise a confirmed record goes before an unconfirmed one, and a slower before a faster one. The
        first place that has the candidate decides. Three kinds of records never count: predicted ones, those of kernels
        with relaxed arithmetic, which nobody asked for, and times that other work disturbed. Whether a configuration is
        still legal is not checked here.
        """
        latest: dict[_Candidate, tuple[int, TuningRecord]] = {}
        for number, place in reversed(list(enumerate(self.places))):  # the first has the last word
            for candidate, record in _words(place, (device, workload.family)).items():
                latest[candidate] = number, record
        worked = [(number, record) for number, record in latest.values() if record.status is Status.OK]
        by_batch: dict[int, list[tuple[bool, int, TuningRecord]]] = defaultdict(list)
        for number, record in worked:
            by_batch[record.workload.batch].append((not record.confirmed, number, record))
        nearest = sorted(by_batch, key=lambda measured: (abs(math.log(measured / workload.batch)), -measured))
        return [
            [record for *_, record in sorted(by_batch[batch], key=lambda known: (*known[:2], known[2].rank))]
            for batch in nearest
        ]


def _words(place: list[RecordsByFamily], family: tuple[str, str]) -> dict[_Candidate, TuningRecord]:
    """The record of each candidate that counts among those of one place."""
    words: dict[_Candidate, TuningRecord] = {}
    for file in place:
        last = {
            (record.workload.batch, frozenset(record.config.to_dict().items())): record
            for record in file.get(family, ())
            if not record.fast_math and (record.status is not Status.OK or (record.measured and not record.contended))
        }
        for candidate, record in last.items():
            words[candidate] = max(words.get(candidate, record), record, key=_weight)
    return words


def _weight(record: TuningRecord) -> tuple[bool, bool, float]:
    """If two files disagree about a candidate, the heavier record counts."""
    return record.status is not Status.OK, record.confirmed, record.cost


def _files(paths: Iterable[Path], problems: list[str]) -> Iterator[Path]:
    """Every log; adds one line to ``problems`` for every path that cannot be opened."""
    for path in paths:
        try:
            listed = sorted(path.iterdir()) if path.is_dir() else [path]
            yield from [file for file in listed if (file == path or file.suffix == ".jsonl") and file.exists()]
        except OSError as error:
            problems.append(one_line(f"log={path} cannot be read: {error.strerror}; name another with --log"))


def _readable(path: Path, problems: list[str]) -> list[TuningRecord] | None:
    """The records of a log; None if it cannot be read. Adds one line to ``problems`` if something cannot be read."""
    try:
        loaded = TuningLog(path).load()
    except LogError as error:
        problems.append(one_line(str(error)))
        return None
    if loaded.damages:
        first = loaded.damages[0]
        damage = f"{loaded.damaged} damaged lines set aside; line {first.line}: {first.reason}"
        problems.append(one_line(f"log={path}: {damage}; the rest counts, and python -m dwconv.merge leaves them out"))
    return loaded.records
