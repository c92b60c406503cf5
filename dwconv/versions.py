"""The versions of the installed packages on which the speed of kernels, and of PyTorch's own ops, depends."""

from __future__ import annotations

from functools import cache
from importlib import metadata

_PACKAGES = {"dwconv": "dwconv", "torch": "torch", "tvm": "apache-tvm"}


@cache
def installed() -> dict[str, str]:
    """Versions by name; not to be changed by the caller. Imports none of the packages."""
    return {name: metadata.version(package) for name, package in _PACKAGES.items()}
