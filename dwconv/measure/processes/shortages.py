"""What the machine is short of, recognised in errors and output. It says nothing about the candidate that was running:
Patience tries that again.
"""

from __future__ import annotations

import errno
import os
import tempfile
import time

from dwconv import settings
from dwconv.errors import EnvironmentFailure, Shortage, WorkerCannotStart, WorkerError, say
from dwconv.system import memory

_OF_ERRNO = {
    errno.ENOSPC: Shortage.DISK,
    errno.EDQUOT: Shortage.DISK,
    errno.ENOMEM: Shortage.MEMORY,
    errno.EMFILE: Shortage.FILES,
    errno.ENFILE: Shortage.FILES,
    errno.EAGAIN: Shortage.PROCESSES,
}
# The messages that libraries and compilers print for the same errors.
_OF_WORDS = {
    **{os.strerror(number): shortage for number, shortage in _OF_ERRNO.items()},
    "can't start new thread": Shortage.PROCESSES,
    "std::bad_alloc": Shortage.MEMORY,
    "CUDA out of memory": Shortage.GPU_MEMORY,
    "CUDA error: out of memory": Shortage.GPU_MEMORY,
    "CUDA_ERROR_OUT_OF_MEMORY": Shortage.GPU_MEMORY,
}


def shortage_of(error: BaseException) -> Shortage | None:
    """The shortage that ``error``, or an error that caused it, is about; None if it is about something else."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, MemoryError):
            return Shortage.MEMORY
        if isinstance(seen, OSError) and seen.errno in _OF_ERRNO:
            return _OF_ERRNO[seen.errno]
        if found := shortage_in(str(seen)):
            return found
        seen = seen.__cause__ or seen.__context__  # also of one that is not shown: it says what was short
    return None


def shortage_in(words: str) -> Shortage | None:
    """The shortage that the last line of a process's output is about; None if it is about something else."""
    return next((shortage for telling, shortage in _OF_WORDS.items() if telling in words), None)


class Patience:
    """Decides whether an error of one request is the request's own fault, the machine's, or not clear yet.

    ``needs_bytes``: the memory that the request is known to need."""

    def __init__(self, *, needs_bytes: int = 0) -> None:
        self._needs_bytes = needs_bytes
        self._failures = 0

    def again(self, error: WorkerError) -> bool:
        """True, after a pause, if the request should be tried again, this time alone; False if it is to blame.

        Raises EnvironmentFailure if the machine is to blame and does not recover. Raises ``error`` itself if no worker
        can start: no request is to blame for that."""
        if not self._worth_another_try(error):
            if isinstance(error, WorkerCannotStart):
                raise error
            return False
        if error.is_nonsense:
            return True
        if self._failures > len(settings.RETRY_PAUSES_S):
            raise EnvironmentFailure(f"the machine is short of {_name(error)}: {error}; {_way_out(error)}") from None
        pause_s = settings.RETRY_PAUSES_S[self._failures - 1]
        say(f"note: short of {_name(error)}: {error}; trying again in {pause_s:g} s")
        time.sleep(pause_s)
        return True

    def _worth_another_try(self, error: WorkerError) -> bool:
        self._failures += 1
        of_gpu = error.shortage is Shortage.GPU_MEMORY
        kind = "cuda" if of_gpu else "cpu"
        if not error.may_be_the_machine or 2 * self._needs_bytes > memory.whole_bytes(kind):
            return False
        if self._failures == 1:
            return True
        # It has run alone. If memory was short then and is not now, its own demand was the reason.
        enough = memory.free_bytes(kind) >= max(memory.LITTLE_BYTES, 2 * self._needs_bytes)
        return error.shortage is not None and not ((of_gpu or error.shortage is Shortage.MEMORY) and enough)


def _name(error: WorkerError) -> str:
    assert error.shortage is not None
    return error.shortage.value


def _way_out(error: WorkerError) -> str:
    match error.shortage:
        case Shortage.DISK:
            way = f"make room in {tempfile.gettempdir()} or set TMPDIR to another folder"
        case Shortage.MEMORY:
            way = "close other programs or use fewer --jobs"
        case Shortage.GPU_MEMORY:
            way = "end other programs on the GPU (nvidia-smi lists them) or tune a smaller batch"
        case Shortage.FILES:
            way = "raise the limit (ulimit -n)"
        case Shortage.PROCESSES:
            way = "raise the limit (ulimit -u) or use fewer --jobs"
        case _:
            way = "close other programs"
    return f"{way}, then run the same command again"
