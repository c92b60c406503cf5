"""Machine code of GPU kernels as text: the instructions that NVRTC and ptxas made.

The disassembler is nvdisasm from pip; no CUDA toolkit, no GPU.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from dwconv.errors import BrokenInstallation, BuildError
from dwconv.system import versions

_TIMEOUT_S = 60.0


def disassemble(cubin: bytes) -> dict[str, str]:
    """The text of each kernel of a cubin, by name: its instructions, one a line with its address, and the labels that
    jumps name. Raises BrokenInstallation without nvdisasm, BuildError for what it refuses."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [_nvdisasm(), "--print-code", "--no-dataflow", file.name]
        try:
            finished = subprocess.run(
                command, capture_output=True, encoding="utf-8", errors="replace", timeout=_TIMEOUT_S
            )
        except OSError as error:
            raise _missing(str(error)) from None
        except subprocess.TimeoutExpired:
            raise BuildError(f"nvdisasm took more than {_TIMEOUT_S:g} s") from None
    if finished.returncode:
        words = finished.stderr.strip().splitlines() or [f"exit code {finished.returncode}"]
        raise BuildError(f"nvdisasm: {words[0]}")
    parts = re.split(r"^\.text\.(\w+):", finished.stdout, flags=re.MULTILINE)[1:]
    return {name: _text(part) for name, part in zip(parts[::2], parts[1::2], strict=True)}


_LINE = re.compile(r"(\.L_\w+:)|\s+/\*([0-9a-f]{4,})\*/\s+([^/].*?)\s*;")


def _text(part: str) -> str:
    found = [match for line in part.splitlines() if (match := _LINE.match(line))]
    return "\n".join(match[1] or f"  {match[2]}  {match[3]}" for match in found)


def _nvdisasm() -> str:
    """Path of nvdisasm: the one from pip or, where that is missing or cannot be run, the one on PATH."""
    package = importlib.util.find_spec("nvidia.cu13")
    folders = [str(Path(folder, "bin")) for folder in (package.submodule_search_locations or ())] if package else []
    found = shutil.which("nvdisasm", path=os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)]))
    if found is None:
        raise _missing("no file of that name in site-packages or on PATH may be run")
    return found


def _missing(reason: str) -> BrokenInstallation:
    return BrokenInstallation(f"machine code as text needs nvdisasm ({reason}); run: {versions.install_cuda()}")
