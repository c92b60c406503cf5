"""Counters: what the processor or the kernel counted while a task ran, by Linux's perf_event_open.

    hardware   cycles, instructions, branches, stalled cycles │ references to the last-level cache, and misses
    software   task-clock, page faults, context switches, migrations   where the machine has no counters

A bar separates groups: the events of a group are counted at the same moments. A processor that has too few counters for
all groups takes turns, and the counts are scaled by the time that each group was counted for. Every thread that the
process has, or starts in the meantime, is counted, since a task runs on threads of its own.

Virtual machines often have no hardware counters, and ``kernel.perf_event_paranoid`` may forbid them; ``available()``
says what there is, and why there is no more.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

HARDWARE, SOFTWARE, NONE = "hardware", "software", "none"
_TYPES = {HARDWARE: 0, SOFTWARE: 1}
Group = Mapping[str, int]
"""By name of an event, its number: PERF_COUNT_HW_… or PERF_COUNT_SW_…"""
GROUPS: Mapping[str, tuple[Group, ...]] = {
    HARDWARE: (
        {"cycles": 0, "instructions": 1, "branches": 4, "stalled-cycles": 8},
        {"cache-references": 2, "cache-misses": 3},
    ),
    SOFTWARE: ({"task-clock": 1, "page-faults": 2, "context-switches": 3, "cpu-migrations": 4},),
}
"""The last two hardware events are those of the last-level cache; stalled cycles are those of the back end."""
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_THREADS = Path("/proc/self/task")


# -- what there is to count --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Available:
    """What can be counted here."""

    kind: str
    """``hardware``, ``software`` or ``none``."""
    events: tuple[str, ...]
    note: str
    """Why there are no hardware counters, in a line; empty if there are."""


@cache
def available() -> Available:
    """What this process can count. It is found out once."""
    if sys.platform != "linux" or os.uname().machine not in _SYSTEM_CALLS:
        said = f"no hardware counters here: they are read on Linux (x86-64, Arm) only, not on {sys.platform}"
        return Available(kind=NONE, events=(), note=said)
    events, why = events_of(HARDWARE)
    if events:
        return Available(kind=HARDWARE, events=events, note="")
    note = _no_hardware(why)
    events, why = events_of(SOFTWARE)
    if events:
        return Available(kind=SOFTWARE, events=events, note=f"{note}; software events are counted instead")
    return Available(kind=NONE, events=(), note=f"{note}; nor does the kernel count software events for this process")


def events_of(kind: str) -> tuple[tuple[str, ...], OSError | None]:
    """The events of this kind that can be counted on the calling thread; and what the first one that cannot be was
    refused for."""
    found: list[str] = []
    why: OSError | None = None
    for group in GROUPS[kind]:
        try:
            opened = _opened(kind, group, thread=0)
        except OSError as error:
            why = why or error
            continue
        found += opened.names.values()
        opened.close()
    return tuple(found), why


def _no_hardware(why: OSError | None) -> str:
    if why is not None and why.errno in (errno.EACCES, errno.EPERM):
        return f"the kernel forbids hardware counters: kernel.perf_event_paranoid is {paranoid()}; set it to 2 or less"
    if why is not None and why.errno not in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
        return f"hardware counters cannot be read: {why.strerror}"
    return "no hardware counters here, as in many virtual machines"


def paranoid() -> str:
    """The system's setting of which users may count what; ``unknown`` if it cannot be read."""
    try:
        return PARANOID.read_text(encoding="utf-8").strip()
    except OSError:
        return "unknown"


# -- counting ----------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class EventCounts:
    """Counts by event; empty until the block has ended, and where nothing can be counted."""

    counts: dict[str, float] = field(default_factory=dict)


@contextmanager
def counted() -> Iterator[EventCounts]:
    """Count what this process does while the block runs, on all threads."""
    found = EventCounts()
    opened = _opened_everywhere(available().kind)
    try:
        before = [each.read() for each in opened]
        yield found
        for each, first in zip(opened, before, strict=True):
            for name, count in each.named(between(first, each.read())).items():
                found.counts[name] = found.counts.get(name, 0.0) + count
    finally:
        for each in opened:
            each.close()


def _opened_everywhere(kind: str) -> list[OpenGroup]:
    """Every group of this kind, of every thread of the process. A thread that has ended meanwhile is left out."""
    opened = []
    for thread in _THREADS.iterdir() if kind != NONE else ():
        for group in GROUPS[kind]:
            try:
                opened.append(_opened(kind, group, thread=int(thread.name)))
            except OSError:
                continue
    return opened


def main(argv: list[str] | None = None) -> int:
    """``python -m dwconv.concurrency counters``. Returns the exit code: 2 for bad input."""
    from dwconv.commands.command_line import ArgumentParser, run

    def command(arguments: list[str] | None) -> int:
        parser = ArgumentParser(
            prog="python -m dwconv.concurrency counters",
            description="Print which events can be counted here while a task runs, and what they count in a moment of "
            "work; and the second hardware threads.",
        )
        parser.parse_args(arguments)
        print("\n".join(_lines()))
        return 0

    return run(command, argv)


_WORK = 300_000
"""Additions: some milliseconds."""


def _lines() -> list[str]:
    from dwconv.concurrency.second_threads import sibling_pairs

    found = available()
    events = {kind: events_of(kind)[0] if sys.platform == "linux" else () for kind in (HARDWARE, SOFTWARE)}
    with counted() as during:
        sum(range(_WORK))
    pairs = sibling_pairs()
    return [
        f"hardware events      {', '.join(events[HARDWARE]) or 'none'}",
        f"software events      {', '.join(events[SOFTWARE]) or 'none'}",
        f"perf_event_paranoid  {paranoid()}",
        f"second threads       {', '.join(f'processor {b} beside {a}' for a, b in pairs) or 'none'}",
        *([found.note] if found.note else []),
        *(f"  {name:18} {count:,.0f} in {_WORK:,} additions" for name, count in during.counts.items()),
    ]


# -- one group: opened, read, and what was read ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CounterReading:
    """A group at one moment. Counts only grow."""

    enabled_ns: int
    """How long the group was to be counted."""
    running_ns: int
    """How long it was counted; less, if the processor has too few counters."""
    counts: Mapping[int, int]
    """By number that the kernel has given the event."""


def parsed(data: bytes) -> CounterReading:
    """What the kernel gives for a group: the number of events and both times, then each count with its event's number.
    Raises ValueError for another length."""
    if len(data) < 24:
        raise ValueError(f"a reading of {len(data)} bytes is too short")
    events, enabled_ns, running_ns = struct.unpack_from("=QQQ", data)
    if len(data) != 24 + 16 * events:
        raise ValueError(f"a reading of {len(data)} bytes does not have {events} events")
    pairs = struct.iter_unpack("=QQ", data[24:])
    return CounterReading(
        enabled_ns=enabled_ns, running_ns=running_ns, counts={number: count for count, number in pairs}
    )


def between(before: CounterReading, after: CounterReading) -> dict[int, float]:
    """What was counted between two readings of a group, scaled to all of the time between them. Nothing if the group
    was not counted at all in that time: it had no turn, or its thread did not run."""
    enabled_ns, running_ns = after.enabled_ns - before.enabled_ns, after.running_ns - before.running_ns
    if running_ns <= 0:
        return {}
    scale = max(1.0, enabled_ns / running_ns)
    return {number: scale * (count - before.counts.get(number, 0)) for number, count in after.counts.items()}


@dataclass(frozen=True, kw_only=True)
class OpenGroup:
    """A group of events of one thread, and of the threads that it starts."""

    files: Sequence[int]
    """The first one reads all."""
    names: Mapping[int, str]
    """By the number that the kernel has given an event."""

    def read(self) -> CounterReading:
        return parsed(os.read(self.files[0], 24 + 16 * len(self.files)))

    def named(self, counts: Mapping[int, float]) -> dict[str, float]:
        return {self.names[number]: count for number, count in counts.items() if number in self.names}

    def close(self) -> None:
        for file in self.files:
            os.close(file)


_SYSTEM_CALLS = {"x86_64": 298, "aarch64": 241}
"""The number of perf_event_open."""
_ATTRIBUTE_BYTES = 128
_TIMES_NUMBERS_AND_GROUP = 1 | 2 | 4 | 8
_INHERIT, _NO_KERNEL, _NO_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6
_GIVE_NUMBER = 0x80082407
"""PERF_EVENT_IOC_ID."""


def _opened(kind: str, group: Group, *, thread: int) -> OpenGroup:
    """The events of ``group`` that there are; 0 is the calling thread. Raises OSError if there are none."""
    files: list[int] = []
    names: dict[int, str] = {}
    why: OSError | None = None
    for name, config in group.items():
        try:
            file = _open(_TYPES[kind], config, thread=thread, leader=files[0] if files else -1)
        except OSError as error:
            why = why or error
            continue
        files.append(file)
        names[_number(file)] = name
    if not files:
        assert why is not None
        raise why
    return OpenGroup(files=files, names=names)


def _open(type_: int, config: int, *, thread: int, leader: int) -> int:
    """A file that counts one event: with the kernel's part if that is permitted, and of threads that start later if
    the kernel reads such events in groups. Raises OSError."""
    flags = _INHERIT | _NO_HYPERVISOR
    while True:
        try:
            return _opened_file(type_, config, thread=thread, leader=leader, flags=flags)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM) and not flags & _NO_KERNEL:
                flags |= _NO_KERNEL
            elif error.errno == errno.EINVAL and flags & _INHERIT:
                flags &= ~_INHERIT
            else:
                raise


def _opened_file(type_: int, config: int, *, thread: int, leader: int, flags: int) -> int:
    attribute = ctypes.create_string_buffer(_ATTRIBUTE_BYTES)
    struct.pack_into("=IIQ", attribute, 0, type_, _ATTRIBUTE_BYTES, config)
    struct.pack_into("=QQ", attribute, 32, _TIMES_NUMBERS_AND_GROUP, flags)
    libc = ctypes.CDLL(None, use_errno=True)
    every_core, close_on_exec = -1, 8
    file = int(libc.syscall(_SYSTEM_CALLS[os.uname().machine], attribute, thread, every_core, leader, close_on_exec))
    if file < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return file


def _number(file: int) -> int:
    import fcntl

    answer = bytearray(8)
    fcntl.ioctl(file, _GIVE_NUMBER, answer)
    return int.from_bytes(answer, sys.byteorder)
