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
"""Those of one file, by device and family of workloads, in the order of its lines."""
_Candidate = tuple[int, frozenset[tuple[str, int | str]]]
"""The batch size that it was measured at, and its configuration: of one family of workloads."""


@dataclass(frozen=True, kw_only=True)
class Database:
    """The records of several places. Where more than one knows a workload, the first of them counts before the next."""

    places: list[list[RecordsByFamily]]
    """The files of every place."""
    logs: list[Path]
    """The files that were read."""
    problems: list[str]
    """One line for every file with damaged lines, and for every file that could not be read."""

    @classmethod
    def load(cls, *places: Iterable[Path]) -> Database:
        """Read files and folders (every ``*.jsonl`` in them), each file once; what does not exist holds nothing. The
        logs of one place count alike."""
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
        """What ``log`` holds; without it, what the settings say is read: the user's own measurements count before those
        that ship, which another machine of the same name has taken."""
        return cls.load([log]) if log else cls.load(*([path] for path in settings.tuning_log_paths()))

    def __iter__(self) -> Iterator[TuningRecord]:
        """Every record, place by place and file by file."""
        return (record for place in self.places for file in place for records in file.values() for record in records)

    def records(self, workload: Workload, device: str) -> list[TuningRecord]:
        """What is known of exactly this workload, batch size included, on ``device``: failures too, place by place
        and file by file, in the order of the lines."""
        return [record for record in self.family(workload, device) if record.workload == workload]

    def family(self, workload: Workload, device: str) -> list[TuningRecord]:
        """What is known of this workload at any batch size on ``device``: failures too, place by place
        and file by file, in the order of the lines."""
        key = (device, workload.family)
        return [record for place in self.places for file in place for record in file.get(key, ())]

    def devices(self, workload: Workload) -> list[str]:
        """Devices that something is known of for this workload at any batch size."""
        family = workload.family
        return sorted({device for place in self.places for file in place for device, each in file if each == family})

    def best(self, workload: Workload, device: str) -> TuningRecord | None:
        """The fastest measured candidate for ``workload`` on ``device``; None if there is none."""
        return next(iter(self.ranked(workload, device)), None)

    def ranked(self, workload: Workload, device: str) -> list[TuningRecord]:
        """Measured candidates that worked, best first, at the measured batch size nearest to the workload's."""
        return next(iter(self.ranked_by_batch(workload, device)), [])

    def ranked_by_batch(self, workload: Workload, device: str) -> list[list[TuningRecord]]:
        """Measured candidates that worked, of each measured batch size, that nearest to the workload's first. In each
        the best come first: those that were confirmed before the rest, and of these those of an earlier place before
        those of a later one.

        Of several records of one candidate the last line of a file counts, whatever their clocks say: what failed when
        it was looked at again is out. Where files of one place disagree, what failed in one of them is out; else what
        is confirmed counts before what is not, and the slower before the faster. The first place that knows the
        candidate decides. Predicted records do not count at all, nor do those of kernels with relaxed arithmetic, which
        nobody asked for, nor times that other work disturbed. Whether a configuration is still legal is not checked
        here.
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
    """Of two files' words on one candidate, the heavier counts."""
    return record.status is not Status.OK, record.confirmed, record.cost


def _files(paths: Iterable[Path], problems: list[str]) -> Iterator[Path]:
    """Every log; adds one line to ``problems`` for every path that cannot be looked at."""
    for path in paths:
        try:
            listed = sorted(path.iterdir()) if path.is_dir() else [path]
            yield from [file for file in listed if (file == path or file.suffix == ".jsonl") and file.exists()]
        except OSError as error:
            problems.append(one_line(f"log={path} cannot be read: {error.strerror}; name another with --log"))


def _readable(path: Path, problems: list[str]) -> list[TuningRecord] | None:
    """The records of a log, None if it cannot be read; adds one line to ``problems`` for what cannot."""
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
