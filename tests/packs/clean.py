"""A clean environment: a Python that finds neither TVM nor a compiler, with empty folders of the user."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_LEFT_OUT = ("tvm", "apache_tvm", "cuda", "nvidia", "xgboost", "_dwconv", "__editable__", "dwconv", "rich", "psutil")


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
        cwd=empty, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def _packages(folder: Path) -> Path:
    """Links to the installed packages but TVM, what comes with it, and what only tuning needs; and to dwconv."""
    folder.mkdir()
    for installed in dict.fromkeys(sysconfig.get_paths()[kind] for kind in ("purelib", "platlib")):
        for each in Path(installed).iterdir():
            if not each.name.startswith(_LEFT_OUT) and not (folder / each.name).exists():
                (folder / each.name).symlink_to(each)
    (folder / "dwconv").symlink_to(ROOT / "dwconv")
    info = folder / "dwconv-0.dist-info"
    info.mkdir()
    from importlib.metadata import version

    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: dwconv\nVersion: {version('dwconv')}\n")
    return folder
