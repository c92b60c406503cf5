"""What TVM generated once is found again, by all that went into it: the program, its target, and the code around TVM.
TVM and LLVM take most of the time of tests that build kernels."""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = "DWCONV_TESTS_PROGRAMS"
"""The variable that names the folder."""
MODULES = ("dwconv.kernels.cpu_build", "dwconv.kernels.cuda_build")
"""Each has a function ``generated``."""


def keep(module: ModuleType) -> None:
    """Has one of ``MODULES`` keep in the folder what it generates."""
    generate = module.generated

    def generated(program: Any, *target: Any) -> Any:
        if FOLDER not in os.environ:
            return generate(program, *target)
        from tvm import ir

        from dwconv.kernels.entry import decode, encode

        key = "\0".join([_code(Path(str(module.__file__)).parent), ir.save_json(program), *map(str, target)])
        path = Path(os.environ[FOLDER]) / hashlib.sha256(key.encode()).hexdigest()[:40]
        with contextlib.suppress(OSError, ValueError, zlib.error):
            found = decode(zlib.decompress(path.read_bytes()))
            path.touch()  # those that were not used for longest go first
            return found
        found = generate(program, *target)
        with contextlib.suppress(OSError):
            path.write_bytes(zlib.compress(encode(found), 1))  # half a file is generated again
        return found

    module.generated = generated  # type: ignore[attr-defined]


@cache
def _code(kernels: Path) -> str:
    import tvm

    return tvm.__version__ + "".join(
        (kernels / name).read_text() for name in ("artifact.py", "cpu_build.py", "cuda_build.py")
    )
