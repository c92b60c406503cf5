"""Watch a process from outside, where the code that runs in it cannot interfere. Linux only."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path


class Watch:
    """Watches a process and its children: ``resident_bytes`` is the memory they take, ``waited_s`` how long they were
    ready to run but had no core. Both are 0 if the system does not report them."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._waited_ns: dict[str, int] = {}
        self.resident_bytes = 0
        self.waited_s = 0.0

    def look(self) -> None:
        """Read both. Of the threads, the one that waited longest since the last look counts: others may have waited for
        it."""
        waited_ns: dict[str, int] = {}
        resident_bytes = 0
        for process in _with_children(str(self._pid)):
            resident_bytes += _field(f"/proc/{process}/statm", 1) * resource.getpagesize()
            for thread in _threads(process):
                waited_ns[thread] = _field(f"/proc/{process}/task/{thread}/schedstat", 1)
        longest_ns = max((now - self._waited_ns.get(thread, 0) for thread, now in waited_ns.items()), default=0)
        self.waited_s += longest_ns / 1e9
        self.resident_bytes = resident_bytes
        self._waited_ns = waited_ns

    def begin(self) -> None:
        """Look, and count the waiting time from now on."""
        self.look()
        self.waited_s = 0.0


def _with_children(process: str) -> Iterator[str]:
    yield process
    for thread in _threads(process):
        for child in _words(f"/proc/{process}/task/{thread}/children"):
            yield from _with_children(child)


def _threads(process: str) -> list[str]:
    try:
        return os.listdir(f"/proc/{process}/task")  # noqa: PTH208  names are all that is needed
    except OSError:
        return []


def _field(path: str, position: int) -> int:
    words = _words(path)
    return int(words[position]) if len(words) > position else 0


def _words(path: str) -> list[str]:
    try:
        return Path(path).read_text().split()
    except OSError:  # it has ended
        return []
