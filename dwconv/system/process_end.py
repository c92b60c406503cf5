"""The end of a process that must not hang: not in what runs at exit, nor in a thread that holds Python's lock."""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading

_CLOCK_MONOTONIC, _SIGEV_THREAD = 1, 2


class _Event(ctypes.Structure):
    """``struct sigevent`` of Linux: ``function`` is called with ``value``, on a thread of its own."""

    _fields_ = [
        ("value", ctypes.c_size_t), ("signal", ctypes.c_int), ("notify", ctypes.c_int), ("function", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p), ("rest", ctypes.c_byte * 32),
    ]  # fmt: skip


class _Times(ctypes.Structure):
    """``struct itimerspec``: how often, and when first."""

    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "first_s", "first_ns")]


def end_within(seconds: float, exit_code: int) -> None:
    """Let this process end with ``exit_code`` after ``seconds``, unless it has ended before.

    On Linux that is a timer of the system, which calls ``_exit``: it needs no lock of Python. Elsewhere it is a thread,
    which a thread that waits and keeps Python's lock holds up."""
    if not _end_by_timer(seconds, exit_code):
        thread = threading.Timer(seconds, os._exit, [exit_code])
        thread.daemon = True
        thread.start()


def _end_by_timer(seconds: float, exit_code: int) -> bool:
    """Whether there is such a timer."""
    if sys.platform != "linux":
        return False
    system = ctypes.CDLL(None, use_errno=True)
    if not hasattr(system, "timer_create"):
        return False
    end = ctypes.cast(system._exit, ctypes.c_void_p).value
    event = _Event(value=exit_code, notify=_SIGEV_THREAD, function=end)
    timer = ctypes.c_void_p()
    if system.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)):
        return False
    rest_s, whole_s = math.modf(max(seconds, 1e-3))
    times = _Times(first_s=int(whole_s), first_ns=int(1e9 * rest_s))
    return not system.timer_settime(timer, 0, ctypes.byref(times), None)
