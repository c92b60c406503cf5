"""The versions of the installed packages on which the speed of kernels, and of PyTorch's own ops, depends."""

from __future__ import annotations

import datetime
import importlib.util
import re
from functools import cache
from importlib import metadata
from pathlib import Path

from dwconv.errors import BrokenInstallation

_PACKAGES = {"dwconv": "dwconv", "torch": "torch", "tvm": "apache-tvm"}


@cache
def installed() -> dict[str, str]:
    """Versions by name; not to be changed by the caller. Imports none of the packages. One that is missing is left out:
    kernels of a pack run without TVM."""
    return {name: version for name, package in _PACKAGES.items() if (version := _version(package))}


def now() -> str:
    """The time, ISO 8601, UTC: beside the versions in whatever was measured."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def can_build() -> bool:
    """True if kernels can be built here: TVM is installed."""
    return "tvm" in installed()


def check_can_build() -> None:
    """Raises BrokenInstallation without TVM."""
    if not can_build():
        raise BrokenInstallation(f"{NO_TVM}; run: pip install dwconv; or tune{where_to_tune()}")


NO_TVM = "TVM, which builds kernels, is not installed"


def where_to_tune() -> str:
    """The words after ``tune``, before the command; empty if that can run here."""
    return "" if can_build() else " where TVM is, and load a pack made there (python -m dwconv.export)"


@cache
def cuda_of_pytorch() -> int | None:
    """The CUDA that PyTorch is built for, such as 12 or 13: ``torch.version.cuda``, without an import; None where it is
    built for none."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    file = Path(found.origin).with_name("version.py")
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    major = re.search(r"^cuda\b.*= ['\"](\d+)", text, re.MULTILINE)
    return int(major[1]) if major else None


def install_cuda() -> str:
    """The command that installs what compiles and launches kernels for PyTorch's CUDA."""
    return f"pip install 'dwconv[{'cuda12' if cuda_of_pytorch() == 12 else 'cuda'}]'"


def _version(package: str) -> str:
    """Empty if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
