"""A library that is loaded from memory: nobody can change it between a check of its bytes and its loading, and no file
can be cut short under it later."""

from __future__ import annotations

import os


def in_memory(content: bytes, *, name: str) -> str:
    """A path that leads to ``content`` as long as this process lives, for the system's loader. Linux only.

    The descriptor stays open, so that no other library is ever loaded under its name."""
    descriptor = os.memfd_create(name)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    return f"/proc/self/fd/{descriptor}"
