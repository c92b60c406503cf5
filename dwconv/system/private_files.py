"""Files that only this user can have written, so that their content may be run.

    cache folder/kernels/3f….kernel      digest, content: a sealed file
    state folder/cache-key               the key of the digest: 32 random bytes, made once

A file counts only if it and its folder belong to this user and no other may write there. A sealed file also begins
with the HMAC-SHA256 of its name and content, under a key that only this user can read. A file that is torn, was changed
or renamed, or comes from another user is treated as missing. The key is apart from the cache, which may be in a shared
folder; if no key can be kept, no sealed file is.

The bytes that were checked are the bytes that are used: a reader gets them, never a path that could lead to something
else a moment later. Folders are opened first and checked through the descriptor. A writer makes a new file and renames
it, so no reader gets half a file, and nothing is ever changed in place.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import secrets
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from dwconv import settings
from dwconv.errors import NotKept, warn
from dwconv.system.new_file import new_file, no_folder, sync_folder

_KEY_BYTES = 32
_DIGEST = "sha256"
_DIGEST_BYTES = 32
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read(path: Path) -> bytes | None:
    """The content of the file; None if there is none, or if it is not this user's own."""
    try:
        with _opened(path.parent) as folder:
            return _read(folder, path, forbidden=_OTHERS_WRITE)
    except OSError:
        return None


def write(path: Path, content: bytes, *, durable: bool) -> None:
    """Write all of it or nothing. ``durable`` makes it survive a power cut, and takes some ten ms. Raises NotKept."""
    try:
        with _opened(path.parent, make=True) as folder:
            with new_file(Path(path.name), [content], durable=durable, private=True, folder=folder) as written:
                os.replace(written, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            if durable:
                sync_folder(folder)
    except OSError as error:
        raise _not_kept("cache", path, error, variable="DWCONV_CACHE") from None


def read_sealed(path: Path) -> bytes | None:
    """The content that ``write_sealed`` wrote; None if there is no file, or any other."""
    content = read(path)
    if content is None:
        return None
    try:
        digest = _digest(path.name, content[_DIGEST_BYTES:])
    except NotKept:
        return None
    return content[_DIGEST_BYTES:] if hmac.compare_digest(digest, content[:_DIGEST_BYTES]) else None


def write_sealed(path: Path, content: bytes, *, durable: bool) -> None:
    """Write content that ``read_sealed`` can check, all of it or nothing. Raises NotKept."""
    write(path, _digest(path.name, content) + content, durable=durable)


def open_lock(path: Path) -> int:
    """Descriptor of an empty file to lock, made if need be. Raises NotKept if no sealed file could be written there."""
    _key()
    try:
        with _opened(path.parent, make=True) as folder:
            return os.open(path.name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    except OSError as error:
        raise _not_kept("cache", path, error, variable="DWCONV_CACHE") from None


def is_first_not_kept() -> bool:
    """True the first time in this process that something cannot be kept in the cache folder: one line is enough."""
    folder = settings.cache_folder()
    first = folder not in _not_kept_in
    _not_kept_in.add(folder)
    return first


_not_kept_in: set[Path] = set()


def tell_not_kept(error: NotKept) -> None:
    """Warn of it, if it is the first."""
    if is_first_not_kept():
        warn(f"compiled kernels and measurements are not kept, and the next process makes them again: {error}")


def check_private(folder: Path) -> None:
    """Raises NotKept unless only this user can write in ``folder``."""
    try:
        with _opened(folder):
            pass
    except OSError as error:
        raise NotKept(f"folder={folder} cannot be used: {error.strerror}; name one that only you can write") from None


# -- folders and files -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _opened(folder: Path, *, make: bool = False) -> Iterator[int]:
    """Descriptor of a folder that only this user can write in. Raises OSError if others can."""
    if not hasattr(os, "geteuid"):
        raise OSError(errno.ENOTSUP, "users cannot be distinguished on this system", str(folder))
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        descriptor = os.open(folder, flags)
    except FileNotFoundError:
        if not make:
            raise
        _make(folder)
        descriptor = os.open(folder, flags)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to another user", str(folder))
        if found.st_mode & _OTHERS:  # made by an older version, or by hand
            with contextlib.suppress(OSError):
                os.fchmod(descriptor, 0o700)
            if os.fstat(descriptor).st_mode & _OTHERS_WRITE:
                raise PermissionError(errno.EPERM, "other users may write there", str(folder))
        yield descriptor
    finally:
        os.close(descriptor)


def _make(folder: Path) -> None:
    """Make all missing levels, for this user alone whatever the umask."""
    for level in reversed([each for each in (folder, *folder.parents) if not each.is_dir()]):
        try:
            level.mkdir(0o700)
        except FileExistsError:
            if not level.is_dir():
                raise no_folder(level) from None
        else:
            level.chmod(0o700)


def _read(folder: int, path: Path, *, forbidden: int) -> bytes:
    """Content of the file. Raises OSError if there is none, or if others have one of the ``forbidden`` rights."""
    # Follow no link that leads elsewhere, and wait for no pipe without a writer.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path.name, flags, dir_fd=folder)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & forbidden:
            raise PermissionError(errno.EPERM, "it is not a file of this user", str(path))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def _not_kept(what: str, path: Path, error: OSError, *, variable: str) -> NotKept:
    return NotKept(f"{what}={path.parent} cannot be used: {error.strerror}; name a folder of your own in {variable}")


# -- the key ---------------------------------------------------------------------------------------------------------


def _digest(name: str, content: bytes) -> bytes:
    """Raises NotKept if no key can be kept."""
    return hmac.digest(_key(), name.encode() + b"\0" + content, _DIGEST)


def _key() -> bytes:
    path = settings.cache_key_path()
    try:
        return _key_at(path)
    except OSError as error:
        raise _not_kept("state", path, error, variable="XDG_STATE_HOME") from None


@cache
def _key_at(path: Path) -> bytes:
    """This user's key; a new one if there is none that is whole and secret."""
    with _opened(path.parent, make=True) as folder:
        with contextlib.suppress(OSError):
            return _read_key(folder, path)
        key = secrets.token_bytes(_KEY_BYTES)
        with new_file(Path(path.name), [key], durable=True, private=True, folder=folder) as made:
            try:
                os.link(made, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:  # another process was first, or the file is no key, or this file system has no links
                try:
                    return _read_key(folder, path)
                except OSError:
                    os.replace(made, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        sync_folder(folder)
        return _read_key(folder, path)


def _read_key(folder: int, path: Path) -> bytes:
    key = _read(folder, path, forbidden=_OTHERS)
    if len(key) != _KEY_BYTES:
        raise OSError(errno.EIO, "it is not whole", str(path))
    return key
