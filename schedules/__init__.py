"""Schedule templates of depthwise convolution in TVM: what to compute, how to partition it, and every legal choice.

Imports TVM and nothing else from outside: no torch, no files, no clock.
"""

from __future__ import annotations

from importlib import metadata

from dwconv.errors import BrokenInstallation


def _check_tvm() -> None:
    """apache-tvm-ffi 0.1.15 crashes when a PrimFunc is serialised; pip would choose it by itself. Without TVM
    the spaces are there all the same, and nothing can be built."""
    try:
        metadata.version("apache-tvm")
    except metadata.PackageNotFoundError:
        return
    try:
        found = metadata.version("apache-tvm-ffi")
    except metadata.PackageNotFoundError as error:
        raise BrokenInstallation(f"{error.name} is not installed; run: pip install dwconv") from None
    if not found.startswith("0.1.14"):
        raise BrokenInstallation(
            f"apache-tvm-ffi {found} is installed, which crashes with this TVM; "
            "run: pip install 'apache-tvm-ffi>=0.1.14,<0.1.15'"
        )


_check_tvm()
