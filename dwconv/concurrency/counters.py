"""What the processor counted while something ran: cycles, instructions and cache misses, by Linux's perf_event_open.

All threads that the process has at that moment are counted, since a task runs on threads of its own. Virtual machines
often have no such counters, and ``kernel.perf_event_paranoid`` may forbid them: ``unavailable()`` is then the reason,
and the caller goes on without. On a GPU torch.profiler has more; it is not used.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_SYSTEM_CALLS = {"x86_64": 298, "aarch64": 241}
"""The number of perf_event_open."""
_ATTRIBUTE_BYTES = 128
_HARDWARE = 0
_EVENTS = {"cycles": 0, "instructions": 1, "cache_misses": 3}
"""PERF_COUNT_HW_…; the last are misses of the last-level cache."""
_EXCLUDE_KERNEL_AND_HYPERVISOR = 1 << 5 | 1 << 6
_THREADS = Path("/proc/self/task")


@dataclass(kw_only=True)
class HardwareEvents:
    """Counted in user mode, over all threads of the process."""

    cycles: int = 0
    instructions: int = 0
    cache_misses: int = 0


@cache
def unavailable() -> str:
    """Why nothing can be counted here; empty if it can."""
    if sys.platform != "linux" or os.uname().machine not in _SYSTEM_CALLS:
        return f"hardware counters are read on Linux (x86-64, Arm) only, not on {sys.platform}"
    try:
        for config in _EVENTS.values():
            os.close(_open(config, thread=0))
    except FileNotFoundError:
        return "this machine has no hardware counters; virtual machines often have none"
    except PermissionError:
        return "the kernel forbids hardware counters; set kernel.perf_event_paranoid to 2 or less to have them"
    except OSError as error:
        return f"hardware counters cannot be read: {error.strerror}"
    return ""


@contextmanager
def counted() -> Iterator[HardwareEvents]:
    """Count while the block runs; the counts are complete when it has ended. All are 0 if nothing can be counted."""
    counts = HardwareEvents()
    files = {} if unavailable() else _opened()
    try:
        before = {file: _value(file) for file in files}
        yield counts
        for file, name in files.items():
            setattr(counts, name, getattr(counts, name) + _value(file) - before[file])
    finally:
        for file in files:
            os.close(file)


def _opened() -> dict[int, str]:
    """Open files of every event of every thread, with the event's name."""
    files: dict[int, str] = {}
    for thread in _THREADS.iterdir():
        try:
            for name, config in _EVENTS.items():
                files[_open(config, thread=int(thread.name))] = name
        except ProcessLookupError:
            continue  # the thread has ended
    return files


def _open(config: int, *, thread: int) -> int:
    """A file that counts one event of a thread; 0 is the calling one. Raises OSError."""
    attribute = ctypes.create_string_buffer(_ATTRIBUTE_BYTES)
    struct.pack_into("IIQ", attribute, 0, _HARDWARE, _ATTRIBUTE_BYTES, config)
    struct.pack_into("Q", attribute, 40, _EXCLUDE_KERNEL_AND_HYPERVISOR)
    libc = ctypes.CDLL(None, use_errno=True)
    every_core, no_group, no_flags = -1, -1, 0
    number = _SYSTEM_CALLS[os.uname().machine]
    file = int(libc.syscall(number, attribute, thread, every_core, no_group, no_flags))
    if file < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return file


def _value(file: int) -> int:
    return int.from_bytes(os.read(file, 8), sys.byteorder)
