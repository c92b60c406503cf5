"""The versions of the installed packages on which the speed of kernels, and of PyTorch's own ops, depends."""

from __future__ import annotations

from functools import cache
from importlib import metadata

from dwconv.errors import BrokenInstallation

_PACKAGES = {"dwconv": "dwconv", "torch": "torch", "tvm": "apache-tvm"}


@cache
def installed() -> dict[str, str]:
    """Versions by name; not to be changed by the caller. Imports none of the packages. One that is missing is left out:
    kernels of a pack run without TVM."""
    return {name: version for name, package in _PACKAGES.items() if (version := _version(package))}


def can_build() -> bool:
    """True if kernels can be built here: TVM is installed."""
    return "tvm" in installed()


def check_can_build() -> None:
    """Raises BrokenInstallation without TVM."""
    if not can_build():
        raise BrokenInstallation(f"{NO_TVM}; run: pip install dwconv; or tune{where_to_tune()}")


NO_TVM = "TVM, which builds kernels, is not installed"


def where_to_tune() -> str:
    """Said after ``tune``, before the command; empty if that can run here."""
    return "" if can_build() else " where TVM is, and load a pack made there (python -m dwconv.export)"


def _version(package: str) -> str:
    """Empty if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
