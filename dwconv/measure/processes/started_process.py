"""Running: a started worker process, with everything that has to be cleaned up after it.

Its folder holds its temporary files and its output. The output goes to a file that stays locked while the worker, its
children or their parent have it open. A folder whose file is not locked is abandoned, and a later start removes it.
On Linux the process is watched from outside, where the code that runs in it cannot interfere.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from dwconv import settings
from dwconv.measure.processes.worker import kill_with_children
from dwconv.system import interpreter

_PREFIX = "dwconv-worker-"
_PRINTED = "printed"
_TAIL_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class Scratch:
    """``folder``, and the ``descriptor`` of the file for output in it, open for appending."""

    folder: str
    descriptor: int

    @classmethod
    def make(cls) -> Scratch:
        """A new folder. Raises OSError."""
        _sweep(tempfile.gettempdir())
        while True:
            folder = tempfile.mkdtemp(prefix=_PREFIX)
            try:
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                descriptor = os.open(Path(folder) / _PRINTED, flags, mode=0o600)
            except FileNotFoundError:  # swept before it could be locked
                continue
            except OSError:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            with contextlib.suppress(OSError):  # a file system without locks: then nothing is swept either
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return cls(folder=folder, descriptor=descriptor)
            os.close(descriptor)

    @property
    def printed_bytes(self) -> int:
        """Size of the output since ``forget_printed``."""
        return os.fstat(self.descriptor).st_size

    def forget_printed(self) -> None:
        """Empty the output file, so that it holds the next request's output alone."""
        os.ftruncate(self.descriptor, 0)

    def last_words(self) -> str:
        """The last line that was printed."""
        printed = os.pread(self.descriptor, _TAIL_BYTES, max(0, self.printed_bytes - _TAIL_BYTES))
        lines = [line.strip() for line in printed.decode(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "")[:200]

    def remove(self) -> None:
        """Remove the folder with everything in it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self.descriptor)


@cache
def _sweep(parent: str) -> None:
    """Remove folders in ``parent`` of this user's workers that were killed together with their parents."""
    for folder in Path(parent).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or in use, or another process is sweeping
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            if not (folder / _PRINTED).exists():  # killed before there was anything in it
                folder.rmdir()
                continue
            with (folder / _PRINTED).open("r+b") as printed:
                fcntl.flock(printed, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)


class ProcessWatch:
    """Watches a process and its children: ``resident_bytes`` is the memory they take, ``waited_s`` how long they were
    ready to run but had no core. Both are 0 if the system does not report them."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._waited_ns: dict[str, int] = {}
        self.resident_bytes = 0
        self.waited_s = 0.0

    def look(self) -> None:
        """Read both. Of the threads, the one that waited longest since the last look counts: others may have waited for
        it."""
        waited_ns: dict[str, int] = {}
        resident_bytes = 0
        for process in _with_children(str(self._pid)):
            resident_bytes += _field(f"/proc/{process}/statm", 1) * resource.getpagesize()
            for thread in _threads(process):
                waited_ns[thread] = _field(f"/proc/{process}/task/{thread}/schedstat", 1)
        longest_ns = max((now - self._waited_ns.get(thread, 0) for thread, now in waited_ns.items()), default=0)
        self.waited_s += longest_ns / 1e9
        self.resident_bytes = resident_bytes
        self._waited_ns = waited_ns

    def begin(self) -> None:
        """Look, and count the waiting time from now on."""
        self.look()
        self.waited_s = 0.0


def _with_children(process: str) -> Iterator[str]:
    yield process
    for thread in _threads(process):
        for child in _words(f"/proc/{process}/task/{thread}/children"):
            yield from _with_children(child)


def _threads(process: str) -> list[str]:
    try:
        return os.listdir(f"/proc/{process}/task")  # noqa: PTH208  names are all that is needed
    except OSError:
        return []


def _field(path: str, position: int) -> int:
    words = _words(path)
    return int(words[position]) if len(words) > position else 0


def _words(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").split()
    except OSError:  # it has ended
        return []


_BOOT = "from dwconv.measure.processes.worker import main; main(int(sys.argv[2]), *sys.argv[3:])"


@dataclass(frozen=True, kw_only=True)
class Running:
    """A started worker process; ``connection`` is our end of the socket to it."""

    process: subprocess.Popen[bytes]
    connection: socket.socket
    scratch: Scratch
    watch: ProcessWatch

    @classmethod
    def start(cls, role: str, *, threads: int, vector_set: str | None = None, gpu: int = 0) -> Running:
        """Start a worker, in which PyTorch uses no wider vectors than ``vector_set``, and which has this process's
        ``gpu``. Raises OSError, and then leaves nothing behind."""
        environment = settings.worker_environment(threads=threads, vector_set=vector_set, gpu=gpu)
        with contextlib.ExitStack() as undo:
            scratch = Scratch.make()
            undo.callback(scratch.remove)
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            with theirs:
                process = subprocess.Popen(
                    interpreter.command(_BOOT, str(theirs.fileno()), role, scratch.folder),
                    stdin=subprocess.DEVNULL,
                    stdout=scratch.descriptor,
                    stderr=scratch.descriptor,
                    env={**environment, "TMPDIR": scratch.folder},
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            undo.pop_all()
        return cls(process=process, connection=ours, scratch=scratch, watch=ProcessWatch(process.pid))

    @property
    def cpu_s(self) -> float:
        """What it and its children that have ended have taken of a core; 0 once it has ended itself."""
        try:
            times = psutil.Process(self.process.pid).cpu_times()
        except psutil.Error:
            return 0.0
        return float(times.user + times.system + times.children_user + times.children_system)

    def end(self) -> int:
        """End it with all processes that it started; return its exit status."""
        self.connection.close()
        kill_with_children(self.process.pid)  # it is not reaped yet, so the number is still its own
        status = self.process.wait()
        self.scratch.remove()
        return status
