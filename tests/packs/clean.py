"""A clean environment: a Python that finds no compiler, and no packages but those that docs/packs.md installs to train
without TVM, with empty folders of the user."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]


def run_clean(folder: Path, program: str, *, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program of Python there. ``path``: where more packages are."""
    packages = _packages(folder / "packages")
    empty = folder / "empty"
    empty.mkdir()
    environment = {
        "PATH": str(empty),
        "PYTHONPATH": os.pathsep.join([*([path] if path else []), str(packages)]),
        "HOME": str(empty),
        "DWCONV_CACHE": str(empty / "cache"),
        **{f"XDG_{kind}_HOME": str(empty / kind.lower()) for kind in ("CACHE", "DATA", "STATE")},
        **{name: value for name, value in os.environ.items() if name.startswith(("OMP_", "KMP_", "LD_"))},
    }
    return subprocess.run(
        [sys.executable, "-S", "-c", program],  # -S: no site-packages, so none but these
        cwd=empty, env=environment, capture_output=True, text=True, timeout=1200,
    )  # fmt: skip


def _packages(folder: Path) -> Path:
    """Links to the packages, and to dwconv."""
    folder.mkdir()
    for name in _with_what_they_need(documented()):
        installed = metadata.distribution(name)
        tops = {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}
        for top in tops:
            (folder / top).symlink_to(installed.locate_file(top))
    (folder / "dwconv").symlink_to(ROOT / "dwconv")
    info = folder / "dwconv-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: dwconv\nVersion: {metadata.version('dwconv')}\n")
    return folder


def documented() -> list[str]:
    """The packages that docs/packs.md installs beside dwconv."""
    text = (ROOT / "docs" / "packs.md").read_text()
    (line,) = re.findall(r"pip install --no-deps \.\npip install ([a-z ]+)", text)
    return line.split()


def _with_what_they_need(names: list[str]) -> set[str]:
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name in found or not _is_installed(name):
            continue
        found.add(name)
        needs = [Requirement(line) for line in metadata.requires(name) or ()]
        left += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return found


def _is_installed(name: str) -> bool:
    """A CPU build of PyTorch lists what it does not need."""
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False
