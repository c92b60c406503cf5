"""A benchmark's function in a process of its own, in another environment: ``python -m bench.process FUNCTION FILE``."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dwconv.commands.command_line import run
from dwconv.errors import WorkerDied, WorkerTimeout
from dwconv.measure.processes.worker import locate


def in_a_process(
    function: Callable[..., Any],
    given: Mapping[str, Any],
    *,
    environment: Mapping[str, str],
    timeout_s: float | None = None,
) -> Any:
    """``function(**given)``, of a function of a module; arguments and result pass as JSON. Raises WorkerDied,
    WorkerTimeout."""
    name = f"{function.__module__}:{function.__name__}"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "call.json"
        file.write_text(json.dumps(dict(given)), encoding="utf-8")
        command = [sys.executable, "-m", "bench.process", name, str(file)]
        try:
            ended = subprocess.run(command, env=dict(environment), check=False, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise WorkerTimeout(f"{name}: no end after {timeout_s:.0f} s") from error
        if ended.returncode:
            raise WorkerDied(f"{name}: the process ended with code {ended.returncode}")
        return json.loads(file.read_text(encoding="utf-8"))


def _called(argv: Sequence[str] | None) -> int:
    name, file = argv or sys.argv[1:]
    found = locate(name)(**json.loads(Path(file).read_text(encoding="utf-8")))
    Path(file).write_text(json.dumps(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(run(_called, sys.argv[1:]))
