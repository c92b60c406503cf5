"""The machine code of a CPU artifact as a shared library: made here, loaded anywhere, or run by TVM on a board.

    kernel.ll    the artifact's LLVM IR, and a cheap way in      ─► kernel.o ┐
                                                                             ├─► kernel.so: ``dwconv_run``, nothing else
    runtime.ll   OpenMP's threads, and TVM's symbols             ─► runtime.o┘

Linking takes the C++ compiler of the machine that makes the library. Loading it takes the OpenMP runtime that PyTorch
brings.

A board has TVM's runtime and its threads, so nothing is added but the way in. Without a linker for the board here, its
own compiler links the object there. The way in takes plain bytes, each with the place where a tensor begins in them: so
its caller lays guard bands around the tensors.
"""

from __future__ import annotations

import dataclasses
import platform
import re
import subprocess
import tempfile
from importlib import resources
from pathlib import Path

from dwconv import settings
from dwconv.errors import BrokenInstallation, BuildError, one_line
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.cpu import build_cpu
from dwconv.kernels.load import ANY_NUMBER, ENTRY, addresses_ir, most_threads, openmp_ir
from dwconv.problems.target import CpuTarget, Target
from dwconv.schedules.template import Candidate

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
        objects = [object_file(folder / "kernel.ll", kernel), object_file(folder / "runtime.ll", runtime)]
        visible, library = folder / "visible.map", folder / "kernel.so"
        visible.write_text(_VISIBLE)
        command = [linker, *_FLAGS, f"-Wl,--version-script={visible}", *map(str, objects), *_LIBRARIES]
        try:
            done = subprocess.run(
                [*command, "-o", str(library)], capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S,
                cwd=folder,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise BuildError(f"{settings.linker()} did not link a kernel within {_TIMEOUT_S:.0f} s") from None
        if done.returncode or not library.exists():
            said = one_line(done.stderr, most=300) or f"exit status {done.returncode}"
            raise BuildError(f"{settings.linker()} cannot link a kernel: {said}")
        return library.read_bytes()


def object_file(path: Path, ir: str) -> Path:
    """The object file that LLVM makes of ``ir``, beside ``path``. Raises BuildError."""
    import tvm

    path.write_text(ir)
    made = path.with_suffix(".o")
    try:
        tvm.get_global_func("ffi.Module.load_from_file.ll")(str(path), "ll").write_to_file(str(made), "o")
    except RuntimeError as error:
        raise BuildError(f"LLVM makes no object of a kernel: {one_line(str(error), most=300)}") from None
    return made


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
    return "\n".join([*machine, threads, resources.files("dwconv.kernels").joinpath("library.ll").read_text()])


# -- for a board ---------------------------------------------------------------------------------------------------

RUN = "dwconv_on_board"
"""The function of the library: of the batch, then for each argument its bytes and where in them it begins."""
_ARM = "aarch64"


def build_for_board(candidate: Candidate, target: Target) -> Artifact:
    """A CPU artifact whose ``library`` is for a board: a shared library, or the object of one. Raises what
    ``build_cpu`` raises, and BuildError for what LLVM or the linker refuses."""
    assert isinstance(target, CpuTarget), "boards have CPUs"
    artifact = build_cpu(candidate, target)
    with tempfile.TemporaryDirectory(prefix="dwconv-") as made:
        folder = Path(made)
        entry = _board_entry_ir(len(artifact.arguments))
        compiled = object_file(folder / "kernel.ll", artifact.source + addresses_ir(artifact.arguments) + entry)
        library = _linked(compiled, target) or compiled
        return dataclasses.replace(artifact, library=library.read_bytes())


def is_linked(library: bytes) -> bool:
    """True for a shared library, False for an object that is still to be linked."""
    return library[16:18] == b"\x03\x00"  # ELF's type


def linker_for(target: CpuTarget) -> list[str] | None:
    """The command here that links for a board; None if there is none."""
    if named := settings.board_linker():
        return named
    arch = _ARM if target.vector_set == "neon" else "x86_64"
    name = settings.linker() if platform.machine() == arch else f"{arch}-linux-gnu-gcc"
    return [found] if (found := settings.program(name)) else None


def _linked(compiled: Path, target: CpuTarget) -> Path | None:
    command = linker_for(target)
    if command is None:
        return None
    library = compiled.with_suffix(".so")
    command = [*command, "-shared", "-fPIC", "-nostdlib", str(compiled), "-o", str(library)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise BuildError(f"{command[0]} did not link a kernel within {_TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise BuildError(f"DWCONV_BOARD_LINKER={command[0]} cannot be run: {error.strerror}") from None
    if done.returncode or not library.exists():
        said = one_line(done.stderr, most=300) or f"exit status {done.returncode}"
        raise BuildError(f"{command[0]} cannot link a kernel for {target}: {said}; name one in DWCONV_BOARD_LINKER")
    return library


def _board_entry_ir(count: int) -> str:
    """``RUN``, as TVM calls functions: see ``addresses_ir`` for what an argument and a tensor are."""
    lines = [
        f"define dllexport i32 @__tvm_ffi_{RUN}(ptr %self, ptr %given, i32 %count, ptr %result) {{",
        "  %batch_at = getelementptr %dwconv.argument, ptr %given, i32 0, i32 2",
        "  %n = load i64, ptr %batch_at, align 8",
        f"  %addresses = alloca [{count} x ptr], align 8",
    ]
    for number in range(count):
        lines += [
            f"  %tensor{number}.at = getelementptr %dwconv.argument, ptr %given, i32 {2 * number + 1}, i32 2",
            f"  %tensor{number} = load ptr, ptr %tensor{number}.at, align 8",
            f"  %bytes{number} = load ptr, ptr %tensor{number}, align 8",
            f"  %start{number}.at = getelementptr %dwconv.argument, ptr %given, i32 {2 * number + 2}, i32 2",
            f"  %start{number} = load i64, ptr %start{number}.at, align 8",
            f"  %address{number} = getelementptr i8, ptr %bytes{number}, i64 %start{number}",
            f"  %address{number}.at = getelementptr ptr, ptr %addresses, i32 {number}",
            f"  store ptr %address{number}, ptr %address{number}.at, align 8",
        ]
    lines += ["  %status = call i32 @dwconv.enter(i64 %n, ptr %addresses)", "  ret i32 %status", "}", ""]
    return "\n".join(lines)
