"""Compile the C++ next to this file for the PyTorch and the Python that run it, once; and load it."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from functools import partial
from importlib import resources
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any

from dwconv import private_files, settings
from dwconv.errors import BuildError
from dwconv.native.once import OutOfTime, made_once, note_failure

_NAME = "dwconv_native"
_SOURCES = ("convolve.cpp", "calls.h", "kernel.h", "code.h")
"""The first is what is compiled."""
_FLAGS = ("-std=c++20", "-O1", "-fvisibility=hidden", "-shared", "-fPIC", "-w")
_LIBRARIES = ("c10", "torch_cpu", "torch", "torch_python")
LIMIT_S = 300.0
"""For compiling it, or for waiting until another process has: half a minute is enough on a quiet machine."""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    module: Any
    not_kept: str = ""
    """Why the next process has to compile it again; empty if it is in the cache."""


def load_compiled(*, may_compile: bool = True, limit_s: float = LIMIT_S) -> Loaded | None:
    """The module, from the cache or compiled now; None if that may not be. Raises BuildError if it cannot be compiled,
    ImportError if it cannot be loaded."""
    if sys.platform != "linux":
        raise BuildError(f"it is compiled on Linux only, not on {sys.platform}")
    compiler = settings.cpp_compiler()
    if compiler is None:
        raise BuildError("DWCONV_NATIVE=0 asks for that")
    path = settings.cache_folder() / "native" / f"{_NAME}-{_key(compiler)}.sealed"
    found = private_files.read_sealed(path)
    if found is not None:
        with contextlib.suppress(ImportError):  # of another libstdc++, say: compile it for what is here
            return Loaded(module=_load(found))
    if not may_compile:
        return None
    if shutil.which(compiler) is None:
        raise BuildError(f"there is no C++ compiler {compiler}; install one, or name it in CXX")
    make = partial(_compile, compiler)
    made = made_once(path, make, what="the short way of calls", limit_s=limit_s, instead_of=found)
    try:
        return Loaded(module=_load(made.content), not_kept=made.not_kept)
    except ImportError as error:
        note_failure(path, error)
        raise


def _key(compiler: str) -> str:
    """Everything beside the sources that decides what they compile to."""
    import torch

    told = (*map(_text, _SOURCES), torch.__version__, sys.version, platform.machine(), compiler, *_FLAGS)
    return hashlib.sha256("\0".join(told).encode()).hexdigest()[:16]


def _load(content: bytes) -> Any:
    """From memory: nobody can change it between the check and now, and no file can be cut short under it later.

    The descriptor stays open, so that no other library is ever loaded under its name."""
    descriptor = os.memfd_create(_NAME)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    path = f"/proc/self/fd/{descriptor}"
    spec = importlib.util.spec_from_file_location(_NAME, path, loader=ExtensionFileLoader(_NAME, path))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compile(compiler: str, timeout_s: float) -> bytes:
    """Raises BuildError with the first complaint of the compiler."""
    import torch
    from torch.utils.cpp_extension import include_paths, library_paths

    with tempfile.TemporaryDirectory(prefix="dwconv-") as folder:
        for name in _SOURCES:
            Path(folder, name).write_text(_text(name))
        built = Path(folder, f"{_NAME}.so")
        command = [
            compiler, *_FLAGS, *(f"-I{include}" for include in (*include_paths(), sysconfig.get_path("include"))),
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", str(Path(folder, _SOURCES[0])),
            "-o", str(built), *(f"-L{library}" for library in library_paths()), *(f"-l{name}" for name in _LIBRARIES),
        ]  # fmt: skip
        status, complaints = _run(command, timeout_s=timeout_s)
        if status or not built.exists():
            wrong = [line for line in complaints if "error" in line] or complaints or [f"exit status {status}"]
            raise BuildError(f"{compiler} failed: {wrong[0].strip()}")
        return built.read_bytes()


def _run(command: list[str], *, timeout_s: float) -> tuple[int, list[str]]:
    """Exit status, and lines of stderr. Raises BuildError if it cannot be run, OutOfTime; then nothing of it goes on:
    what ``c++`` is asked to do is done by its children."""
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise BuildError(f"{command[0]} cannot be run: {error.strerror}") from error
    with process:
        try:
            _, complaints = process.communicate(timeout=timeout_s)
        except BaseException as error:  # ctrl-C, too
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise OutOfTime(f"{command[0]} took more than {timeout_s:.0f} s") from None
    return process.returncode, complaints.splitlines()


def _text(name: str) -> str:
    return resources.files("dwconv.native").joinpath(name).read_text()
