"""Attempt: one compilation, in the foreground or in the background. It ends with this process.

    this process ── pipe ──► sh, in a session of its own
                              ├── watcher     reads the pipe; once that is closed, ends the rest and removes the folder
                              └── nice ──► the compiler ──► its children

The system closes the pipe when this process ends, even if it is killed. A process that is forked from it closes its own
end at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from dwconv.errors import BuildError
from dwconv.system import forks

# The shell prints nothing: stderr is the compiler's.
_SCRIPT = """
folder=$1 niceness=$2
shift 2
exec 3<&0 </dev/null 4>&2 2>/dev/null
export TMPDIR="$folder"
echo "$niceness" > "/proc/$$/autogroup"  # where sessions share the CPU, a nice process is nice inside its own only
echo 1000 > "/proc/$$/oom_score_adj"  # the first to go when memory runs out
{
  trap '' TERM
  while read -r nothing; do :; done <&3  # until the other end is closed
  kill -KILL $$
  kill -TERM 0
  rm -rf "$folder"
  kill -KILL 0
} 4>&- &
watcher=$!
(exec nice -n "$niceness" "$@" 3<&- 2>&4 4>&-)
status=$?
kill -KILL $watcher
exit $status
"""
_NICENESS = 10
"""In the background. At 19 a compiler starves where training keeps all cores busy."""
_END_S = 5.0


class OutOfTime(BuildError):
    """It may work on another day."""


class Attempt:
    """``limit_s``: how long it may take. ``in_background``: no caller blocks on it, so it takes idle CPU time only.

    Once it is given up, or left as a context, everything that it runs is ended."""

    def __init__(self, *, limit_s: float, in_background: bool = False) -> None:
        self.limit_s = limit_s
        self.in_background = in_background
        self.waits = False
        """True while another process makes what it is for."""
        self._given_up = threading.Event()
        self._at_work = forks.Lock()
        self._read_end, self._write_end = map(forks.Descriptor, os.pipe())

    def __enter__(self) -> Attempt:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End what still runs."""
        self._write_end.close()
        self._read_end.close()

    def give_up(self) -> bool:
        """The same from another thread, when the process ends: the attempt raises OutOfTime. Blocks only until
        what must not be interrupted: a compiler on a busy machine takes seconds to die. True if nothing makes now what
        it was for."""
        if not self._write_end.is_open:  # it is over; or this is a child, whose parent makes the attempt
            return False
        is_ours = not self.waits
        self._given_up.set()
        self._write_end.close()  # the other end may be in use
        if self._at_work.acquire(timeout=_END_S):
            self._at_work.release()
        return is_ours

    @contextlib.contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """For the library that is loaded, or the file that is written: the process does not end meanwhile. Raises
        OutOfTime if the attempt was given up."""
        with self._at_work:
            self.pause(0)
            yield

    def pause(self, seconds: float) -> None:
        """Raises OutOfTime as soon as it is given up."""
        if self._given_up.wait(seconds):
            raise OutOfTime("this process ended before it was compiled")

    def run(self, command: Sequence[str], *, folder: Path, timeout_s: float) -> tuple[int, list[str]]:
        """Exit status, as a shell has it, and lines of stderr. It runs in ``folder``, a private one, where temporary
        files go. Raises OutOfTime if it takes longer; then, and after ctrl-C, its children end, too."""
        niceness = str(_NICENESS if self.in_background else 0)
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "sh", str(folder), niceness, *command], stdin=self._read_end.number,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
                cwd=folder,
            )  # fmt: skip
        except OSError as error:
            raise BuildError(f"{command[0]} cannot be run: {error.strerror}") from None
        with process:
            try:
                _, complaints = process.communicate(timeout=timeout_s)
            except BaseException as error:  # ctrl-C, too
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                raise OutOfTime(f"{command[0]} took more than {timeout_s:.0f} s") from None
        self.pause(0)
        return process.returncode, complaints.splitlines()
