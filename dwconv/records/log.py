"""TuningLog: records on disk, one JSON object a line.

An appended record is on disk when ``append`` returns, and stays readable whatever happens afterwards: a killed
process, a full disk, a second writer, a torn last line. A log is data, never code: integers, numbers and names,
checked while they are read. What cannot be read is set aside and counted, and never stops a reader.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from dwconv import settings
from dwconv.errors import InvalidWorkload, LogError
from dwconv.records.record import Measurement, Status, TuningRecord, Verdict
from dwconv.schedules.space import Config
from dwconv.target import Target
from dwconv.workload import DType, Layout, Pass, Workload

try:
    import fcntl
except ModuleNotFoundError:  # Windows: one write of one whole line has to do there
    fcntl = None  # type: ignore[assignment]

FORMAT = 1
"""Version of a line. A reader sets aside lines of versions that it does not know."""


@dataclass(frozen=True)
class DamagedLine:
    """A line that was set aside: its number, counted from 1, and why."""

    line: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class LoadedLog:
    """What a log holds: records in the order they were written, and the lines that could not be read."""

    records: list[TuningRecord]
    damages: list[DamagedLine]

    @property
    def damaged(self) -> list[int]:
        """Numbers of the lines that were set aside."""
        return [damage.line for damage in self.damages]


class TuningLog:
    """A tuning log at ``path``. Raises LogError if that is a folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise LogError(f"log={self.path} is a folder; name a file in it, such as {self.path / 'cpu.jsonl'}")

    def check_writable(self) -> None:
        """Make the folder and the (empty) file where they are missing. Raises LogError where that is refused."""
        with self._opened():
            pass

    def append(self, record: TuningRecord) -> None:
        """Write one record and wait until it is on disk. Raises LogError, with nothing written, if it cannot be."""
        line = encode(record) + b"\n"
        decode(line)  # what could not be read again is refused now, not lost later
        with self._opened() as file:
            regular = stat.S_ISREG(os.fstat(file).st_mode)
            size = os.fstat(file).st_size if regular else 0
            if size and os.pread(file, 1, size - 1) != b"\n":
                line = b"\n" + line  # a writer before us was torn off: its half line must not swallow ours
            try:
                written = os.write(file, line)
                if written != len(line):
                    raise LogError(f"log={self.path}: no space for a record; free some, or use --log elsewhere")
                if regular:
                    os.fsync(file)
            except (OSError, LogError) as error:
                if regular:
                    with contextlib.suppress(OSError):
                        os.ftruncate(file, size)  # we hold the lock: nobody has written after us
                if isinstance(error, LogError):
                    raise
                raise self._refused("cannot be written", error) from error

    def load(self) -> LoadedLog:
        """Everything readable; an empty result if there is no file. Raises LogError if it cannot be opened."""
        records: list[TuningRecord] = []
        damages: list[DamagedLine] = []
        try:
            with self.path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    if not line.strip():
                        continue
                    try:
                        records.append(decode(line))
                    except LogError as error:
                        damages.append(DamagedLine(number, str(error)))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._refused("cannot be read", error) from error
        return LoadedLog(records=records, damages=damages)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """The file, open for appending and locked against other writers."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            is_new = not self.path.exists()
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o666)
        except OSError as error:
            raise self._refused("cannot be written", error) from error
        try:
            if fcntl is not None:
                with contextlib.suppress(OSError):  # a file system without locks: appending is still one write
                    fcntl.flock(file, fcntl.LOCK_EX)
            if is_new:
                _sync_folder(self.path.parent)
            yield file
        finally:
            os.close(file)  # and with it the lock

    def _refused(self, what: str, error: OSError) -> LogError:
        return LogError(f"log={self.path} {what}: {error.strerror}; name another file with --log")


def log_path(target: Target) -> Path:
    """Where records of ``target`` are written unless ``--log`` says otherwise: ``<device>.jsonl`` in the folder, or the
    file, that the settings name."""
    path = settings.written_log_path()
    return path if path.suffix == ".jsonl" else path / f"{target.device}.jsonl"


def encode(record: TuningRecord) -> bytes:
    """``record`` as one line of JSON, without the line break."""
    return msgspec.json.encode(
        {
            "format": FORMAT,
            "workload": record.workload.to_dict(),
            "config": record.config.to_dict(),
            **{
                field.name: getattr(record, field.name)
                for field in dataclasses.fields(record)
                if field.name not in ("workload", "config", "detail")
            },
            "detail": record.detail.encode("utf-8", "replace").decode(),  # a compiler may quote bytes that are no text
        }
    )


def decode(line: bytes) -> TuningRecord:
    """The record in one line. Raises LogError, saying what is wrong, for anything else."""
    try:
        version = _version_decoder.decode(line).format
        if version != FORMAT:
            raise LogError(f"format {version} is not known to this version of dwconv, which reads {FORMAT}")
        return _line_decoder.decode(line).to_record()
    except (msgspec.MsgspecError, InvalidWorkload, UnicodeDecodeError, RecursionError) as error:
        raise LogError(f"not a tuning record: {error}") from error


# -- the line ------------------------------------------------------------------------------------------------------

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
_Microseconds = Annotated[float, msgspec.Meta(ge=0, lt=1e18)]
_Size = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
_Pad = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class _WorkloadLine(msgspec.Struct, forbid_unknown_fields=True, rename={"pass_": "pass"}):
    """Unknown fields are refused: a problem with more to it than we know is another problem."""

    pass_: Pass
    batch: _Size
    channels: _Size
    input_size: tuple[_Size, _Size]
    kernel: tuple[_Size, _Size]
    multiplier: _Size
    stride: tuple[_Size, _Size]
    padding: tuple[tuple[_Pad, _Pad], tuple[_Pad, _Pad]]
    dilation: tuple[_Size, _Size]
    dtype: DType
    layout: Layout
    bias: bool = False


class _MeasurementLine(msgspec.Struct):
    median_us: Annotated[float, msgspec.Meta(gt=0, lt=1e18)]
    spread_us: _Microseconds
    rounds: _Count
    predicted: bool = False

    def to_measurement(self) -> Measurement:
        return Measurement(**msgspec.structs.asdict(self))


class _VerdictLine(msgspec.Struct):
    right: bool
    max_error: float | None
    allowed_error: float | None
    reason: str = ""

    def to_verdict(self) -> Verdict:
        return Verdict(
            right=self.right,
            max_error=math.inf if self.max_error is None else self.max_error,  # JSON has no infinity
            allowed_error=math.inf if self.allowed_error is None else self.allowed_error,
            reason=self.reason,
        )


class _RecordLine(msgspec.Struct):
    """Unknown fields beside these are ignored: later versions may tell more about a measurement."""

    format: Literal[1]
    workload: _WorkloadLine
    config: dict[str, int | str]
    device: str
    status: Status
    measurement: _MeasurementLine | None = None
    confirmed: bool = False
    verdict: _VerdictLine | None = None
    providers: dict[str, _MeasurementLine] = {}
    resources: dict[str, int] = {}
    detail: str = ""
    versions: dict[str, str] = {}
    created: str = ""

    def to_record(self) -> TuningRecord:
        knobs = dict(self.config)
        template = knobs.pop("template", None)
        if not isinstance(template, str):
            raise msgspec.ValidationError("config names no template")
        return TuningRecord(
            workload=Workload(**msgspec.structs.asdict(self.workload)),
            config=Config.of(template, **knobs),
            device=self.device,
            status=self.status,
            measurement=self.measurement.to_measurement() if self.measurement else None,
            confirmed=self.confirmed,
            verdict=self.verdict.to_verdict() if self.verdict else None,
            providers={name: measured.to_measurement() for name, measured in self.providers.items()},
            resources=self.resources,
            detail=self.detail,
            versions=self.versions,
            created=self.created,
        )


class _VersionLine(msgspec.Struct):
    format: int


_version_decoder = msgspec.json.Decoder(_VersionLine)
_line_decoder = msgspec.json.Decoder(_RecordLine)


def _sync_folder(folder: Path) -> None:
    """Make a new file's name survive a power cut too; not every file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
