"""A file of lines, read in bounded time and memory.

It may come from any source. A named pipe or the like is refused at once. A file is read up to where it ended when it
was opened.
"""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from dwconv.errors import LogError

MOST_LINE_BYTES = 2**20
"""The longest line that is read. A record takes about a thousand bytes."""
MOST_BYTES = 2**28
"""The most that is read of one file: a quarter of a million records."""
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_file(path: Path) -> BinaryIO:
    """The file, to read from its start. Raises LogError if it is not a file, OSError if it cannot be opened. The null
    device counts as an empty file."""
    file = open(path, "rb", buffering=2**16, opener=_opened_at_once)  # noqa: SIM115  # the caller closes it
    facts = os.fstat(file.fileno())
    if stat.S_ISREG(facts.st_mode) or os.path.samestat(facts, os.stat(os.devnull)):  # noqa: PTH116
        return file
    file.close()
    raise no_file(path, facts.st_mode)


def no_file(path: Path, mode: int) -> LogError:
    kind = _KINDS.get(stat.S_IFMT(mode), "no file")
    return LogError(f"log={path} is {kind}, where a file is needed; move it away, or name a file with --log")


def lines(file: BinaryIO) -> Iterator[bytes | None]:
    """The lines of ``file``, each with its line break. A line of more than ``MOST_LINE_BYTES`` gives None, and is never
    held as a whole. Ends after ``MOST_BYTES``; ``is_cut_off`` is true if it did."""
    size, read = min(os.fstat(file.fileno()).st_size, MOST_BYTES), 0
    inside = False  # a line that was begun, and is too long
    while read < size and (piece := file.readline(MOST_LINE_BYTES)):
        read += len(piece)
        if len(piece) < MOST_LINE_BYTES and not inside:
            yield piece.removeprefix(codecs.BOM_UTF8)  # of an editor, also where such files were put together
            continue
        ends = piece.endswith(b"\n")
        if not inside:
            yield piece if ends else None
        inside = not ends


def is_cut_off(file: BinaryIO) -> bool:
    return os.fstat(file.fileno()).st_size > MOST_BYTES


def _opened_at_once(path: str, flags: int) -> int:
    """Open without waiting: otherwise opening a pipe blocks until it has a writer, perhaps for ever."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
