"""CUDA C++ -> cubin with NVRTC from pip, called directly: 0.06 s for a small kernel, with the resources that ptxas
reports.

Arithmetic is IEEE's: multiplications and additions contract to fused ones, nothing else is relaxed unless asked for.
Compiled cubins are kept on disk, by their source and options.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from dwconv import settings
from dwconv.errors import BrokenInstallation, BuildError
from dwconv.kernels.entry import key_of, read_entry, write_entry
from dwconv.kernels.wire import message

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
    """The same for each kernel, by name."""


def compile_cubin(source: str, *, arch: str, fast_math: bool = False) -> Compiled:
    """Compile for ``arch`` (``sm_90``), or find what was compiled before. ``fast_math`` flushes denormals to zero and
    divides approximately. Raises BuildError with the compiler's first complaint, BrokenInstallation where NVRTC is
    missing."""
    nvrtc = _nvrtc()
    options = (*OPTIONS, *(FAST_MATH if fast_math else IEEE), f"--gpu-architecture={arch}")
    try:
        _, *version = nvrtc.nvrtcVersion()
    except RuntimeError as error:  # cuda-bindings loads the library at the first call
        raise _missing(error) from None
    key = key_of(source, options, version, _header_versions())
    path = settings.cache_folder() / "cubins" / f"{key}.cubin"
    found = read_entry(path)
    if isinstance(found, Compiled):
        return found
    compiled = _compile(nvrtc, source, options, arch=arch)
    write_entry(path, compiled)
    return compiled


@cache
def _header_versions() -> list[str]:
    found = []
    for package in ("nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-crt"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(metadata.version(package))
    return found


def _compile(nvrtc: Any, source: str, chosen: tuple[str, ...], *, arch: str) -> Compiled:
    options = [*chosen, *(f"--include-path={folder}" for folder in _headers(source))]
    program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, None, None))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        log = _read(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode(errors="replace")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise BuildError(f"NVRTC for {arch}: {_complaint(log) or status.name}")
        cubin = _read(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return Compiled(cubin=cubin, resources=resources(log), kernels=kernel_resources(log))


def kernel_resources(log: str) -> dict[str, dict[str, int]]:
    """The resources that ptxas reports in ``log`` for each kernel, by name."""
    names = re.findall(r"Function properties for (\w+)", log)
    parts = re.split(r"Function properties for \w+", log)[1:]
    return {name: resources(part) for name, part in zip(names, parts, strict=True)}


def resources(log: str) -> dict[str, int]:
    """The resources that ptxas reports in ``log``: the maximum over all kernels."""
    found = {"registers": 0, "shared_bytes": 0, "spill_bytes": 0, "stack_bytes": 0}
    patterns = {
        "registers": r"Used (\d+) registers",
        "shared_bytes": r"(\d+) bytes smem",
        "stack_bytes": r"(\d+) bytes stack frame",
        "spill_bytes": r"(\d+) bytes spill stores",
    }
    for name, pattern in patterns.items():
        found[name] = max((int(number) for number in re.findall(pattern, log)), default=0)
    return found


def _complaint(log: str) -> str | None:
    return next((line.strip() for line in log.splitlines() if "error" in line.lower()), None)


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise _missing(error) from None
    return nvrtc


def _missing(error: Exception) -> BrokenInstallation:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return BrokenInstallation(f"compiling for CUDA needs NVRTC ({reason}); run: pip install 'dwconv[cuda]'")


def _headers(source: str) -> list[Path]:
    """Folders of cuda_fp16.h and the like, where the source asks for them."""
    if "#include <cuda" not in source:
        return []
    package = importlib.util.find_spec("nvidia.cu13")
    folders = [Path(folder) / "include" for folder in (package.submodule_search_locations or ())] if package else []
    if not folders:
        raise BrokenInstallation("the CUDA headers are missing; run: pip install 'dwconv[cuda]'")
    return folders


def _checked(answer: tuple[Any, ...]) -> Any:
    status, value = answer
    if status.value:
        raise BuildError(f"NVRTC: {status.name}")
    return value


def _read(program: Any, size_of: Callable[[Any], Any], read: Callable[[Any, bytearray], Any]) -> bytes:
    buffer = bytearray(_checked(size_of(program)))
    read(program, buffer)
    return bytes(buffer)
