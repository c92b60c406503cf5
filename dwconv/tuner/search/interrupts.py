"""Ctrl-C at a moment of the tuner's choosing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ctrl_c_waits() -> Iterator[None]:
    """Raise ctrl-C after the block instead of inside it, so that the log and the result count the same records."""
    if threading.current_thread() is not threading.main_thread():  # Python raises ctrl-C in the main thread only
        yield
        return
    waiting: list[tuple[int, FrameType | None]] = []
    usual = signal.signal(signal.SIGINT, lambda number, frame: waiting.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if usual is None else usual)
    if waiting and callable(usual):
        usual(*waiting[0])
