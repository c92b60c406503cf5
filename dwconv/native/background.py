"""Background: an attempt in a thread of its own, which ends with the process and holds up neither its work nor its end."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable

from dwconv.native.attempt import Attempt

LIMIT_S = 3600.0
"""Nobody waits, and the machine may be so busy that little is left for this."""
_END_S = 5.0


class Background:
    """``work`` gets the attempt to make. Raises RuntimeError if the system has no thread for it."""

    def __init__(self, work: Callable[[Attempt], None]) -> None:
        self._work = work
        self._attempt = Attempt(limit_s=LIMIT_S, in_background=True)
        self._thread = threading.Thread(target=self._run, name="dwconv-native", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._attempt.close()
            raise
        atexit.register(self._end)

    def _run(self) -> None:
        with self._attempt:
            self._work(self._attempt)

    def _end(self) -> None:
        """A thread that is loading a library when the interpreter goes would take the process down: it is waited for.
        What it compiles is not."""
        self._attempt.give_up()
        self._thread.join(_END_S)
