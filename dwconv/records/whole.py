"""Whole: a new log that is there with all its records, or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from dwconv.errors import LogError
from dwconv.records.line import encode
from dwconv.records.log import sync_folder
from dwconv.records.record import TuningRecord


def write_whole(path: Path, records: Iterable[TuningRecord]) -> None:
    """Write a log that holds ``records``, on disk when this returns. Raises LogError if there is a file at ``path``,
    also one that was made meanwhile, or if it cannot be written.

    They are written to a file beside it, ``.<name>.<random>.part``, which takes the name in the end; whatever ends this
    before leaves nothing at ``path``, and only what cannot be caught leaves that file."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("xb") as file:
                for record in records:
                    file.write(encode(record) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            _take_name(part, path)
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
        sync_folder(path.parent)
    except OSError as error:
        raise LogError(f"out={path} cannot be written: {error.strerror}; name another file") from error


def _take_name(part: Path, path: Path) -> None:
    """Give ``part`` the name ``path``. Raises LogError if something has it, OSError for what else goes wrong."""
    try:
        try:
            os.link(part, path)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            path.open("xb").close()  # a file system without links: an empty file keeps the name until it is replaced
            part.replace(path)
    except FileExistsError as error:
        raise LogError(f"out={path} is there already; name another file") from error
