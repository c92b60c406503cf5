"""The Python examples of README and docs run as they stand. ``test_docs`` checks the commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def _output_of_the_example(page: str, *, folder: Path) -> str:
    """What the one Python example of a page prints."""
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], cwd=folder, capture_output=True, text=True,
        env=os.environ | {"OMP_DYNAMIC": "false"},  # with it, PyTorch's own gradients are wrong on a busy machine
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_trains(tmp_path):
    printed = _output_of_the_example("README.md", folder=tmp_path)
    assert "1 depthwise layers converted" in printed
    assert all(pass_ in printed for pass_ in ("fprop", "dgrad", "wgrad"))


def test_the_example_explains(tmp_path):
    printed = _output_of_the_example("docs/dispatch.md", folder=tmp_path)
    assert all(pass_ in printed for pass_ in ("fprop", "dgrad", "wgrad"))
