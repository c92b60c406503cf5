"""Wait for a condition, not for a time."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil


def eventually(condition: Callable[[], bool]) -> bool:
    """True as soon as it holds; False if it never does: on a busy machine a process takes minutes to start."""
    deadline = time.monotonic() + 600
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def gone(number: int) -> bool:
    """True as soon as that process has ended."""
    return eventually(lambda: not psutil.pid_exists(number) or psutil.Process(number).status() == psutil.STATUS_ZOMBIE)
