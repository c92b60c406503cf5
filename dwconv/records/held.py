"""Held: the records of log files. Each line is checked while its file is read; its record is made on first use.

A process needs few of the records that it reads: those of its own layers. A record takes several times the memory of
its line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from dwconv.errors import LogError, one_line
from dwconv.records.line import RecordLine, WorkloadLine, read_checked
from dwconv.records.log import Damage, TuningLog
from dwconv.records.record import Status, TuningRecord

RecordsByKey = Mapping[tuple[str, str], Sequence[TuningRecord]]
"""The records of one file, by device and ``Workload.batchless_key``, in the order of the lines."""
_MOST_KEPT = 1024
"""A decision reads the same records several times: this many at most are kept once they were made."""
_LISTS_KEPT = 4


class HeldRecords(Sequence[TuningRecord]):
    """The records of one log of one workload at any batch size on one device, in the order of their lines."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: list[bytes] = []

    def add(self, line: bytes) -> None:
        self._lines.append(line)

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[TuningRecord]:
        return iter(_kept(self, len(self))) if len(self) <= _MOST_KEPT else map(_made, self._lines)

    def __getitem__(self, index: Any) -> Any:
        found = self._lines[index]
        return _made(found) if isinstance(found, bytes) else [_made(line) for line in found]

    def promising(self) -> Iterator[TuningRecord]:
        """All that may have the best rank of one workload and one kind of arithmetic: those that worked; if there are
        confirmed ones, only those. Few records are made to find them."""
        found: dict[tuple[int, str | None], tuple[list[bytes], list[bytes]]] = {}
        for line in self._lines:
            read = read_checked(line)
            if read.status is Status.OK:
                key = (read.workload.batch, read.versions.get("math"))
                found.setdefault(key, ([], []))[not read.confirmed].append(line)
        for confirmed, others in found.values():
            yield from map(_made, confirmed or others)


def _made(line: bytes) -> TuningRecord:
    return read_checked(line).to_record()


@lru_cache(maxsize=_LISTS_KEPT)
def _kept(records: HeldRecords, count: int) -> list[TuningRecord]:
    return list(records[:])


class HeldLog(dict[tuple[str, str], HeldRecords]):
    """The records of one log, by device and ``Workload.batchless_key``."""

    def __init__(self) -> None:
        super().__init__()
        self._by_workload: dict[tuple[str, WorkloadLine], HeldRecords] = {}

    def add(self, line: bytes, read: RecordLine) -> None:
        """Add the record that a line holds, as it was ``read``."""
        key = (read.device, read.workload)
        records = self._by_workload.get(key)
        if records is None:
            at_any_batch = (read.device, read.workload.to_workload().batchless_key)
            records = self._by_workload[key] = self.setdefault(at_any_batch, HeldRecords())
        records.add(line)


def files_of(paths: Iterable[Path], problems: list[str]) -> Iterator[Path]:
    """Every log; adds one line to ``problems`` for every path that cannot be opened."""
    for path in paths:
        try:
            listed = sorted(path.iterdir()) if path.is_dir() else [path]
            yield from [file for file in listed if (file == path or file.suffix == ".jsonl") and file.exists()]
        except OSError as error:
            problems.append(one_line(f"log={path} cannot be read: {error.strerror}; name another with --log"))


def read_file(path: Path, problems: list[str]) -> HeldLog | None:
    """The records of a log; None if it cannot be read. Adds one line to ``problems`` if something cannot be read."""
    held, damage = HeldLog(), Damage()
    try:
        for line, read in TuningLog(path).readable_lines(damage=damage):
            held.add(line, read)
    except LogError as error:
        problems.append(one_line(str(error)))
        return None
    if damage.damages:
        first = damage.damages[0]
        lines = "line" if damage.damaged == 1 else "lines"
        said = f"{damage.damaged} damaged {lines} set aside; line {first.line}: {first.reason}"
        problems.append(one_line(f"log={path}: {said}; the rest counts, and python -m dwconv.merge leaves them out"))
    return held
