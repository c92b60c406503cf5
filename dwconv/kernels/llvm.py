"""LLVM's IR as a module of TVM, which reads it from a file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def module_of(ir: str) -> Any:
    """The module of this IR. Raises RuntimeError for what LLVM refuses."""
    import tvm

    with _folder() as folder:
        Path(folder, "kernel.ll").write_text(ir, encoding="utf-8")
        return tvm.get_global_func("ffi.Module.load_from_file.ll")(f"{folder}/kernel.ll", "ll")


def object_of(ir: str) -> bytes:
    """The object file that LLVM makes of this IR. Raises RuntimeError."""
    with _folder() as folder:
        module_of(ir).write_to_file(f"{folder}/kernel.o", "o")
        return Path(folder, "kernel.o").read_bytes()


@contextmanager
def _folder() -> Iterator[str]:
    """A new folder for temporary files, under a name in ASCII. TVM takes every name for UTF-8, whatever the locale, and
    ``TMPDIR`` may be none."""
    with tempfile.TemporaryDirectory(prefix="dwconv-") as name:
        if name.isascii():
            yield name
            return
        descriptor = os.open(name, os.O_RDONLY)
        try:
            yield f"/proc/self/fd/{descriptor}" if os.path.isdir("/proc/self/fd") else name  # noqa: PTH112  a constant
        finally:
            os.close(descriptor)
