"""CUDA C++ -> cubin with NVRTC from pip, called directly: 0.06 s for a small kernel, with the resources that ptxas
reports.

There may be an NVRTC of CUDA 12 and one of CUDA 13. That of PyTorch's CUDA is used, since a driver takes code of its
own CUDA or an earlier one; if it is missing, or PyTorch has none, the newest.

Arithmetic is IEEE's: multiplications and additions contract to fused ones, nothing else is relaxed unless requested.
Compiled cubins are kept on disk, by their source and options.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from dwconv import settings
from dwconv.errors import BrokenInstallation, BuildError
from dwconv.kernels.entry import key_of, message, read_entry, write_entry
from dwconv.system import versions

OPTIONS = ("--std=c++17", "--ptxas-options=-v")
IEEE = ("--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--fmad=true")
FAST_MATH = ("--use_fast_math",)


@message
@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A cubin, and the resources that its kernels need."""

    cubin: bytes
    resources: dict[str, int]
    """``registers``, ``shared_bytes`` (static), ``spill_bytes``, ``stack_bytes``: the most of any kernel."""
    kernels: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of each kernel, by name."""


@dataclass(frozen=True, kw_only=True)
class _Release:
    """Where pip has the parts of one CUDA: the modules with the folders ``lib`` and ``include``, and the packages."""

    library: str
    headers: str
    packages: tuple[str, ...]


_RELEASES = {
    13: _Release(
        library="nvidia.cu13",
        headers="nvidia.cu13",
        packages=("nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-crt"),
    ),
    12: _Release(
        library="nvidia.cuda_nvrtc",
        headers="nvidia.cuda_runtime",
        packages=("nvidia-cuda-nvrtc-cu12", "nvidia-cuda-runtime-cu12"),
    ),
}


class Nvrtc:
    """The library of one CUDA, 12 or 13, through its C interface."""

    def __init__(self, cuda: int) -> None:
        """Raises OSError where there is none."""
        self.cuda = cuda
        name = f"libnvrtc.so.{cuda}"
        folder = _folder(_RELEASES[cuda].library, "lib", name)
        self._library = ctypes.CDLL(str(folder / name) if folder else name)
        # Some releases look for this one by its name alone, where the system has its libraries.
        found = sorted(folder.glob("libnvrtc-builtins.so.*")) if folder else []
        self._builtins = [ctypes.CDLL(str(path)) for path in found]
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.version = [major.value, minor.value]

    def compile(self, source: str, options: list[str]) -> tuple[str, str, bytes]:
        """What went wrong, empty if nothing did; the log; the cubin. Raises BuildError."""
        program = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
        try:
            given = (ctypes.c_char_p * len(options))(*map(str.encode, options))
            status = self._library.nvrtcCompileProgram(program, len(options), given)
            log = self._read(program, "nvrtcGetProgramLog").rstrip(b"\0").decode(errors="replace")
            if status:
                return self._meant(status), log, b""
            return "", log, self._read(program, "nvrtcGetCUBIN")
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _read(self, program: ctypes.c_void_p, function: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"{function}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(max(size.value, 1))
        self._call(function, program, buffer)
        return buffer.raw[: size.value]

    def _call(self, function: str, *arguments: Any) -> None:
        if status := getattr(self._library, function)(*arguments):
            raise BuildError(f"NVRTC: {self._meant(status)}")

    def _meant(self, status: int) -> str:
        said: bytes = self._library.nvrtcGetErrorString(status)
        return said.decode()


def compile_cubin(source: str, *, arch: str, fast_math: bool = False) -> Compiled:
    """Compile for ``arch`` (``sm_90``), or find what was compiled before. ``fast_math`` flushes denormals to zero and
    divides approximately. Raises BuildError with the compiler's first complaint, BrokenInstallation where NVRTC is
    missing."""
    nvrtc = library()
    options = (*OPTIONS, *(FAST_MATH if fast_math else IEEE), f"--gpu-architecture={arch}")
    key = key_of(source, options, nvrtc.version, list(package_versions(nvrtc.cuda).values()))
    path = settings.cache_folder() / "cubins" / f"{key}.cubin"
    found = read_entry(path)
    if isinstance(found, Compiled):
        return found
    compiled = _compile(nvrtc, source, options, arch=arch)
    write_entry(path, compiled)
    return compiled


@cache
def library() -> Nvrtc:
    """The NVRTC that compiles here. Raises BrokenInstallation where there is none."""
    first, reason = versions.cuda_of_pytorch(), ""
    for cuda in sorted(_RELEASES, key=lambda cuda: (cuda == first, cuda), reverse=True):
        try:
            return Nvrtc(cuda)
        except OSError as error:
            reason = reason or str(error)
    raise BrokenInstallation(f"compiling for CUDA needs NVRTC ({reason}); run: {versions.install_cuda()}")


@cache
def package_versions(cuda: int) -> dict[str, str]:
    """The versions of the packages that are installed of one CUDA, 12 or 13."""
    found = {}
    for package in _RELEASES[cuda].packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def _compile(nvrtc: Nvrtc, source: str, chosen: tuple[str, ...], *, arch: str) -> Compiled:
    wrong, log, cubin = nvrtc.compile(source, [*chosen, *_headers(nvrtc, source)])
    if wrong:
        raise BuildError(f"NVRTC for {arch}: {_complaint(log) or wrong}")
    return Compiled(cubin=cubin, resources=resources(log), kernels=kernel_resources(log))


def kernel_resources(log: str) -> dict[str, dict[str, int]]:
    """The resources that ptxas reports in ``log`` for each kernel, by name."""
    names = re.findall(r"Function properties for (\w+)", log)
    parts = re.split(r"Function properties for \w+", log)[1:]
    return {name: resources(part) for name, part in zip(names, parts, strict=True)}


def resources(log: str) -> dict[str, int]:
    """The resources that ptxas reports in ``log``: the maximum over all kernels."""
    patterns = {
        "registers": r"Used (\d+) registers",
        "shared_bytes": r"(\d+) bytes smem",
        "spill_bytes": r"(\d+) bytes spill stores",
        "stack_bytes": r"(\d+) bytes stack frame",
    }
    return {name: max(map(int, re.findall(pattern, log)), default=0) for name, pattern in patterns.items()}


def _complaint(log: str) -> str | None:
    return next((line.strip() for line in log.splitlines() if "error" in line.lower()), None)


def _headers(nvrtc: Nvrtc, source: str) -> Iterator[str]:
    """Where cuda_fp16.h and the like are, if the source includes them."""
    if "#include <cuda" in source:
        folder = _folder(_RELEASES[nvrtc.cuda].headers, "include", "cuda_fp16.h")
        if folder is None:
            raise BrokenInstallation(f"the headers of CUDA {nvrtc.cuda} are missing; run: {versions.install_cuda()}")
        yield f"--include-path={folder}"


def _folder(module: str, part: str, name: str) -> Path | None:
    """The folder ``part`` of a module of pip's that has a file of that name."""
    try:
        found = importlib.util.find_spec(module)
    except ImportError:  # there is nothing of nvidia's
        return None
    folders = [Path(each, part) for each in (found.submodule_search_locations or ())] if found else []
    return next((folder for folder in folders if (folder / name).exists()), None)
