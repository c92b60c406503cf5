"""Held: the records of a log in little memory. Each is checked while the log is read, and made on first use.

A process needs few of the records that it reads: those of its own layers. The others stay packed, in less than half of
the bytes that their lines take, where records would take several times as many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, overload

import msgspec

from dwconv.records.line import FEW, AtSizeLine, MeasurementLine, RecordLine, VerdictLine, WorkloadLine, checked
from dwconv.records.record import Status, TuningRecord

_MOST_KEPT = 1024
"""A decision reads the same records several times: this many at most are kept once they were made."""
_LISTS_KEPT = 4


class HeldRecords(Sequence[TuningRecord]):
    """The records of one log of one workload at any batch size on one device, in the order of their lines."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: list[bytes] = []

    def add(self, line: RecordLine) -> None:
        """Add the record of a line that was checked."""
        self._rows.append(_packed(line))

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[TuningRecord]:
        return iter(_kept(self, len(self))) if len(self) <= _MOST_KEPT else self._made()

    def _made(self) -> Iterator[TuningRecord]:
        return (_unpacked(row).to_record() for row in self._rows)

    def promising(self) -> Iterator[TuningRecord]:
        """All that may have the best rank of one workload and one kind of arithmetic: those that worked; if there are
        confirmed ones, only those. Few records are made to find them."""
        found: dict[tuple[int, str | None], tuple[list[bytes], list[bytes]]] = {}
        for row in self._rows:
            read = _unpacked(row)
            if read.status is Status.OK:
                key = (read.workload.batch, read.versions.get("math"))
                found.setdefault(key, ([], []))[not read.confirmed].append(row)
        for confirmed, others in found.values():
            yield from (_unpacked(row).to_record() for row in confirmed or others)

    @overload
    def __getitem__(self, index: int) -> TuningRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[TuningRecord]: ...
    def __getitem__(self, index: int | slice) -> TuningRecord | list[TuningRecord]:
        if isinstance(index, slice):
            return [_unpacked(row).to_record() for row in self._rows[index]]
        return _unpacked(self._rows[index]).to_record()


@lru_cache(maxsize=_LISTS_KEPT)
def _kept(records: HeldRecords, count: int) -> list[TuningRecord]:
    return list(records._made())


class HeldLog(dict[tuple[str, str], HeldRecords]):
    """The records of one log, by device and ``Workload.batchless_key``."""

    def __init__(self) -> None:
        super().__init__()
        self._by_workload: dict[tuple[str, WorkloadLine], HeldRecords] = {}

    def add(self, line: bytes) -> None:
        """Add the record in a line. Raises LogError, saying what is wrong, if there is none."""
        read = checked(line)
        key = (read.device, read.workload)
        records = self._by_workload.get(key)
        if records is None:
            at_any_batch = (read.device, read.workload.to_workload().batchless_key)
            records = self._by_workload[key] = self.setdefault(at_any_batch, HeldRecords())
        records.add(read)


# -- packed ----------------------------------------------------------------------------------------------------------


class _Workload(WorkloadLine, frozen=True, array_like=True):
    pass


class _Measurement(MeasurementLine, array_like=True):
    pass


class _AtSize(AtSizeLine, array_like=True):
    measurement: _Measurement
    providers: Annotated[Mapping[str, _Measurement], FEW] = {}


class _Verdict(VerdictLine, array_like=True):
    pass


class _Row(RecordLine, array_like=True):
    """The same as in a line, without the names of the fields."""

    workload: _Workload
    measurement: _Measurement | None = None
    verdict: _Verdict | None = None
    providers: Annotated[Mapping[str, _Measurement], FEW] = {}
    others: Annotated[tuple[_AtSize, ...], FEW] = ()


_encode: Callable[[object], bytes] = msgspec.msgpack.Encoder().encode
_unpacked = msgspec.msgpack.Decoder(_Row).decode
_fields = msgspec.structs.astuple


def _packed(line: RecordLine) -> bytes:
    return _encode((
        line.format,
        _fields(line.workload),
        line.config,
        line.device,
        line.status,
        line.measurement and _fields(line.measurement),
        line.confirmed,
        line.raced,
        line.verdict and _fields(line.verdict),
        _of_providers(line.providers),
        line.resources,
        line.detail,
        line.versions,
        line.created,
        [(each.input_size, _fields(each.measurement), _of_providers(each.providers)) for each in line.others],
    ))  # fmt: skip


def _of_providers(providers: Mapping[str, MeasurementLine]) -> dict[str, tuple[object, ...]]:
    return {name: _fields(measured) for name, measured in providers.items()}
