"""Contention: the time that other work takes from this process while it is timed, and when the machine is quiet.

    sign                                     a lap  all laps   seen by
    own threads wait for a core                ×               Linux: schedstat of each thread
    own threads are made to give up a core     ×               involuntary context switches, where there is no schedstat
    the caller is off its core, unasked        ×               its CPU time and the wall clock; shows a hypervisor
    the hypervisor takes cores away                     ×      Linux: steal time
    others fill the cores that we use                   ×      psutil; used where our own threads crowd each other

A sign that a system does not report counts as zero.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from dwconv.system.cpu_facts import allowed_cores, cores

_SWITCH_S = 1e-4
"""Least cost of a context switch, for systems that do not report how long the thread waited."""
_MUCH_STOLEN = 0.1
"""Virtual machines always lose a little; above this share of all cores it is contention."""
_TICKS_S = 0.05
"""Times of the whole machine are counted in ticks of 10 ms; less than this is rounding."""
_IDLE = 0.1
"""Other work takes nothing from us while this share of the cores is idle."""
_LOOK_S = 0.3
_QUIET_CORES = 0.3
_QUIET_SHARE = 0.05
"""Other work on a quiet machine uses no more than this many cores, or this share of all cores."""


# -- this process, lap by lap ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The system's counters of this process at one moment."""

    wall_s: float
    caller_s: float
    """CPU time of the calling thread."""
    waits: int
    """How often the calling thread waited for something; 0 if that is not counted."""
    switches: int
    """How often a thread of this process had to give its core to another."""
    queued_s: float | None
    """How long threads of this process were ready to run but had no core; None if that is not counted."""


def read() -> Reading:
    """Read the counters; takes some microseconds."""
    return Reading(
        wall_s=time.perf_counter(),
        caller_s=time.thread_time(),
        waits=resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw if hasattr(resource, "RUSAGE_THREAD") else 0,
        switches=resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw,
        queued_s=_run_queue().waited_s(),
    )


def lost(before: Reading, after: Reading) -> float:
    """The share of the time between two readings that this process lost to other work, 0 to 1. A parallel kernel waits
    for its slowest thread, so time that any thread loses is lost."""
    wall_s = after.wall_s - before.wall_s
    off_s = wall_s - (after.caller_s - before.caller_s) if after.waits == before.waits else 0.0
    if before.queued_s is not None and after.queued_s is not None:
        queued_s = after.queued_s - before.queued_s
    else:
        queued_s = (after.switches - before.switches) * _SWITCH_S
    return min(1.0, max(off_s, queued_s, 0.0) / wall_s)


class _RunQueue:
    """How long the threads of this process have waited for a core: Linux's schedstat of each of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[int] = []
        self._links = 0

    def waited_s(self) -> float | None:
        """Seconds of all threads together; None if they are not counted."""
        try:
            links = self._folder.stat().st_nlink  # one a thread, and two
            if links != self._links:
                self._open()
                self._links = links
            return self._sum_s()
        except (OSError, ValueError, IndexError):
            pass
        try:  # a thread ended and another one started
            self._open()
            return self._sum_s()
        except (OSError, ValueError, IndexError):
            return None

    def _sum_s(self) -> float:
        return sum(int(os.pread(file, 100, 0).split()[1]) for file in self._files) * 1e-9

    def _open(self) -> None:
        for file in self._files:
            os.close(file)
        self._files = []
        for thread in self._folder.iterdir():
            self._files.append(os.open(thread / "schedstat", os.O_RDONLY | os.O_CLOEXEC))


@cache
def _run_queue() -> _RunQueue:
    return _RunQueue(Path("/proc/self/task"))


# -- the whole machine -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Load:
    """How the cores that this process may use have spent their time, in seconds."""

    total_s: float
    busy_s: float
    stolen_s: float
    own_s: float
    """CPU time of this process and, on request, of those that it started."""


def load(*, own_s: Callable[[], float] = time.process_time) -> Load:
    """The times up to now, in ticks of 10 ms; zeros if the system does not report them."""
    try:
        cores = psutil.cpu_times(percpu=True)
    except (OSError, psutil.Error):
        cores = []
    mine = allowed_cores()
    if mine and max(mine) < len(cores):
        cores = [cores[core] for core in sorted(mine)]
    guests = ("guest", "guest_nice")  # counted as user time, too
    total_s = sum(value for core in cores for name, value in core._asdict().items() if name not in guests)
    rest_s = sum(core.idle + getattr(core, "iowait", 0.0) for core in cores)
    stolen_s = sum(getattr(core, "steal", 0.0) for core in cores)
    return Load(total_s=total_s, busy_s=total_s - rest_s, stolen_s=stolen_s, own_s=own_s())


def lost_to_the_machine(before: Load, after: Load, *, oversubscribed: bool) -> float:
    """The share of the time between two readings that the hypervisor took. ``oversubscribed`` says that our own threads
    outnumber the cores and wait for each other anyway; then the time that other processes took counts too."""
    total_s = max(after.total_s - before.total_s, 1e-9)
    stolen = (after.stolen_s - before.stolen_s - _TICKS_S) / total_s
    lost = stolen if stolen > _MUCH_STOLEN else 0.0
    busy_s = after.busy_s - before.busy_s
    if oversubscribed and busy_s > (1 - _IDLE) * total_s:
        lost = max(lost, (busy_s - (after.own_s - before.own_s) - _TICKS_S) / total_s)
    return min(lost, 1.0)


def others(before: Load, after: Load) -> float:
    """The share of the cores that other work had between two readings, 0 to 1."""
    total_s = max(after.total_s - before.total_s, 1e-9)
    return min(1.0, max(0.0, (after.busy_s - before.busy_s - (after.own_s - before.own_s)) / total_s))


def oversubscription(threads: int) -> str:
    """``4 threads on 2 cores`` if our own threads have to wait for each other, else empty."""
    count = cores()
    return f"{threads} threads on {count} core{'s' if count > 1 else ''}" if threads > count else ""


class Quiet:
    """Waits until the machine has ``threads`` cores to spare. Use it while this process and its children are idle."""

    def __init__(self, *, threads: int) -> None:
        self._threads = threads
        self.busy = 0.0
        """The share of the cores that other work had at the last look."""

    def look(self) -> bool:
        """True if it is quiet now; takes some tenths of a second."""
        before = load(own_s=_with_children_s)
        time.sleep(_LOOK_S)
        self.busy = others(before, load(own_s=_with_children_s))
        count = cores()
        spare = max(0, count - self._threads) + max(_QUIET_CORES, _QUIET_SHARE * count)
        return self.busy * count <= spare

    def wait(self, *, timeout_s: float) -> bool:
        """Look until it is quiet, or for ``timeout_s``; True if it is quiet."""
        return any(self.look() for _ in range(max(1, round(timeout_s / _LOOK_S))))


def _with_children_s() -> float:
    """CPU time of this process and of those that it started."""
    own_s = time.process_time()
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        own_s += times.user + times.system
    return own_s
