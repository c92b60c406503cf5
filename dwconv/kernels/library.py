"""The machine code of a CPU artifact as a shared library: made here, loaded anywhere.

    kernel.ll    the artifact's LLVM IR, and a cheap way in      ─► kernel.o ┐
                                                                             ├─► kernel.so: ``dwconv_run``, nothing else
    runtime.ll   OpenMP's threads, and TVM's symbols             ─► runtime.o┘

All kernels for a CPU have the same runtime, unless their threads are limited: a process makes its object once. Linking
takes the C++ compiler of the machine that makes the library. Loading it takes the OpenMP runtime that PyTorch brings.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import lru_cache
from importlib import resources
from pathlib import Path

from dwconv import settings
from dwconv.errors import BrokenInstallation, BuildError, one_line
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.llvm import object_of
from dwconv.kernels.load_cpu import ANY_NUMBER, ENTRY, addresses_ir, most_threads, openmp_ir

_FLAGS = ("-shared", "-fPIC", "-nostdlib", "-s", "-Wl,-z,noseparate-code", "-Wl,--build-id=none")
_LIBRARIES = ("-Wl,--as-needed", "-lm", "-lc")
_VISIBLE = f"{{ global: {ENTRY}; local: *; }};\n"
"""Only these symbols are visible, so no library of the process replaces what the kernel calls."""
_POINTER = re.compile(r"^@(__TVM\w+) = linkonce .*\bglobal ptr null", re.MULTILINE)
"""To a function of TVM's runtime."""
_TIMEOUT_S = 60.0


def check_linker() -> str:
    """What links a library here. Raises BrokenInstallation if nothing can."""
    linker = settings.program(settings.linker())
    if linker is None:
        raise BrokenInstallation(
            f"a pack for a CPU is linked by a C++ compiler, and there is no {settings.linker()}; install one, or name "
            "it in CXX; loading the pack needs none"
        )
    return linker


def shared_library(artifact: Artifact) -> bytes:
    """The library of a CPU artifact. Raises BrokenInstallation without a linker, BuildError for what LLVM or the linker
    refuses."""
    linker = check_linker()
    runtime = _runtime_ir(artifact)
    for name in _POINTER.findall(artifact.source):
        if f"@{name} = " not in runtime:  # it would be called, and be null
            raise BuildError(f"{artifact.candidate.config} needs {name} of TVM's runtime, which no pack brings")
    kernel = artifact.source + addresses_ir(artifact.arguments) + _entry_ir()
    with tempfile.TemporaryDirectory(prefix="dwconv-") as made:
        folder = Path(made)
        objects = [folder / "kernel.o", folder / "runtime.o"]
        objects[0].write_bytes(_object(kernel))
        objects[1].write_bytes(_kept_object(runtime))
        visible, library = folder / "visible.map", folder / "kernel.so"
        visible.write_text(_VISIBLE, encoding="utf-8")
        command = [linker, *_FLAGS, f"-Wl,--version-script={visible}", *map(str, objects), *_LIBRARIES]
        try:
            done = subprocess.run(
                [*command, "-o", str(library)], capture_output=True, encoding="utf-8", errors="replace",
                timeout=_TIMEOUT_S, cwd=folder,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise BuildError(f"{settings.linker()} did not link a kernel within {_TIMEOUT_S:.0f} s") from None
        if done.returncode or not library.exists():
            said = one_line(done.stderr, most=300) or f"exit status {done.returncode}"
            raise BuildError(f"{settings.linker()} cannot link a kernel: {said}")
        return library.read_bytes()


def _object(ir: str) -> bytes:
    """The object file that LLVM makes of ``ir``. Raises BuildError."""
    try:
        return object_of(ir)
    except RuntimeError as error:
        raise BuildError(f"LLVM makes no object of a kernel: {one_line(str(error), most=300)}") from None


_kept_object = lru_cache(maxsize=16)(_object)


def _entry_ir() -> str:
    """``int32_t (*)(int64_t batch, void* const* addresses)`` under a name that a loader looks up."""
    return f"""
define dllexport i32 @{ENTRY}(i64 %n, ptr %addresses) {{
  %status = call i32 @dwconv.enter(i64 %n, ptr %addresses)
  ret i32 %status
}}
"""


def _runtime_ir(artifact: Artifact) -> str:
    """For the machine that the kernel is for."""
    machine = re.findall(r"^target (?:datalayout|triple) = .*$", artifact.source, re.MULTILINE)
    threads = openmp_ir(most_threads=most_threads(artifact) or ANY_NUMBER)
    around = resources.files("dwconv.kernels").joinpath("library.ll").read_text(encoding="utf-8")
    return "\n".join([*machine, threads, around])
