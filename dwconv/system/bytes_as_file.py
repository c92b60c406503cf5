"""Bytes as a file that nothing else can change: a library is loaded from the very bytes that were checked."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def bytes_as_file(content: bytes, *, name: str) -> Iterator[str]:
    """A path that leads to ``content`` inside, for the system's loader: what was loaded stays, and of hundreds of
    libraries none keeps a descriptor open. Linux only. Raises OSError.

    The path is a symbolic link, and new each time. The system's loader keeps it as the library's name: it takes a name
    that it has seen for the library that it loaded there, and other libraries open it to print where an error comes
    from. A number of a descriptor would lead them to what has that number by then."""
    descriptor = os.memfd_create(name)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        with tempfile.TemporaryDirectory(prefix="dwconv-", dir=_folder_of_links()) as folder:
            path = Path(folder, name)
            path.symlink_to(f"/proc/self/fd/{descriptor}")
            yield str(path)
    finally:
        os.close(descriptor)


def _folder_of_links() -> str:
    """Where files may be made: the usual folder, or the system's memory where all else is read-only."""
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        return "/dev/shm"
