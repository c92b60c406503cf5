"""A new log that is there with all its records, or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from dwconv.errors import LogError
from dwconv.records.line import encode
from dwconv.records.record import TuningRecord
from dwconv.system.new_file import new_file, sync_folder


def write_whole(path: Path, records: Iterable[TuningRecord]) -> None:
    """Write a log that holds ``records``, on disk when this returns. Raises LogError if it cannot be written, or if
    there is a file at ``path``, even one that was made meanwhile."""
    lines = (encode(record) + b"\n" for record in records)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path, lines, durable=True) as written:
            _take_name(written, path)
        sync_folder(path.parent)
    except OSError as error:
        raise LogError(f"out={path} cannot be written: {error.strerror}; name another file") from None


def _take_name(written: str, path: Path) -> None:
    """Give the file ``written`` the name ``path``. Raises LogError if the name is taken, OSError for other trouble."""
    try:
        try:
            os.link(written, path)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            path.open("xb").close()  # a file system without links: an empty file keeps the name until it is replaced
            Path(written).replace(path)
    except FileExistsError:
        raise LogError(f"out={path} exists already; name another file") from None
