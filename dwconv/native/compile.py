"""Compile the C++ next to this file for the PyTorch and the Python that run it, once; and load it."""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from dwconv import settings
from dwconv.errors import BuildError

_NAME = "dwconv_native"
_SOURCES = ("convolve.cpp", "calls.h", "kernel.h")
"""The first is what is compiled."""
_FLAGS = ("-std=c++20", "-O2", "-fvisibility=hidden", "-shared", "-fPIC", "-w")
_LIBRARIES = ("c10", "torch_cpu", "torch", "torch_python")
_TIMEOUT_S = 100.0


def load_compiled() -> Any:
    """The module. Raises BuildError if it cannot be compiled, ImportError if it cannot be loaded."""
    if sys.platform != "linux":
        raise BuildError(f"it is compiled on Linux only, not on {sys.platform}")
    compiler = settings.cpp_compiler()
    if compiler is None:
        raise BuildError("DWCONV_NATIVE=0 asks for that")
    path = _path(compiler)
    if not path.exists():
        _compile(compiler, path)
    loader = importlib.machinery.ExtensionFileLoader(_NAME, str(path))
    spec = importlib.util.spec_from_file_location(_NAME, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def is_compiled() -> bool:
    """True if ``load_compiled`` finds it done."""
    compiler = settings.cpp_compiler()
    return compiler is not None and _path(compiler).exists()


def _path(compiler: str) -> Path:
    return settings.cache_folder() / "native" / f"{_NAME}-{_key(compiler)}.so"


def _key(compiler: str) -> str:
    """What the same sources could be compiled to something else by."""
    told = (*map(_text, _SOURCES), torch.__version__, sys.version, platform.machine(), compiler, *_FLAGS)
    return hashlib.sha256("\0".join(told).encode()).hexdigest()[:16]


def _compile(compiler: str, path: Path) -> None:
    from torch.utils.cpp_extension import include_paths, library_paths

    with tempfile.TemporaryDirectory(prefix="dwconv-") as folder:
        for name in _SOURCES:
            Path(folder, name).write_text(_text(name))
        built = Path(folder, path.name)
        command = [
            compiler, *_FLAGS, *(f"-I{include}" for include in (*include_paths(), sysconfig.get_path("include"))),
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", str(Path(folder, _SOURCES[0])),
            "-o", str(built), *(f"-L{library}" for library in library_paths()), *(f"-l{name}" for name in _LIBRARIES),
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
        except FileNotFoundError:
            raise BuildError(f"there is no C++ compiler {compiler}; install one, or name it in CXX") from None
        except subprocess.TimeoutExpired:
            raise BuildError(f"{compiler} took more than {_TIMEOUT_S:.0f} s") from None
        if done.returncode:
            wrong = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or ["?"]
            raise BuildError(f"{compiler} failed: {wrong[0].strip()}")
        path.parent.mkdir(parents=True, exist_ok=True)
        # Several processes may be at it: each puts its own in place whole, and any of them will do.
        whole = path.with_name(f"{path.name}.{os.getpid()}")
        whole.write_bytes(built.read_bytes())
        whole.replace(path)


def _text(name: str) -> str:
    return resources.files("dwconv.native").joinpath(name).read_text()
