"""The folder of a worker process, for its temporary files and its output. A later start removes abandoned folders.

The output goes to a file that stays locked while the worker, its children or their parent have it open. A folder whose
file is not locked is abandoned.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PREFIX = "dwconv-worker-"
_PRINTED = "printed"
_TAIL_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class Scratch:
    """``folder``, and the ``descriptor`` of the file for output in it, open for appending."""

    folder: str
    descriptor: int

    @classmethod
    def make(cls) -> Scratch:
        """A new folder. Raises OSError."""
        _sweep(tempfile.gettempdir())
        while True:
            folder = tempfile.mkdtemp(prefix=_PREFIX)
            try:
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                descriptor = os.open(Path(folder) / _PRINTED, flags, mode=0o600)
            except FileNotFoundError:  # swept before it could be locked
                continue
            except OSError:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            with contextlib.suppress(OSError):  # a file system without locks: then nothing is swept either
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return cls(folder=folder, descriptor=descriptor)
            os.close(descriptor)

    @property
    def printed_bytes(self) -> int:
        """Size of the output since ``forget_printed``."""
        return os.fstat(self.descriptor).st_size

    def forget_printed(self) -> None:
        """Empty the output file, so that it holds the next request's output alone."""
        os.ftruncate(self.descriptor, 0)

    def last_words(self) -> str:
        """The last line that was printed."""
        printed = os.pread(self.descriptor, _TAIL_BYTES, max(0, self.printed_bytes - _TAIL_BYTES))
        lines = [line.strip() for line in printed.decode(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "")[:200]

    def remove(self) -> None:
        """Remove the folder with everything in it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self.descriptor)


@cache
def _sweep(parent: str) -> None:
    """Remove folders in ``parent`` of this user's workers that were killed together with their parents."""
    for folder in Path(parent).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # somebody else's, or somebody else is sweeping
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            _remove_if_nobodys(folder)


def _remove_if_nobodys(folder: Path) -> None:
    """Remove an abandoned folder. Raises OSError if it is still in use."""
    try:
        descriptor = os.open(folder / _PRINTED, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        folder.rmdir()  # killed before there was anything in it
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(descriptor)
