"""Worker processes of tests, forked from one that has imported what all of them import: a start takes no seconds.

The first one that is wanted with some environment starts that process, for all processes of the run. It has this
environment from the beginning, but for what dwconv and Python read late; and it ends with the folder of the run. A
worker that is forked differs from one that is started in nothing that the product sees: its own process group, folder,
socket and environment, and no file of the process that it comes from. Tests of starting take real ones
(``started_anew``).
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import hashlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from tests import kept_programs

FOLDER = "DWCONV_TESTS_FOLDER"
"""The variable that names the folder of the run."""
BRIEF = "DWCONV_TESTS_BRIEF"
"""Where this variable is set, workers of a program time kernels for a glance: see ``tests/brief_timing.py``."""
PYTORCH, WORKERS = "torch", "torch tvm dwconv.measure.timing_worker dwconv.measure.processes.worker"
"""What is imported before."""
_ROOT = Path(__file__).resolve().parents[1]
_READ_LATE = (
    "DWCONV_", "STAND_IN_", "XDG_", "PYTEST_", "RAY_", "RANK", "LOCAL_", "WORLD_", "MASTER_", "GLOO_", "TORCHELASTIC_",
    "PYTHONPATH", "TMPDIR", "HOME", "PATH", "CXX", "CC", "PWD", "OLDPWD", "COLUMNS", "NO_COLOR", "FORCE_COLOR", "_",
)  # fmt: skip
"""Beginnings of the names of variables that change nothing of what is imported."""
_PATIENCE_S, _IDLE_S, _LONGEST = 1200.0, 600.0, 100


def shim(*, preload: str = WORKERS) -> SimpleNamespace:
    """For ``subprocess`` where Python is started."""
    kept = ("DEVNULL", "PIPE", "STDOUT", "CalledProcessError", "TimeoutExpired")
    return SimpleNamespace(
        Popen=partial(popen, preload=preload),
        run=partial(run, preload=preload, capture_output=False),
        **{name: getattr(subprocess, name) for name in kept},
    )


def popen(command: Sequence[str], *, preload: str = PYTORCH, **options: Any) -> subprocess.Popen[Any]:
    """Forked where that is safe: on Linux."""
    if sys.platform == "linux":
        return Forked(command, preload=preload, **options)
    return subprocess.Popen(command, **options)


def run(
    command: Sequence[str],
    *,
    preload: str = PYTORCH,
    timeout: float | None = None,
    capture_output: bool = True,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """``subprocess.run`` of Python."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with popen(command, preload=preload, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


class Forked(subprocess.Popen):  # type: ignore[type-arg]
    """``subprocess.Popen`` of Python, with ``-c`` or ``-m``, and options before that."""

    def __init__(self, command: Sequence[str], *, preload: str = PYTORCH, **options: Any) -> None:
        self._preload = preload
        super().__init__(command, **options)

    def _execute_child(
        self, args: Sequence[str], executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Sequence[int],
        cwd: Any, env: Mapping[str, str] | None, startupinfo: Any, creationflags: Any, shell: Any,
        p2cread: int, p2cwrite: int, c2pread: int, c2pwrite: int, errread: int, errwrite: int, *others: Any,
    ) -> None:  # fmt: skip
        at = next(number for number, each in enumerate(args) if each in ("-c", "-m"))
        assert args[0] == sys.executable
        env = dict(os.environ if env is None else env)
        told = {
            "options": list(args[1:at]), "how": args[at], "what": args[at + 1], "arguments": list(args[at + 2 :]),
            "environment": env, "as": list(pass_fds), "folder": str(cwd or Path.cwd()), "session": bool(others[5]),
        }  # fmt: skip
        self._connection = _connect(env, preload=self._preload)
        data = json.dumps(told).encode()
        usual = (p2cread, c2pwrite, errwrite)
        streams = [number if each == -1 else each for number, each in enumerate(usual)]
        socket.send_fds(self._connection, [len(data).to_bytes(4, "big")], [*streams, *pass_fds])
        self._connection.sendall(data)
        self.pid = int.from_bytes(_exactly(self._connection, 4), "big", signed=True)
        self._child_created = self.pid > 0
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
        if self.pid <= 0:
            self._connection.close()
            raise OSError(-self.pid, os.strerror(-self.pid))

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if wait_flags and not select.select([self._connection], [], [], 0)[0]:
            return 0, 0
        try:
            status = int.from_bytes(_exactly(self._connection, 4), "big")
        except (EOFError, OSError):  # the run ends
            status = signal.SIGKILL
        self._connection.close()
        return self.pid, status

    def _internal_poll(self, _deadstate: int | None = None, **_: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self.returncode = os.waitstatus_to_exitcode(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise EOFError("the process that forks is gone")
        data += part
    return data


def _connect(env: Mapping[str, str], *, preload: str) -> socket.socket:
    kept = {name: value for name, value in env.items() if not name.startswith(_READ_LATE)}
    if "STAND_IN_FOLDER" in env:  # the stand-in is found so
        kept["PYTHONPATH"] = env["PYTHONPATH"]
    told = json.dumps([kept, sys.executable, preload], sort_keys=True)
    number = hashlib.sha256(told.encode()).hexdigest()[:12]
    folder = Path(os.environ[FOLDER])
    path = folder / f"fork-{number}"
    with (folder / f"fork-{number}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        connection = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            connection.connect(_address(path))
            return connection
        path.unlink(missing_ok=True)
        with (folder / f"fork-{number}.log").open("w") as log:
            forking = subprocess.Popen(
                [sys.executable, "-c", _BOOT, str(_ROOT), str(path), preload], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, cwd=_ROOT, env={**env, "TMPDIR": str(folder)}, start_new_session=True,
            )  # fmt: skip
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until and forking.poll() is None:
            with contextlib.suppress(OSError):
                connection.connect(_address(path))
                return connection
            time.sleep(0.01)
        raise OSError(f"{path} does not begin: {path.with_suffix('.log').read_text()[-2000:]}")


def _address(path: Path) -> str:
    """A name of a socket that is short enough, whatever the folder."""
    if len(str(path)) < _LONGEST:
        return str(path)
    return f"/proc/self/fd/{os.open(path.parent, os.O_PATH)}/{path.name}"


_BOOT = (
    "import sys; sys.path.insert(1, sys.argv[1]); from tests.forked import serve; sys.path.pop(1); serve(*sys.argv[2:])"
)


def serve(path: str, preload: str) -> None:
    """Fork a process for each connection, and say how it ended; until the folder of the run is gone."""
    gc.disable()
    for module in preload.split():
        import_module(module)
    for name in kept_programs.MODULES:
        if name in sys.modules:
            kept_programs.keep(sys.modules[name])
            kept_programs.sources()
    gc.freeze()  # a search would copy all pages that are shared
    gc.enable()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(_address(Path(f"{path}.new")))
    listening.listen(64)
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Path(f"{path}.new").rename(path)
    ends: dict[int, socket.socket] = {}
    own = ["", *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    sys.path[:] = [entry for entry in sys.path if entry not in own]  # each process has its own ones
    asked_s = time.monotonic()
    while ends or Path(path).exists():
        ready = select.select([listening, woken], [], [], 1.0)[0]
        if ends or ready:
            asked_s = time.monotonic()
        if time.monotonic() - asked_s > _IDLE_S:  # the run was killed
            Path(path).unlink(missing_ok=True)
        if woken in ready:
            os.read(woken, 4096)
        _bury(ends)
        if listening in ready:
            connection, _ = listening.accept()
            with contextlib.suppress(OSError, EOFError):  # the one that connected is gone
                _fork(connection, ends)


def _bury(ends: dict[int, socket.socket]) -> None:
    while ends:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        connection = ends.pop(pid)
        with contextlib.suppress(OSError), connection:
            connection.sendall(status.to_bytes(4, "big"))


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


class _AsInTests(MetaPathFinder):
    """Once a program imports what starts worker processes, these are forked, too; what it generates is kept."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if name not in ("dwconv.measure.processes.started_process", *kept_programs.MODULES):
            return None
        spec = PathFinder.find_spec(name, path, target)
        assert spec is not None and spec.loader is not None
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            if name in kept_programs.MODULES:
                kept_programs.keep(module)
                return
            module.subprocess = shim()  # type: ignore[attr-defined]
            if BRIEF in os.environ:
                path, then = module._BOOT.rsplit("from ", 1)
                module._BOOT = f"{path}import tests.brief_timing; from {then}"  # type: ignore[attr-defined]

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _open_standard_streams() -> None:
    """Those of the process that is forked are of a file, and believe that they can seek."""
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # type: ignore[misc]


def _become_worker(told: dict[str, Any], descriptors: list[int]) -> None:
    """Never returns."""
    interrupted = False
    try:
        if told["session"]:
            os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        high = [fcntl.fcntl(each, fcntl.F_DUPFD, 1000) for each in descriptors]
        os.closerange(3, 1000)
        for each, number in zip(high, [0, 1, 2, *told["as"]], strict=True):
            os.dup2(each, number, inheritable=True)
        os.closerange(1000, 1100)
        _open_standard_streams()
        os.chdir(told["folder"])
        os.environ.clear()
        os.environ.update(told["environment"])
        gc.enable()
        for option in filter(None, (each.removeprefix("-W") for each in told["options"])):
            warnings.simplefilter(option)  # type: ignore[arg-type]
        first = told["folder"] if told["how"] == "-m" else ""
        known = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        sys.path[:] = [first, *known, *sys.path]
        if FOLDER in os.environ:
            sys.meta_path.insert(0, _AsInTests())
        sys.argv[:] = [told["how"], *told["arguments"]]
        if told["how"] == "-m":
            runpy.run_module(told["what"], run_name="__main__", alter_sys=True)
        else:
            sys.modules["__main__"] = main = ModuleType("__main__")
            exec(told["what"], vars(main))
        status = 0
    except SystemExit as exit:
        status = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
        if isinstance(exit.code, str):
            print(exit.code, file=sys.stderr)
    except BaseException as error:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
        status, interrupted = 1, isinstance(error, KeyboardInterrupt)
    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    if interrupted:  # as Python ends
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status)
