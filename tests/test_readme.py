"""What the README shows runs as it stands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()
COMMANDS = re.findall(r"^python -m (dwconv\.\w+ .*?)(?:\s+#.*)?$", README, re.MULTILINE)


def test_the_example_trains(tmp_path):
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"OMP_DYNAMIC": "false"},  # with it, PyTorch's own gradients are wrong on a busy machine
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "1 depthwise layers converted" in done.stdout
    assert all(pass_ in done.stdout for pass_ in ("fprop", "dgrad", "wgrad"))


@pytest.mark.parametrize("command", [command for command in COMMANDS if "…" not in command])
def test_the_commands_name_options_that_exist(command):
    module, *arguments = shlex.split(command)
    shown = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True).stdout
    assert arguments
    for option in (argument for argument in arguments if argument.startswith("--")):
        assert option in shown
