"""A benchmark's function in a process of its own, in another environment: ``python -m bench.process FUNCTION FILE``;
and a whole command in one, with a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from dwconv.commands.command_line import run
from dwconv.errors import WorkerDied, WorkerTimeout, one_line
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


_KEPT_LINES = 40
_MOST_OF_AN_ERROR = 300


def said_by(command: Sequence[str], *, environment: Mapping[str, str], timeout_s: float) -> list[str]:
    """The last lines that ``python *command`` printed. It ends in time, with all processes that it started. Raises
    WorkerDied with its last line of error, WorkerTimeout."""
    name = " ".join(command)
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as err,
    ):
        process = subprocess.Popen(
            [sys.executable, *command], stdout=out, stderr=err, env=dict(environment), start_new_session=True
        )
        try:
            code = process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise WorkerTimeout(f"{name}: no end after {timeout_s:.0f} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said, errors = (_lines(file) for file in (out, err))
    if code:
        why = one_line((errors or said or [""])[-1], most=_MOST_OF_AN_ERROR)
        raise WorkerDied(f"{name}: ended with code {code}" + (f": {why}" if why else ""))
    return said[-_KEPT_LINES:]


def _lines(file: IO[str]) -> list[str]:
    file.seek(0)
    return [line.rstrip() for line in file if line.strip()]


def _called(argv: Sequence[str] | None) -> int:
    name, file = argv or sys.argv[1:]
    found = locate(name)(**json.loads(Path(file).read_text(encoding="utf-8")))
    Path(file).write_text(json.dumps(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(run(_called, sys.argv[1:]))
