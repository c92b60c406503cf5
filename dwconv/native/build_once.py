"""A build of half a minute is made once: by one process of this user at a time, and kept for the others.

    name.sealed   what was made
    name.lock     locked while a process makes it; the system unlocks it when that process ends
    name.failed   why the last attempt failed: no process tries again for ten minutes

    a process that needs it ── takes the lock ──► a process that does nothing else, and inherits the lock
             ▲                                        runs the compiler, and keeps what it made, or the failure
             └──────────── what was made ─────────────┘

The second process goes on when the first one ends: otherwise short programs would never have it. A process that finds
the lock taken waits for it, and then has what the other made, or the reason of its failure. On a file system without
locks each process makes its own.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dwconv.errors import BuildError, NotKept
from dwconv.system import forks, interpreter, private_files

try:
    import fcntl
except ModuleNotFoundError:  # Windows, where nothing is made
    fcntl = None  # type: ignore[assignment]

FAILURE_COUNTS_S = 600.0
"""Long enough for all processes of one run; short enough once the cause is mended."""
_LIMIT_S = 4 * 3600.0
"""Of the compiler: a busy machine leaves a process of low priority little."""
_NICENESS = 10
"""In the background. At 19 a compiler starves where training keeps all cores busy."""
_POLL_S = 0.1
_WHAT = "the C++ of calls"

_BOOT = "from dwconv.native.build_once import serve; serve()"

_log = logging.getLogger(__name__)


class NoTimeToCompile(BuildError):
    """It may work on another day."""


@dataclass(frozen=True, kw_only=True)
class Made:
    content: bytes
    not_kept: str = ""
    """Why the next process has to make it again; empty if it will find it."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """What to compile: ``command`` makes ``result`` of the sources, in a private folder."""

    command: Sequence[str]
    sources: Mapping[str, str]
    result: str

    def run(self) -> bytes:
        """Raises BuildError with the first complaint of the compiler."""
        # No TemporaryDirectory: a process that is forked meanwhile would remove it when it ends.
        folder, compiler = Path(tempfile.mkdtemp(prefix="dwconv-")), Path(self.command[0]).name
        try:
            for name, text in self.sources.items():
                (folder / name).write_text(text, encoding="utf-8")
            try:
                done = subprocess.run(
                    self.command, cwd=folder, env={**os.environ, "TMPDIR": str(folder)}, stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8", errors="replace",
                    timeout=_LIMIT_S,
                )  # fmt: skip
            except OSError as error:
                raise BuildError(f"{compiler} cannot be run: {error.strerror}") from None
            except subprocess.TimeoutExpired:
                raise NoTimeToCompile(f"{compiler} took more than {_LIMIT_S:.0f} s") from None
            built, lines = folder / self.result, done.stderr.splitlines()
            if done.returncode or not built.exists():
                wrong = [line for line in lines if "error" in line] or lines or [f"exit status {done.returncode}"]
                raise BuildError(f"{compiler} failed: {wrong[0].strip()}")
            return built.read_bytes()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def made_once(
    path: Path, build: Build, *, limit_s: float, in_background: bool = False, instead_of: bytes | None = None
) -> Made:
    """What ``build`` makes, kept at ``path``; or what another process made meanwhile, unless it is ``instead_of``.
    ``in_background``: no caller blocks on it, so it takes the CPU that others leave. Raises BuildError, also for a
    failure not long ago; NoTimeToCompile when time is up, though it goes on."""
    deadline = time.monotonic() + limit_s
    where = " in the background" if in_background else ""
    try:
        lock = forks.Descriptor(private_files.open_lock(path.with_suffix(".lock")))
    except NotKept as error:
        _log.warning("dwconv: compiling %s%s for this process alone: about half a minute", _WHAT, where)
        made = _by_another_process(None, build, limit_s=limit_s, in_background=in_background)
        return Made(content=made.content, not_kept=str(error))
    try:
        _wait_for(lock, deadline=deadline, in_background=in_background)
        found = private_files.read_sealed(path)
        if found is not None and found != instead_of:
            return Made(content=found)
        if failure := _failure(path):
            raise BuildError(failure)
        _log.warning("dwconv: compiling %s%s: about half a minute, once", _WHAT, where)
        left_s = max(0.0, deadline - time.monotonic())
        return _by_another_process(path, build, limit_s=left_s, in_background=in_background, lock=lock)
    finally:
        lock.close()  # the process that makes it still has it


def _wait_for(lock: forks.Descriptor, *, deadline: float, in_background: bool) -> None:
    """Raises NoTimeToCompile."""
    if _try_lock(lock.number):
        return
    then = "used here when it is ready" if in_background else "this process waits for it, about half a minute"
    _log.warning("dwconv: another process compiles %s: %s", _WHAT, then)
    while not _try_lock(lock.number):
        if time.monotonic() > deadline:
            raise NoTimeToCompile("another process has been compiling it for too long")
        time.sleep(_POLL_S)


def _try_lock(lock: int) -> bool:
    """False if another process has it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no locks here: each for itself
        return True
    return True


def _failure(path: Path) -> str:
    """Why it failed not long ago; empty if it did not."""
    note = private_files.read_sealed(path.with_suffix(".failed"))
    when, _, reason = (note or b"0 ").decode(errors="replace").partition(" ")
    ago_s = time.time() - float(when)
    return f"{reason} ({ago_s:.0f} s ago)" if 0 <= ago_s < FAILURE_COUNTS_S else ""


def note_failure(path: Path, error: Exception) -> None:
    """For the next ten minutes no process makes what belongs at ``path``."""
    with contextlib.suppress(NotKept):
        note = f"{int(time.time())} {error}".encode(errors="replace")
        private_files.write_sealed(path.with_suffix(".failed"), note, durable=False)


# -- the process that makes it -----------------------------------------------------------------------------------------


def _by_another_process(
    path: Path | None, build: Build, *, limit_s: float, in_background: bool, lock: forks.Descriptor | None = None
) -> Made:
    """It belongs to no terminal, and goes on if this process ends. A program that has Python inside cannot start it,
    and makes it itself. ``path``: where it is kept, if it is."""
    if interpreter.interpreter() is None:
        answer, content = keep(path, build)
    else:
        request = {"path": path and str(path), "build": vars(build), "niceness": _NICENESS if in_background else 0}
        process = subprocess.Popen(
            interpreter.command(_BOOT), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True, pass_fds=[lock.number] if lock else [],
        )  # fmt: skip
        try:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError), process.stdin as given:  # also where no time is left: it goes on
                given.write(json.dumps(request).encode())
            process.stdin = None
            output, _ = process.communicate(timeout=limit_s)
        except BaseException as error:  # ctrl-C, too
            process.returncode = 0  # Python would warn of a child that still runs
            if isinstance(error, subprocess.TimeoutExpired):
                _make_way(process.pid)
                raise NoTimeToCompile(f"compiling it takes more than {limit_s:.0f} s") from None
            raise
        first, _, content = output.partition(b"\n")
        answer = json.loads(first or b'{"failed": "the process that compiled it ended without a result"}')
    if failed := answer.get("failed"):
        raise BuildError(failed)
    kept = private_files.read_sealed(path) if path and not content else content
    if not kept:
        raise BuildError("what was compiled is gone")
    return Made(content=kept, not_kept=answer.get("not_kept", ""))


def _make_way(group: int) -> None:
    """A process that no caller blocks on any more, and its compiler, leave the CPU to what goes on without them."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PGRP, group, 19)


def serve() -> None:
    """All that this process does."""
    request = json.load(sys.stdin)
    os.nice(request["niceness"])
    _write("/proc/self/autogroup", request["niceness"])  # where sessions share the CPU, it is nice inside its own only
    _write("/proc/self/oom_score_adj", 1000)  # the first to go when memory runs out
    answer, content = keep(request["path"] and Path(request["path"]), Build(**request["build"]))
    is_kept = request["path"] and not answer
    with contextlib.suppress(BrokenPipeError):  # the process that needed it is gone
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + (b"" if is_kept else content))
        sys.stdout.buffer.flush()


def keep(path: Path | None, build: Build) -> tuple[dict[str, Any], bytes]:
    """Make it, and keep it, or the reason of a failure. What went wrong, and what was made."""
    try:
        content = build.run()
    except BuildError as error:
        if path and not isinstance(error, NoTimeToCompile):
            note_failure(path, error)
        return {"failed": str(error)}, b""
    try:
        if path:
            private_files.write_sealed(path, content, durable=True)
    except NotKept as error:
        return {"not_kept": str(error)}, content
    return {}, content


def _write(path: str, number: int) -> None:
    with contextlib.suppress(OSError):
        Path(path).write_text(str(number), encoding="utf-8")
