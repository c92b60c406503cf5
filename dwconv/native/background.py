"""Background: an attempt in a thread of its own, which holds up neither the process's work nor its end."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable

from dwconv.native.attempt import Attempt

LIMIT_S = 4 * 3600.0
"""Nobody waits, and the machine may be so busy that little is left for this."""


class Background:
    """``work`` gets the attempt to make. Raises RuntimeError if the system has no thread for it."""

    def __init__(self, work: Callable[[Attempt], None]) -> None:
        self._work = work
        self._attempt = Attempt(limit_s=LIMIT_S, in_background=True)
        self.thread = threading.Thread(target=self._run, name="dwconv-native", daemon=True)
        try:
            self.thread.start()
        except RuntimeError:
            self._attempt.close()
            raise
        atexit.register(self._attempt.give_up)

    def _run(self) -> None:
        with self._attempt:
            self._work(self._attempt)
