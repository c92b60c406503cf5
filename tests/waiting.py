"""Wait for a condition, not for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import psutil
import pytest


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


def time_is_up_once(condition: Callable[[], bool], *, monkeypatch: pytest.MonkeyPatch, of: ModuleType) -> None:
    """Whatever time limit the module ``of`` has set is over as soon as the condition has held, and hardly before."""
    ahead_s = [0.0]

    def monotonic() -> float:
        if not ahead_s[0] and condition():
            ahead_s[0] = 1e6
        return time.monotonic() + ahead_s[0]

    monkeypatch.setattr(of, "time", SimpleNamespace(monotonic=monotonic))
