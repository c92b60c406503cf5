"""Background: an attempt in a thread of its own, which delays neither the process's work nor its end.

A process that ends in the middle of it leaves it to another one, which begins anew and does nothing else. Otherwise
short programs would never have what takes half a minute. A killed process leaves nothing."""

from __future__ import annotations

import atexit
import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from dwconv import settings
from dwconv.errors import BuildError, NotKept
from dwconv.native.attempt import Attempt
from dwconv.native.compile import Extension
from dwconv.native.once import try_lock
from dwconv.system import private_files

LIMIT_S = 4 * 3600.0
"""No caller blocks on it, and a busy machine leaves it little."""

# It has the import path of the process that ended: with -m it would also import from the current folder.
_BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from dwconv.native.background import go_on; go_on()"


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
        atexit.register(self._end)

    def _run(self) -> None:
        with self._attempt:
            self._work(self._attempt)

    def _end(self) -> None:
        if self._attempt.give_up():
            leave_to_another_process()


def leave_to_another_process() -> None:
    """Start the process that compiles it, of which this one hears no more. It belongs to no terminal and holds nothing
    open: nothing waits for it. A program that has Python inside cannot be started so."""
    if getattr(sys, "frozen", False) or not Path(sys.executable or "").name.startswith("python"):
        return
    path = [entry or str(Path.cwd()) for entry in sys.path]
    nothing = subprocess.DEVNULL
    with contextlib.suppress(OSError, RuntimeError):  # the next process begins anew
        process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, json.dumps(path)], stdin=nothing, stdout=nothing, stderr=nothing,
            start_new_session=True,
        )  # fmt: skip
        process.returncode = 0  # Python would warn of a child that still runs


def go_on() -> None:
    """All that this process does. One of this user does it at a time: others have nothing to add."""
    with contextlib.suppress(BuildError, ImportError, NotKept, OSError):
        lock = private_files.open_lock(settings.cache_folder() / "native" / "going-on.lock")
        if not try_lock(lock):  # held until this process ends
            return
        extension = Extension()
        if extension.load_cached() is None:
            extension.prepare()
            with Attempt(limit_s=LIMIT_S, in_background=True) as attempt:
                extension.compile(attempt)
