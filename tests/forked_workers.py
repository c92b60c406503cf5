"""Worker processes of tests, forked from one that has imported what all of them import: a start takes no seconds.

The first one that is wanted with some environment starts that process, for all processes of the run. It has this
environment from the beginning, but for what dwconv and Python read late; and it ends with the folder of the run. A
worker that is forked differs from one that is started in nothing that the product sees: its own process group, folder,
socket and environment, and no file of the process that it comes from. Tests of starting take real ones
(``started_anew``).
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

FOLDER = "DWCONV_TESTS_FOLDER"
"""The variable that names the folder of the run."""
_READ_LATE = ("DWCONV_", "STAND_IN_", "XDG_", "PYTEST_", "RAY_", "TMPDIR", "HOME", "PATH", "CXX", "CC", "PWD", "OLDPWD", "_")
"""Beginnings of the names of variables that change nothing of what is imported."""
_PATIENCE_S = 300.0


def shim() -> SimpleNamespace:
    """For ``subprocess`` where worker processes are started."""
    return SimpleNamespace(Popen=Forked, DEVNULL=subprocess.DEVNULL)


class Forked:
    """What is used of ``subprocess.Popen``."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        env: Mapping[str, str],
        pass_fds: Sequence[int],
        start_new_session: bool,
    ) -> None:
        assert command[:2] == [sys.executable, "-c"] and stdout == stderr and start_new_session
        told = {"code": command[2], "arguments": command[3:], "environment": dict(env), "as": list(pass_fds),
                "folder": str(Path.cwd())}  # fmt: skip
        self._connection = _connect(env)
        data = json.dumps(told).encode()
        socket.send_fds(self._connection, [len(data).to_bytes(4, "big")], [stdout, *pass_fds])
        self._connection.sendall(data)
        self.pid = int.from_bytes(_exactly(self._connection, 4), "big", signed=True)
        self.returncode: int | None = None
        if self.pid <= 0:
            self._connection.close()
            raise OSError(-self.pid, os.strerror(-self.pid))

    def wait(self) -> int:
        if self.returncode is None:
            try:
                self.returncode = int.from_bytes(_exactly(self._connection, 4), "big", signed=True)
            except (EOFError, OSError):  # the run ends
                self.returncode = -signal.SIGKILL
            self._connection.close()
        return self.returncode

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self.wait()
        return self.returncode


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise EOFError("the process that forks is gone")
        data += part
    return data


def _connect(env: Mapping[str, str]) -> socket.socket:
    kept = {name: value for name, value in env.items() if not name.startswith(_READ_LATE)}
    number = hashlib.sha256(json.dumps([kept, sys.executable], sort_keys=True).encode()).hexdigest()[:12]
    folder = Path(os.environ[FOLDER])
    path = folder / f"fork-{number}"
    with (folder / f"fork-{number}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        connection = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            connection.connect(str(path))
            return connection
        path.unlink(missing_ok=True)
        with (folder / f"fork-{number}.log").open("w") as log:
            subprocess.Popen(
                [sys.executable, "-c", _BOOT, json.dumps(sys.path), str(path)], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env={**env, "TMPDIR": str(folder)}, start_new_session=True,
            )  # fmt: skip
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                connection.connect(str(path))
                return connection
            time.sleep(0.01)
        raise OSError(f"{path} does not begin")


_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from tests.forked_workers import serve; serve(sys.argv[2])"
)


def serve(path: str) -> None:
    """Fork a worker for each connection, and tell it how the worker ended; until the folder of the run is gone."""
    gc.disable()
    import torch  # noqa: F401
    import tvm  # noqa: F401

    import dwconv.measure.measuring
    import dwconv.measure.processes.worker  # noqa: F401

    gc.freeze()  # a search would copy all pages that are shared
    gc.enable()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"{path}.new")
    listening.listen(64)
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Path(f"{path}.new").rename(path)
    ends: dict[int, socket.socket] = {}
    while Path(path).exists() or ends:
        ready = select.select([listening, woken], [], [], 1.0)[0]
        if woken in ready:
            os.read(woken, 4096)
        _bury(ends)
        if listening in ready:
            connection, _ = listening.accept()
            with contextlib.suppress(OSError, EOFError):  # the one that asked is gone
                _fork(connection, ends)


def _bury(ends: dict[int, socket.socket]) -> None:
    while ends:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        connection = ends.pop(pid)
        with contextlib.suppress(OSError), connection:
            connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))


def _fork(connection: socket.socket, ends: dict[int, socket.socket]) -> None:
    data, descriptors, *_ = socket.recv_fds(connection, 4, 16)
    told = json.loads(_exactly(connection, int.from_bytes(data, "big")))
    try:
        pid = os.fork()
    except OSError as error:
        pid = -(error.errno or 1)
    if pid == 0:
        _become_worker(told, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    ends[pid] = connection
    connection.sendall(pid.to_bytes(4, "big", signed=True))
    if pid < 0:
        ends.pop(pid).close()


def _become_worker(told: dict[str, Any], descriptors: list[int]) -> None:
    """Never returns."""
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        high = [fcntl.fcntl(each, fcntl.F_DUPFD, 1000) for each in descriptors]
        os.closerange(3, 1000)
        for each, number in zip(high[1:], told["as"], strict=True):
            os.dup2(each, number, inheritable=True)
        for number in (1, 2):
            os.dup2(high[0], number, inheritable=True)
        os.closerange(1000, 1100)
        os.chdir(told["folder"])
        os.environ.clear()
        os.environ.update(told["environment"])
        sys.argv[:] = ["-c", *told["arguments"]]
        exec(told["code"], {"__name__": "__main__"})
        status = 0
    except SystemExit as exit:
        status = exit.code if isinstance(exit.code, int) else 1
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
        status = 1
    os._exit(status)
