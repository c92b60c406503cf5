"""Shared records: what a team has measured, at a URL that all of its machines reach.

    a run here       ─► <device>-<time>-<random>.jsonl ┐
    a run elsewhere  ─► <device>-<time>-<random>.jsonl ┼─► URL ─► a copy in the cache folder ─► a place of Database
    what was merged  ─► merged.jsonl                   ┘

Every run writes only an object of its own: two writers lose no line. Shared records are data, like every log, and the
same reader reads them line by line.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dwconv import settings
from dwconv.errors import LogError, NotKept, RemoteError
from dwconv.records.line import encode
from dwconv.records.line_file import MOST_BYTES
from dwconv.records.record import TuningRecord
from dwconv.system import forks, private_files
from dwconv.system.remote_files import Abandoned, Remote, RemoteFile, in_parallel, joined, shown, within

with contextlib.suppress(ModuleNotFoundError):  # Windows, where nothing private can be kept either
    import fcntl

_SUFFIX = ".jsonl"
_MOST_OBJECTS = 4096
_STATE = "state.json"
_LOOK_EVERY_S = 0.05


@dataclass(frozen=True, kw_only=True)
class Copy:
    """This machine's copy of the shared records."""

    folder: Path
    """A folder of logs; it may be missing."""
    problem: str
    """Why it may lack some; empty if it does not."""


def copy_of(url: str, *, age_s: float, retry_s: float, limit_s: float) -> Copy:
    """The copy of the records at ``url``. It is made new if it is older than ``age_s``, or, if they could not be read,
    after ``retry_s``; for that a process waits ``limit_s`` at most."""
    folder = settings.cache_folder() / "shared" / hashlib.sha256(os.fsencode(url)).hexdigest()[:32]
    deadline_s = time.monotonic() + limit_s
    try:
        with _turn(folder, deadline_s=deadline_s) as has_turn:
            state = _State.read(folder)
            passed_s = time.time() - state.tried_s
            due = not 0 <= passed_s < (retry_s if state.problem else age_s)
            if has_turn and due:
                state = _refreshed(url, folder, state, limit_s=max(0.1, deadline_s - time.monotonic()))
    except NotKept as error:
        return Copy(folder=folder, problem=f"no copy can be kept: {error}")
    return Copy(folder=folder, problem=state.problem)


def fetched(url: str) -> Path:
    """A folder with the logs at ``url`` as they are now. Raises LogError if one of them cannot be read."""
    copy = copy_of(url, age_s=0, retry_s=0, limit_s=settings.FETCH_TIMEOUT_S)
    if copy.problem:
        raise LogError(f"log={shown(url)} cannot be read: {copy.problem}; try again, or name another")
    if not any(copy.folder.glob(f"*{_SUFFIX}")):
        raise LogError(f"log={shown(url)} has no logs; name a folder with {_SUFFIX} files, or one of them")
    return copy.folder


# -- the copy ----------------------------------------------------------------------------------------------------------


class _State(msgspec.Struct):
    """The state of a copy."""

    tried_s: float = 0.0
    """When it was last made, or tried to be; seconds since 1970."""
    problem: str = ""
    """Why not all of it could be made."""
    versions: dict[str, str] = {}
    """Of the files of the copy, by name."""

    @classmethod
    def read(cls, folder: Path) -> _State:
        try:
            return msgspec.json.decode(private_files.read(folder / _STATE) or b"{}", type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return cls()


@contextlib.contextmanager
def _turn(folder: Path, *, deadline_s: float) -> Iterator[bool]:
    """False if another process makes the copy, and takes until the deadline. Raises NotKept."""
    lock = forks.Descriptor(private_files.open_lock(folder / "lock"))
    try:
        while not (is_locked := _is_locked(lock.number)) and time.monotonic() < deadline_s:
            time.sleep(_LOOK_EVERY_S)
        yield is_locked
    finally:
        lock.close()


def _is_locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks: two processes write the same files, each of them whole
    return True


def _refreshed(url: str, folder: Path, known: _State, *, limit_s: float) -> _State:
    """Fetch what is new, and remove what is gone. What has arrived when the time is up is kept. Raises NotKept."""
    state = _State(tried_s=time.time(), versions=dict(known.versions))
    arrived: list[tuple[str, str, bytes]] = []
    listed: set[str] = set()
    try:
        listed, state.problem = within(limit_s, lambda over: _fetch(Remote(url), folder, known, arrived, over))
    except RemoteError as error:
        state.problem = str(error)
    for name, version, content in list(arrived):  # after the time is up, more may come
        private_files.write(folder / name, content, durable=False)
        state.versions[name] = version
    for path in folder.glob(f"*{_SUFFIX}") if listed else ():  # a folder that is empty may not be mounted
        if path.name not in listed:
            path.unlink(missing_ok=True)
            state.versions.pop(path.name, None)
    private_files.write(folder / _STATE, msgspec.json.encode(state), durable=False)
    return state


def _fetch(
    remote: Remote, folder: Path, known: _State, arrived: list[tuple[str, str, bytes]], over: Abandoned
) -> tuple[set[str], str]:
    """The names of all objects, and what is wrong with some; empty if nothing is. What is new is put to ``arrived``."""
    remote.check_there()
    listed = {_local_name(file): file for file in remote.listed(suffix=_SUFFIX)}
    problems: list[str] = []
    if len(listed) > _MOST_OBJECTS:
        problems.append(f"there are {len(listed)} objects, and {_MOST_OBJECTS} are read: python -m dwconv.merge them")
        listed = dict(sorted(listed.items())[-_MOST_OBJECTS:])
    here = {
        name: (folder / name).stat().st_size
        for name, file in listed.items()
        if file.version and known.versions.get(name) == file.version and (folder / name).exists()
    }
    left_bytes = MOST_BYTES - sum(here.values())

    def fetch(name: str) -> None:
        nonlocal left_bytes
        try:
            content = remote.read(listed[name].path, most_bytes=max(0, left_bytes), abandoned=over)
        except FileNotFoundError:  # removed since it was listed
            return
        except RemoteError as error:
            problems.append(str(error))
            return
        arrived.append((name, listed[name].version, content))
        left_bytes -= len(content)

    in_parallel([name for name in listed if name not in here], fetch)
    return set(listed), problems[0] if problems else ""


def _local_name(file: RemoteFile) -> str:
    """A name that no object can choose: of letters that are harmless, and its own for every object."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", file.name.removesuffix(_SUFFIX))[:80].strip("-")
    return f"{readable or 'log'}-{hashlib.sha256(file.path.encode(errors='replace')).hexdigest()[:12]}{_SUFFIX}"


# -- what is measured here ---------------------------------------------------------------------------------------------


class SharedRun:
    """What one run measures, put to an object of its own at ``url``: all of it again each time it is put."""

    def __init__(self, url: str, *, device: str) -> None:
        created = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        self.name = f"{device}-{created}-{secrets.token_hex(8)}{_SUFFIX}"
        self._url = url
        self._lines: list[bytes] = []
        self._put_lines = 0
        self._put_at_s = time.monotonic()

    def add(self, record: TuningRecord) -> None:
        """Count a record. What was only computed is not shared."""
        if record.measurement is None or record.measured:
            self._lines.append(encode(record) + b"\n")

    @property
    def is_due(self) -> bool:
        """True if something was added, and the last put is some time ago."""
        passed_s = time.monotonic() - self._put_at_s
        return len(self._lines) > self._put_lines and passed_s >= settings.SHARED_EVERY_S

    def put(self) -> int:
        """Write all records so far to the object, if there are new ones; how many it has. Raises RemoteError, within
        ``settings.SHARED_WRITE_TIMEOUT_S``."""
        self._put_at_s = time.monotonic()
        if len(self._lines) > self._put_lines:
            lines = list(self._lines)
            put_log(self._url, self.name, b"".join(lines))
            self._put_lines = len(lines)
        return self._put_lines

    @property
    def shown(self) -> str:
        """The object, as it may be printed."""
        return shown(joined(self._url, self.name))


def put_log(url: str, name: str, content: bytes, *, is_new: bool = False) -> None:
    """Write a log to the folder at ``url``, which has to be there. Raises RemoteError. With ``is_new`` it is made, and
    must not have one of that name."""

    def work(_: Abandoned) -> None:
        remote = Remote(url)
        if not is_new:
            remote.check_there()
        elif remote.has(name):
            raise RemoteError("it exists already")
        remote.write(name, content)

    within(settings.SHARED_WRITE_TIMEOUT_S, work)


def put_merged(url: str, records: Iterable[TuningRecord]) -> None:
    """Write a new log to ``url``, the URL of a file that does not exist. Raises LogError."""
    folder, _, name = url.rpartition("/")
    try:
        if not name.endswith(_SUFFIX):
            raise RemoteError(f"its name does not end with {_SUFFIX}")
        put_log(folder, name, b"".join(encode(record) + b"\n" for record in records), is_new=True)
    except RemoteError as error:
        raise LogError(f"out={shown(url)} cannot be written: {error}; name another") from None
