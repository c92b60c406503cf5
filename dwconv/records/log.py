"""TuningLog: records on disk, one JSON object a line.

An appended record is on disk when ``append`` returns, and stays readable whatever happens afterwards: a killed
process, a full disk, a second writer, a torn last line. A log is data, never code: integers, numbers and names,
checked while they are read. Lines that cannot be read are set aside and counted; they never stop a reader.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dwconv import settings
from dwconv.errors import LogError, one_line, say
from dwconv.problems.target import Target
from dwconv.records.line import LEAST_BYTES, RecordLine, checked, encode
from dwconv.records.line_file import MOST_BYTES, MOST_LINE_BYTES, is_cut_off, lines, no_file, open_file
from dwconv.records.record import TuningRecord
from dwconv.system import forks
from dwconv.system.new_file import check_name, no_folder, sync_folder

try:
    import fcntl
except ModuleNotFoundError:  # Windows: one write of one whole line has to do there
    fcntl = None  # type: ignore[assignment]

MOST_DAMAGES = 5
"""How many damaged lines of a log are described; the others are only counted."""
_SILENT_S = 1.0
"""A writer that waits for another one reports it after this time."""
_LOOK_EVERY_S = 0.005


@dataclass(frozen=True)
class DamagedLine:
    """A line that was set aside: its number, counted from 1, and why."""

    line: int
    reason: str


@dataclass(kw_only=True)
class Damage:
    """The lines of a log that could not be read."""

    damaged: int = 0
    damages: list[DamagedLine] = field(default_factory=list)
    """The first ``MOST_DAMAGES`` of them."""

    def set_aside(self, line: int, reason: str) -> None:
        self.damaged += 1
        if len(self.damages) < MOST_DAMAGES:
            self.damages.append(DamagedLine(line, reason))


@dataclass(kw_only=True)
class LoadedLog(Damage):
    """The content of a log: records in the order they were written, and the lines that could not be read."""

    records: list[TuningRecord] = field(default_factory=list)


class RecordWriter(Protocol):
    """What a search writes its records to."""

    def locked(self) -> AbstractContextManager[object]:
        """Inside the block ``append`` does not wait for others."""
        ...

    def append(self, record: TuningRecord) -> None: ...


class TuningLog:
    """A tuning log at ``path``. Raises LogError if that is a folder or cannot be opened."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._turn = forks.Lock(threading.RLock)
        """Of this process's threads: one at a time has the file."""
        self.followers: list[Callable[[TuningRecord], None]] = []
        """Called with every record that is appended here."""
        self._held: forks.Descriptor | None = None
        self._has_said_that_it_waits = False
        try:
            check_name(path)
            is_folder = self.path.is_dir()
        except OSError as error:
            raise self._refused("cannot be read", error) from None
        if is_folder:
            raise LogError(f"log={self.path} is a folder; name a file in it, such as {self.path / 'cpu.jsonl'}")

    def check_writable(self) -> None:
        """Make the folder and an empty file if they are missing. Raises LogError if that fails."""
        with self.locked():
            pass

    def append(self, record: TuningRecord) -> None:
        """Write one record and wait until it is on disk. Raises LogError, with nothing written, if it cannot be."""
        self.append_line(encode(record))
        for tell in self.followers:
            tell(record)

    def append_line(self, line: bytes) -> None:
        """Append a line of any sort, given without its line break. Raises what ``append`` raises."""
        line += b"\n"
        with self.locked() as file:
            regular = stat.S_ISREG(os.fstat(file).st_mode)
            size = os.fstat(file).st_size if regular else 0
            if size and os.pread(file, 1, size - 1) != b"\n":
                line = b"\n" + line  # a writer before us was torn off: its half line must not swallow ours
            if size + len(line) > MOST_BYTES:
                raise LogError(
                    f"log={self.path} is full: no more than {_in_mib(MOST_BYTES)} are read; use --log elsewhere"
                )
            try:
                written = os.write(file, line)
                if written != len(line):
                    raise LogError(f"log={self.path}: no space for a record; free some, or use --log elsewhere")
                if regular:
                    os.fsync(file)
            except (OSError, LogError) as error:
                if regular:
                    with contextlib.suppress(OSError):
                        os.ftruncate(file, size)  # the lock is held: nothing was written since
                if isinstance(error, LogError):
                    raise
                raise self._refused("cannot be written", error) from None

    def load(self) -> LoadedLog:
        """Everything readable; an empty result if there is no file. Raises LogError if it cannot be opened, or is not a
        file."""
        loaded = LoadedLog()
        loaded.records = [read.to_record() for _, read in self.readable_lines(damage=loaded)]
        return loaded

    def readable_lines(self, *, damage: Damage) -> Iterator[tuple[bytes, RecordLine]]:
        """The lines that hold a record, and what they hold; ``damage`` counts the others. Raises LogError if there is a
        file that cannot be opened, or something else in its place.

        Whatever the file holds, this ends, and takes little memory itself: a line of more than ``MOST_LINE_BYTES`` is
        set aside unread, and so is what comes after ``MOST_BYTES``."""
        try:
            with open_file(self.path) as file:
                number = 0
                for number, line in enumerate(lines(file), start=1):
                    if line is None:
                        damage.set_aside(number, f"longer than {_in_mib(MOST_LINE_BYTES)}, no tuning record")
                    elif len(line) < LEAST_BYTES and len(damage.damages) == MOST_DAMAGES:
                        damage.damaged += not line.isspace()  # at once: a file may have millions of them
                    elif not line.isspace():
                        try:
                            read = checked(line)
                        except LogError as error:
                            damage.set_aside(number, str(error))
                        else:
                            yield line, read
                if is_cut_off(file):
                    damage.set_aside(number + 1, f"what comes after {_in_mib(MOST_BYTES)} is not read")
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._refused("cannot be read", error) from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """The file, open for appending and locked against other writers. Waits for them if need be, and reports it
        once; inside the block ``append`` does not wait. Raises LogError."""
        with self._turn:
            if self._held is not None and self._held.is_open:
                yield self._held.number
                return
            file = forks.Descriptor(self._opened())
            try:
                self._lock(file.number)
                while not self._is_current(file.number):  # while we waited, another file took its name
                    file.close()
                    file = forks.Descriptor(self._opened())
                    self._lock(file.number)
                self._held = file
                yield file.number
            finally:
                self._held = None
                self._unlock(file)
                file.close()

    def _opened(self) -> int:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            is_new = not self.path.exists()
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o666)
            if fcntl is not None and file <= 2:  # a standard stream is closed: what is printed would go to the log
                low, file = file, fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 3)
                os.close(low)
        except FileExistsError as error:
            raise self._refused("cannot be written", no_folder(Path(error.filename))) from None
        except OSError as error:
            raise self._refused("cannot be written", error) from None
        mode = os.fstat(file).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):
            os.close(file)
            raise no_file(self.path, mode)
        if is_new:
            sync_folder(self.path.parent)
        return file

    def _lock(self, file: int) -> None:
        if fcntl is None:
            return
        silent_until_s = time.monotonic() + _SILENT_S
        with contextlib.suppress(OSError):  # a file system without locks: appending is still one write
            while time.monotonic() < silent_until_s:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    time.sleep(_LOOK_EVERY_S)
            self._say_that_it_waits()
            fcntl.flock(file, fcntl.LOCK_EX)

    def _unlock(self, file: forks.Descriptor) -> None:
        """A child that was just being forked may hold the file open."""
        if fcntl is not None and file.is_open:
            with contextlib.suppress(OSError):
                fcntl.flock(file.number, fcntl.LOCK_UN)

    def _say_that_it_waits(self) -> None:
        if not self._has_said_that_it_waits:
            self._has_said_that_it_waits = True
            what = (
                f"note: log={self.path} is locked by another process; waiting for it (end that, or use --log elsewhere)"
            )
            say(one_line(what))

    def _is_current(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), self.path.stat())
        except OSError:
            return False

    def _refused(self, what: str, error: OSError) -> LogError:
        return LogError(one_line(f"log={self.path} {what}: {error.strerror}; name another file with --log"))


def log_path(target: Target) -> Path:
    """Where records of ``target`` are written unless ``--log`` names another file: ``<device>.jsonl`` in the folder, or
    the file, that the settings name."""
    path = settings.written_log_path()
    return path if path.suffix == ".jsonl" else path / f"{target.device}.jsonl"


def _in_mib(size: int) -> str:
    return f"{size // 2**20} MiB"
