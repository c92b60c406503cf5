"""Compiles the libraries of the stand-in for the installed PyTorch."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch

from dwconv import settings

_HERE = Path(__file__).parent
DRIVER, DEVICE, REST = "libcuda.so.1", "device.so", "rest.so"


def why_not() -> str:
    """The reason why they cannot be compiled; empty if they can."""
    if not sys.platform.startswith("linux"):
        return "the stand-in for a GPU is for Linux"
    if missing := [name for name in ("gcc", "g++") if shutil.which(name) is None]:
        return f"the stand-in for a GPU needs {' and '.join(missing)}"
    if importlib.util.find_spec("nvidia.cu13") is None or importlib.util.find_spec("cuda.bindings") is None:
        return "the stand-in for a GPU needs the extra cuda"
    if torch.version.cuda is not None:
        return "the stand-in for a GPU is for PyTorch's build for CPUs; run tests/standin/on_gpu on a GPU"
    return ""


def usual_folder() -> Path:
    """The folder that keeps them: a different one for other sources, or another PyTorch."""
    sources = sorted(path for suffix in ("c", "cc", "h") for path in _HERE.glob(f"*.{suffix}"))
    told = "".join([*(path.read_text() for path in sources), torch.__version__, torch.__file__])
    return settings.cache_folder() / "stand-in" / hashlib.sha256(told.encode()).hexdigest()[:16]


def driver(folder: Path) -> Path:
    """Compile libcuda.so.1, in a moment."""
    return _made(folder / DRIVER, ["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{DRIVER}",
                                   str(_HERE / "driver.c")])  # fmt: skip


def device(folder: Path) -> Path:
    """Compile PyTorch's device, in ten seconds."""
    return _made(folder / DEVICE, _with_pytorch("-O0", _HERE / "device.cc"))


def rest(folder: Path) -> Path:
    """Compile the device at rest, in half a minute: it may not take the host's time that it is to show."""
    return _made(folder / REST, _with_pytorch("-O2", _HERE / "rest.cc"))


def _with_pytorch(optimised: str, source: Path) -> list[str]:
    from torch.utils.cpp_extension import include_paths, library_paths

    return [
        "g++", "-std=c++20", optimised, "-w", "-shared", "-fPIC", *(f"-I{path}" for path in include_paths()),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", str(source),
        *(f"-L{path}" for path in library_paths()), *(f"-Wl,-rpath,{path}" for path in library_paths()),
        "-lc10", "-ltorch_cpu",
    ]  # fmt: skip


def _made(path: Path, command: list[str]) -> Path:
    """The library at ``path``; of several processes that need it, one compiles it. Raises RuntimeError."""
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            new = path.with_suffix(".new")
            done = subprocess.run([*command, "-o", str(new)], capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{command[0]} failed: {done.stderr[:2000]}")
            new.replace(path)
    return path


def library_path(folder: Path) -> str:
    """LD_LIBRARY_PATH with which a process finds the driver, and NVIDIA's runtime as with PyTorch's CUDA build."""
    toolkit = importlib.util.find_spec("nvidia.cu13")
    assert toolkit is not None
    folders = [str(folder), *(f"{path}/lib" for path in toolkit.submodule_search_locations or ())]
    return os.pathsep.join(folders)
