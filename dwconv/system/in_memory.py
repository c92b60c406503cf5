"""A library that is loaded from memory: it cannot change between a check of its bytes and its loading, and no file
can be cut short under it later."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager


def in_memory(content: bytes, *, name: str) -> str:
    """A path that leads to ``content`` as long as this process lives, for the system's loader. Linux only.

    The descriptor stays open, so that no other library is ever loaded under its name."""
    descriptor = os.memfd_create(name)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    return f"/proc/self/fd/{descriptor}"


@contextmanager
def in_memory_for_now(content: bytes, *, name: str) -> Iterator[str]:
    """The same inside: what was loaded stays, and of hundreds of libraries none keeps a descriptor open.

    The system's loader takes a path that it has seen for the library that it loaded there, so that every path is
    spelled in its own way: ``/`` and ``/.`` are the digits of a number."""
    descriptor = os.memfd_create(name)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        spelling = "".join("/." if digit == "1" else "/" for digit in f"{next(_loaded):b}")
        yield f"/proc/self/fd{spelling}/{descriptor}"
    finally:
        os.close(descriptor)


_loaded = itertools.count(1)
