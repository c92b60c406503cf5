"""A file that exists with all its content, or not at all.

It is written under another name in the same folder, ``.<name>.<random>.part``; a rename or a link then gives it its own
name. Readers never see half a file, and a killed process leaves at most a ``.part`` file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

UNFINISHED = ".part"
"""Suffix of a file that is being written; one that stays was left by a process that was killed."""
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_FLAGS |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def check_name(path: str | os.PathLike[str]) -> None:
    """Raises OSError for what no file can be called, where Python itself raises other errors."""
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:
        raise OSError(errno.EINVAL, "half of a character is in its name") from None
    if b"\0" in name:
        raise OSError(errno.EINVAL, "a NUL is in its name")


@contextlib.contextmanager
def new_file(
    path: Path, content: Iterable[bytes], *, durable: bool, private: bool = False, folder: int | None = None
) -> Iterator[str]:
    """Write ``content`` beside ``path`` and yield the name of the finished file, which the caller renames or links to
    ``path``. If the caller does neither, nothing is left of it. Raises OSError.

    ``durable``: the content survives a power cut. ``private``: only this user may read it, whatever the umask.
    ``folder``: descriptor of the folder that ``path`` and the yielded name are relative to."""
    check_name(path)
    part = str(path.with_name(f".{path.name}.{secrets.token_hex(8)}{UNFINISHED}"))
    descriptor = os.open(part, _FLAGS, 0o600 if private else 0o666, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if private:
                os.fchmod(descriptor, 0o600)
            for piece in content:
                file.write(piece)
            file.flush()
            if durable:
                os.fsync(descriptor)
        yield part
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part, dir_fd=folder)


def replace_file(path: Path, content: Iterable[bytes], *, durable: bool) -> None:
    """Give ``path`` new content. A reader finds the old or the new, never half of it. Raises OSError, also for what is
    there and is no file."""
    _check_is_file(path)
    with new_file(path, content, durable=durable) as written:
        Path(written).replace(path)
    if durable:
        sync_folder(path.parent)


def check_replaceable(path: Path) -> None:
    """Before long work that ends in ``replace_file``: raises OSError where that would fail. Changes nothing."""
    _check_is_file(path)
    with new_file(path, [], durable=False):
        pass


def _check_is_file(path: Path) -> None:
    """Raises OSError for what is there and is no file."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a file", str(path))  # such as a device


def check_folder(path: Path) -> None:
    """Before long work that ends in a folder of files: raises OSError where there is none, nor can be one, or where
    it takes no file. Changes nothing."""
    for there in (path, *path.parents):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            there.lstat()
            break
    if not there.is_dir():
        raise no_folder(there)
    with new_file(there / "any", [], durable=False):
        pass


def no_folder(path: Path) -> NotADirectoryError:
    """The error where a folder should be made, and something else has its name."""
    what = "a link that leads nowhere" if path.is_symlink() else "not a folder"
    return NotADirectoryError(errno.ENOTDIR, f"{path} is {what}", str(path))


def sync_folder(folder: Path | int) -> None:
    """Make the names in a folder, given by its path or its descriptor, survive a power cut too. Not every file system
    can; then nothing happens."""
    with contextlib.suppress(OSError):
        if isinstance(folder, int):
            os.fsync(folder)
            return
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
