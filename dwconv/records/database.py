"""Database: the records of many logs, and the fastest candidate by them.

It only reads. A file that cannot be read is noted among ``problems`` and left out: training goes on without it.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dwconv import settings
from dwconv.errors import one_line
from dwconv.problems.workload import Pass, Sizes, Workload
from dwconv.records import shared
from dwconv.records.held import HeldLog, HeldRecords, RecordsByKey, files_of, read_file
from dwconv.records.line import checked, encode
from dwconv.records.record import Rank, Status, TuningRecord
from dwconv.system.forks import cached_property
from dwconv.system.remote_files import shown

IsCurrent = Callable[[TuningRecord], bool]
"""Was a record made with what is installed here? See ``is_current``."""
_Bests = dict[tuple[Workload, bool], TuningRecord]
"""By workload and kind of arithmetic."""
_Candidate = tuple[int, str, frozenset[tuple[str, int | str]]]
"""A candidate of a workload at any batch size: the batch size it was measured at, what it is built for, and its
configuration."""


def _every(record: TuningRecord) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class Database:
    """The records of several places. If several have records of a workload, the first place goes before the next."""

    places: list[list[RecordsByKey]]
    """The files of every place."""
    logs: list[Path]
    problems: list[str]
    """One line for every file with damaged lines, and for every file that could not be read."""
    own: int = 1
    """How many of the first places count as measured here: the user's own log, and what the team shares."""

    @classmethod
    def load(cls, *places: Iterable[Path]) -> Database:
        """Read files and folders (every ``*.jsonl`` in them), each file once. A missing file or folder holds nothing.
        All logs of one place have the same weight."""
        read: list[list[RecordsByKey]] = []
        seen: set[str] = set()
        logs: list[Path] = []
        problems: list[str] = []
        for paths in places:
            files: list[RecordsByKey] = []
            for path in files_of(paths, problems):
                if (real := os.path.realpath(path)) in seen:
                    continue
                seen.add(real)
                if (records := read_file(path, problems)) is not None:
                    logs.append(path)
                    files.append(records)
            read.append(files)
        return cls(places=read, logs=logs, problems=problems)

    @classmethod
    def behind_log(cls, log: Path, *, alone: bool) -> Database:
        """The records in ``log``, which may be missing; and, unless it is ``alone``, those that the team shares, as
        they are now, and those in the usual places behind them."""
        if alone:
            return cls.load([log])
        return cls._with_shared([log], settings.tuning_log_paths(), age_s=0, retry_s=0)

    @property
    def of_own_places(self) -> Database:
        """The records of the places that count as measured here alone."""
        return Database(places=self.places[: self.own], logs=self.logs, problems=self.problems, own=self.own)

    @classmethod
    def usual(cls, log: Path | None = None) -> Database:
        """The records in ``log``, or by default those in the places that the settings name. There, the user's own
        measurements go before those of the team, and these before the records that ship, which were taken on another
        machine of the same name."""
        if log:
            return cls.load([log])
        paths = settings.tuning_log_paths()
        age_s, retry_s = settings.SHARED_AGE_S, settings.SHARED_RETRY_S
        return cls._with_shared(paths[:1], paths[1:], age_s=age_s, retry_s=retry_s)

    @classmethod
    def _with_shared(cls, own: Sequence[Path], others: Sequence[Path], *, age_s: float, retry_s: float) -> Database:
        url = settings.shared_records()
        if url is None:
            return cls.load(own, *([path] for path in others))
        copy = shared.copy_of(url, age_s=age_s, retry_s=retry_s, limit_s=settings.SHARED_READ_TIMEOUT_S)
        database = cls.load(own, [copy.folder], *([path] for path in others))
        if copy.problem:
            text = f"shared records {shown(url)} cannot be read: {copy.problem}"
            database.problems.append(one_line(f"{text}; the last copy, and the logs of this machine, count"))
        return dataclasses.replace(database, own=2)

    @classmethod
    def of(cls, records: Iterable[TuningRecord]) -> Database:
        """These records, as if one log had them."""
        database = cls.load([])
        for record in records:
            database.add(record)
        return database

    def behind(self, records: Iterable[TuningRecord], logs: Iterable[Path]) -> Database:
        """This database, behind a place with ``records``, which came from ``logs``."""
        places = [[_by_key(records)], *self.places]
        return Database(places=places, logs=[*logs, *self.logs], problems=self.problems, own=self.own + 1)

    def __iter__(self) -> Iterator[TuningRecord]:
        return (record for _, records in self._groups() for record in records)

    def records(self, workload: Workload, device: str) -> list[TuningRecord]:
        """All records of exactly this workload, batch size included, on ``device``, failures too: place by place and
        file by file, in the order of the lines."""
        return [record for record in self.at_any_batch(workload, device) if record.workload == workload]

    def at_any_batch(self, workload: Workload, device: str) -> list[TuningRecord]:
        """All records of this workload at any batch size on ``device``, failures too: place by place and file by file,
        in the order of the lines."""
        key = (device, workload.batchless_key)
        return [record for place in self.places for file in place for record in file.get(key, ())]

    def bests_of_kind(self, workload: Workload) -> list[TuningRecord]:
        """The record of the best ``rank`` of each workload of the same pass, layout and type, of whatever sizes,
        versions and device; one for each kind of arithmetic. Of equals it is the first; failures are left out. Only the
        first call costs time."""
        kind = kind_of(workload.batchless_key)
        if kind not in self._bests:
            bests: _Bests = {}
            for (_, key), records in self._groups():
                for record in _promising(records) if kind_of(key) == kind else ():
                    _note_best(bests, record)
            self._bests[kind] = bests
        return list(self._bests[kind].values())

    @cached_property
    def _bests(self) -> dict[tuple[str, ...], _Bests]:
        return {}

    def add(self, record: TuningRecord) -> None:
        """Count a record that was appended to the first log of the first place."""
        first = self.places[0]
        if not first:
            first.append(HeldLog())
        assert isinstance(first[0], HeldLog), "the first place was read from a log"
        line = encode(record)
        first[0].add(line, checked(line))
        for index in ("_layers", "_passes", "fastest_at_any_size"):
            self.__dict__.pop(index, None)
        bests = self._bests.get(kind_of(record.workload.batchless_key))
        if record.status is Status.OK and bests is not None:
            _note_best(bests, record)

    def other_sizes(self, workload: Workload, device: str) -> list[Workload]:
        """The layer of ``workload`` at each other input size of which there are records on ``device``, at the batch
        size of ``workload``. Only the first call costs time."""
        own = workload.batchless_key
        return [each for each in self.at_sizes(workload, device) if each.batchless_key != own]

    def at_sizes(self, workload: Workload, device: str) -> list[Workload]:
        """The layer at each input size of which there are records, its own among them."""
        known = self._layers.get(workload.layer, {}).get(device, {})
        return [records[0].workload.with_batch(workload.batch) for records in known.values()]

    def sizes_of(self, workload: Workload) -> set[Sizes]:
        """Every input size of the layer of which there are records on some device, of kernels of any size too."""
        layers = workload.layer, f"{workload.layer}-any"
        return {size_of(key) for each in layers for known in self._layers.get(each, {}).values() for key in known}

    def devices(self, workload: Workload) -> list[str]:
        """Devices with records of this workload at any batch size, of kernels of any size too."""
        return sorted({device for key in _keys(workload) for device in self._devices_of(key)})

    def devices_of_layer(self, workload: Workload) -> list[str]:
        """Devices with records of its layer at any size, of the same kind of kernels."""
        return sorted(self._layers.get(workload.layer, {}))

    def knows(self, pass_: Pass) -> bool:
        """True if there are records of that pass, of any workload and device."""
        return pass_ in self._passes

    @cached_property
    def _passes(self) -> set[str]:
        return {key.partition("-")[0] for (_, key), _ in self._groups()}

    def _devices_of(self, key: str) -> list[str]:
        return [device for device, known in self._layers.get(layer_of(key), {}).items() if key in known]

    @cached_property
    def _layers(self) -> dict[str, dict[str, dict[str, Sequence[TuningRecord]]]]:
        """The first file's records by layer, device and ``Workload.batchless_key``. Making it takes long."""
        layers: dict[str, dict[str, dict[str, Sequence[TuningRecord]]]] = defaultdict(lambda: defaultdict(dict))
        for (device, key), records in self._groups():
            layers[layer_of(key)][device].setdefault(key, records)
        return {layer: dict(devices) for layer, devices in layers.items()}

    @cached_property
    def fastest_at_any_size(self) -> dict[tuple[str, bool, str, bool], Any]:
        """What ``knowledge.at_any_size`` has found; empty again when a record is added."""
        return {}

    def _groups(self) -> Iterator[tuple[tuple[str, str], Sequence[TuningRecord]]]:
        return (found for place in self.places for file in place for found in file.items())

    def best(self, workload: Workload, device: str) -> TuningRecord | None:
        """The fastest measured candidate for ``workload`` on ``device``; None if there is none."""
        return next(iter(self.ranked(workload, device)), None)

    def ranked(self, workload: Workload, device: str, *, is_current: IsCurrent = _every) -> list[TuningRecord]:
        """Measured candidates that worked, best first, at the measured batch size nearest to the workload's."""
        return next(iter(self.ranked_by_batch(workload, device, is_current=is_current)), [])

    def ranked_by_batch(
        self, workload: Workload, device: str, *, is_current: IsCurrent = _every, fast_math: bool = False
    ) -> list[list[TuningRecord]]:
        """Measured candidates that worked, a list for each measured batch size, beginning with the size nearest to the
        workload's. Each list has the best first: current candidates before others, then confirmed ones before others,
        and among those an earlier place before a later one.

        A record that is not current does not count beside a current one of the same candidate. Otherwise, if a file has
        several records of one candidate, its last line counts, whatever the time stamps, so a candidate that failed
        when it was measured again is out. If files of one place disagree, a candidate that failed in one of them is
        out; otherwise a confirmed record goes before an unconfirmed one, and a slower before a faster one. The first
        place that has the candidate decides. Three kinds of records never count: computed ones, those of kernels with
        other arithmetic than ``fast_math``, and contended times. Kernels of any size that were measured at this size
        alone are among the candidates of one. Whether a configuration is still legal is not checked here.
        """
        words = self._last_words(workload, device, is_current=is_current, fast_math=fast_math)
        by_batch: dict[int, list[_Word]] = defaultdict(list)
        for word in words.values():
            if word.record.status is Status.OK:
                by_batch[word.record.workload.batch].append(word)
        nearest = sorted(by_batch, key=lambda measured: (abs(math.log(measured / workload.batch)), -measured))
        return [[word.record for word in sorted(by_batch[batch], key=lambda word: word.order)] for batch in nearest]

    def failed(
        self, workload: Workload, device: str, *, is_current: IsCurrent = _every, fast_math: bool = False
    ) -> list[TuningRecord]:
        """The records of candidates, at any batch size, that failed when they were tried last."""
        words = self._last_words(workload, device, is_current=is_current, fast_math=fast_math)
        failures = [word.record for word in words.values() if word.record.status is not Status.OK]
        return [record for record in failures if record.workload.any_size == workload.any_size]

    def _last_words(
        self, workload: Workload, device: str, *, is_current: IsCurrent, fast_math: bool
    ) -> dict[_Candidate, _Word]:
        """The record of each candidate that counts, see ``ranked_by_batch``."""
        words: dict[_Candidate, _Word] = {}
        for number, place in reversed(list(enumerate(self.places))):  # the first has the last word
            for key in _keys(workload):
                said = _words(place, (device, key), place=number, is_current=is_current, fast_math=fast_math)
                for candidate, word in said.items():
                    if candidate not in words or word.current >= words[candidate].current:
                        words[candidate] = word
        if not workload.any_size:
            return {each: word for each, word in words.items() if not word.record.workload.also_at}
        return words


@dataclass(frozen=True, kw_only=True, slots=True)
class _Word:
    """The record of a candidate that counts among several."""

    record: TuningRecord
    current: bool
    place: int

    @property
    def weight(self) -> tuple[bool, bool, bool, tuple[bool, float]]:
        """If two files disagree about a candidate, the heavier word counts."""
        record = self.record
        return self.current, record.status is not Status.OK, record.confirmed, record.slowness

    @property
    def order(self) -> tuple[bool, bool, int, Rank]:
        """Orders the candidates of one batch size, the best first."""
        return not self.current, not self.record.confirmed, self.place, self.record.rank


def _note_best(bests: _Bests, record: TuningRecord) -> None:
    best = bests.setdefault((record.workload, record.fast_math), record)
    if record.rank < best.rank:
        bests[record.workload, record.fast_math] = record


def _keys(workload: Workload) -> tuple[str, ...]:
    """``Workload.batchless_key`` of the kernels that are built for its size, and of those that take any."""
    own = workload.batchless_key
    return (own,) if workload.any_size else (own, f"{own}-any")


def _by_key(records: Iterable[TuningRecord]) -> RecordsByKey:
    by_key: dict[tuple[str, str], list[TuningRecord]] = defaultdict(list)
    for record in records:
        by_key[record.device, record.workload.batchless_key].append(record)
    return dict(by_key)


def _promising(records: Sequence[TuningRecord]) -> Iterable[TuningRecord]:
    if isinstance(records, HeldRecords):
        return records.promising()
    return (record for record in records if record.status is Status.OK)


def _words(
    files: list[RecordsByKey], key: tuple[str, str], *, place: int, is_current: IsCurrent, fast_math: bool
) -> dict[_Candidate, _Word]:
    """The record of each candidate that counts among those of one place."""
    words: dict[_Candidate, _Word] = {}
    for file in files:
        last: dict[_Candidate, _Word] = {}
        for record in file.get(key, ()):
            if record.fast_math != fast_math or (
                record.status is Status.OK and (not record.measured or record.inconclusive)
            ):
                continue
            built_for = f"{record.workload.any_size} {record.workload.also_at}"
            candidate = (record.workload.batch, built_for, frozenset(record.config.to_dict().items()))
            word = _Word(record=record, current=is_current(record), place=place)
            if candidate not in last or word.current >= last[candidate].current:
                last[candidate] = word
        for candidate, word in last.items():
            words[candidate] = max(words.get(candidate, word), word, key=lambda each: each.weight)
    return words


# -- what a key says, without a workload made of it ------------------------------------------------------------------


def layer_of(batchless_key: str) -> str:
    """``Workload.layer`` of workloads, by their ``batchless_key``."""
    pass_, channels, _, sizeless = batchless_key.split("-", 3)
    return f"{pass_}-{channels}-{sizeless}"


def size_of(batchless_key: str) -> Sizes:
    """The input size of workloads, by their ``batchless_key``."""
    return tuple(map(int, batchless_key.split("-", 3)[2].split("x")))


def kind_of(batchless_key: str) -> tuple[str, ...]:
    """The pass, type and layout of workloads, by their ``batchless_key``: what a bias and an epilogue do not change."""
    pass_, *_, dtype, layout = batchless_key.split("-")[:_PARTS_OF_KEY]
    return pass_, dtype, layout


_PARTS_OF_KEY = 10
"""Parts of a ``batchless_key`` up to the layout; the others are what is done besides the convolution."""
