"""Running: a started worker process, with everything that has to be cleaned up after it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from dwconv import settings
from dwconv.measure.processes.scratch import Scratch
from dwconv.measure.processes.watch import Watch
from dwconv.measure.processes.worker import kill_with_children

# The worker has the import path of this process: with -m it would also import from the current folder.
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from dwconv.measure.processes.worker import main; main(int(sys.argv[2]), *sys.argv[3:])"
)


@dataclass(frozen=True, kw_only=True)
class Running:
    """A started worker process; ``connection`` is our end of the socket to it."""

    process: subprocess.Popen[bytes]
    connection: socket.socket
    scratch: Scratch
    watch: Watch

    @classmethod
    def start(
        cls, role: str, *, threads: int, vector_set: str | None = None, gpu: int = 0, makes_way: bool = False
    ) -> Running:
        """Start a worker, in which PyTorch uses no wider vectors than ``vector_set``, and which has this process's
        ``gpu``; one that ``makes_way`` takes idle cores alone. Raises OSError, and then leaves nothing behind."""
        environment = settings.worker_environment(threads=threads, vector_set=vector_set, gpu=gpu)
        path = [entry or str(Path.cwd()) for entry in sys.path]
        with contextlib.ExitStack() as undo:
            scratch = Scratch.make()
            undo.callback(scratch.remove)
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-c", _BOOT, json.dumps(path), str(theirs.fileno()), role, scratch.folder],
                    stdin=subprocess.DEVNULL,
                    stdout=scratch.descriptor,
                    stderr=scratch.descriptor,
                    env={**environment, "TMPDIR": scratch.folder},
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            if makes_way:
                _give_least_priority(process.pid)  # from here: its imports alone take seconds
            undo.pop_all()
        return cls(process=process, connection=ours, scratch=scratch, watch=Watch(process.pid))

    def end(self) -> int:
        """End it with all processes that it started; return its exit status."""
        self.connection.close()
        kill_with_children(self.process.pid)  # it is not reaped yet, so the number is still its own
        status = self.process.wait()
        self.scratch.remove()
        return status


def _give_least_priority(process: int) -> None:
    with contextlib.suppress(OSError):  # it has ended; the next request says why
        os.setpriority(os.PRIO_PROCESS, process, 19)
        if hasattr(os, "SCHED_IDLE"):  # Linux: a thread that wakes up finds the core as if it were idle
            os.sched_setscheduler(process, os.SCHED_IDLE, os.sched_param(0))
    with contextlib.suppress(OSError):  # Linux shares cores among sessions first, whatever their processes' priorities
        Path(f"/proc/{process}/autogroup").write_text("10")
