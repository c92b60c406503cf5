"""Entries of a cache on disk. Each carries the digest of its content: one that is torn or was changed is no entry."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from dwconv.build import wire

MOST_ENTRIES = 4000
"""In a folder; beyond it those written longest ago go."""

_DIGEST_BYTES = hashlib.sha256().digest_size


def key_of(*parts: object) -> str:
    """A name for an entry, from the plain data that went into it."""
    return hashlib.sha256(wire.encode(list(parts))).hexdigest()[:40]


def read_entry(path: Path) -> object | None:
    """What was written; None if there is nothing, or something else."""
    try:
        content = path.read_bytes()
        digest, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hashlib.sha256(payload).digest() != digest:
            return None
        found: object = wire.decode(payload)
    except (OSError, ValueError):
        return None
    return found


def write_entry(path: Path, value: object) -> None:
    """All of it or nothing: other processes may be reading. A folder that cannot be written is no error."""
    payload = wire.encode(value)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(payload).digest() + payload)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink()
            raise
        _make_room(path.parent)


def _make_room(folder: Path) -> None:
    with os.scandir(folder) as entries:
        files = list(entries)
    if len(files) > MOST_ENTRIES:
        oldest = sorted(files, key=lambda file: file.stat().st_mtime)[: MOST_ENTRIES // 4]
        for file in oldest:
            Path(file.path).unlink(missing_ok=True)
