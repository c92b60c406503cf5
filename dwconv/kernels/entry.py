"""Entries of a cache on disk: plain data in sealed files, so that nothing is run that this user has not built."""

from __future__ import annotations

import contextlib
import hashlib
import time
from pathlib import Path

from dwconv.errors import NotKept
from dwconv.kernels import wire
from dwconv.system import private_files
from dwconv.system.new_file import UNFINISHED

MOST_ENTRIES = 4000
"""Entries of a kind in a folder; beyond it the oldest go."""

_ABANDONED_S = 24 * 3600.0
"""A file that has been unfinished for so long has lost its writer."""


def key_of(*parts: object) -> str:
    """A name for an entry, from the plain data that went into it."""
    return hashlib.sha256(wire.encode(list(parts))).hexdigest()[:40]


def read_entry(path: Path) -> object | None:
    """The entry as it was written; None if there is none, or something else."""
    payload = private_files.read_sealed(path)
    try:
        found: object = None if payload is None else wire.decode(payload)
    except ValueError:
        return None
    return found


def write_entry(path: Path, value: object) -> None:
    """All of it or nothing: other processes may be reading. A folder that cannot be written is no error; a
    warning names it."""
    try:
        private_files.write_sealed(path, wire.encode(value), durable=False)  # made again in no time
    except NotKept as error:
        private_files.tell_not_kept(error)
    else:
        _make_room(path.parent, suffix=path.suffix)


def _make_room(folder: Path, *, suffix: str) -> None:
    """Only entries go, and what killed writers left. Other processes may be at it, too: what is gone is gone."""
    try:
        files = list(folder.iterdir())
    except OSError:
        return
    for file in files:
        if file.suffix == UNFINISHED and time.time() - _written(file) > _ABANDONED_S:
            _remove(file)
    entries = [file for file in files if file.suffix == suffix]
    if len(entries) > MOST_ENTRIES:
        for file in sorted(entries, key=_written)[: MOST_ENTRIES // 4]:
            _remove(file)


def _written(file: Path) -> float:
    """When; now, if it is gone."""
    try:
        return file.stat(follow_symlinks=False).st_mtime
    except OSError:
        return time.time()


def _remove(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink()
