"""The machine code of a CPU artifact for a board: made here, run by TVM's RPC server there.

    kernel.ll    the artifact's LLVM IR, and a way in   ─► kernel.o ─► kernel.so   where a linker for the board is here
                                                              └──────► linked there, by the compiler of the board

A board has TVM's runtime and its threads, so nothing is added but the way in. It takes plain bytes, each with the place
where a tensor begins in them: so its caller lays guard bands around the tensors.
"""

from __future__ import annotations

import dataclasses
import platform
import subprocess
import tempfile
from pathlib import Path

from dwconv import settings
from dwconv.errors import BuildError, one_line
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.cpu import build_cpu
from dwconv.kernels.library import object_file
from dwconv.kernels.load import addresses_ir
from dwconv.problems.target import CpuTarget, Target
from dwconv.schedules.template import Candidate

RUN = "dwconv_on_board"
"""The function of the library: of the batch, then for each argument its bytes and where in them it begins."""
_TIMEOUT_S = 60.0
_ARM = "aarch64"


def build_for_board(candidate: Candidate, target: Target) -> Artifact:
    """A CPU artifact whose ``library`` is for a board: a shared library, or the object of one. Raises what
    ``build_cpu`` raises, and BuildError for what LLVM or the linker refuses."""
    assert isinstance(target, CpuTarget), "boards have CPUs"
    artifact = build_cpu(candidate, target)
    with tempfile.TemporaryDirectory(prefix="dwconv-") as made:
        folder = Path(made)
        entry = _entry_ir(len(artifact.arguments))
        compiled = object_file(folder / "kernel.ll", artifact.source + addresses_ir(artifact.arguments) + entry)
        library = _linked(compiled, target) or compiled
        return dataclasses.replace(artifact, library=library.read_bytes())


def is_linked(library: bytes) -> bool:
    """True for a shared library, False for an object that is still to be linked."""
    return library[16:18] == b"\x03\x00"  # ELF's type


def linker_for(target: CpuTarget) -> list[str] | None:
    """The command here that links for a board; None if there is none."""
    if asked := settings.board_linker():
        return asked
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


def _entry_ir(count: int) -> str:
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
